// Loads the library, a module of WebAssembly, and says in a sentence why that has failed.

const MODULE = 'pkg/web_bg.wasm';

class LoadError extends Error {
  name = 'LoadError';
}

/** The module's functions. */
export async function load() {
  if (typeof WebAssembly !== 'object') {
    throw new LoadError('This browser has no WebAssembly, or it is switched off.');
  }
  let library;
  try {
    library = await import('./pkg/web.js');
  } catch (error) {
    throw new LoadError(`The file pkg/web.js could not be loaded (${error.message}).`);
  }
  try {
    await start(library, 'default');
  } catch {
    await start(library, 'reload'); // the browser may have kept a damaged file
  }
  return library;
}

/** Fetches the module, past the browser's cache if `cache` is `reload`, and starts it. */
async function start(library, cache) {
  let response;
  try {
    response = await fetch(new URL(MODULE, import.meta.url), { cache });
  } catch {
    throw new LoadError(`The file ${MODULE} could not be loaded: the connection to the server has`
      + ' failed.');
  }
  if (!response.ok) {
    const reason = `${response.status} ${response.statusText}`.trim();
    throw new LoadError(`The file ${MODULE} could not be loaded: the server answers ${reason}.`);
  }
  try {
    await library.default({ module_or_path: await instantiable(response) });
  } catch (error) {
    if (error instanceof LoadError) throw error;
    throw new LoadError(reasonOf(error));
  }
}

/** The response, or its bytes where the server does not call them WebAssembly. */
async function instantiable(response) {
  const type = response.headers.get('Content-Type') ?? 'no type';
  if (/^application\/wasm\b/.test(type)) return response;
  const bytes = new Uint8Array(await response.arrayBuffer());
  if (String.fromCharCode(...bytes.subarray(0, 4)) === '\0asm') return bytes;
  throw new LoadError(`The server has sent something else (${type}) for the file ${MODULE}.`);
}

function reasonOf(error) {
  if (/Content.Security.Policy|unsafe-eval|blocked by CSP/i.test(error.message)) {
    return 'A security policy of the server forbids WebAssembly: its Content-Security-Policy lacks'
      + ' \'wasm-unsafe-eval\'.';
  }
  if (error instanceof WebAssembly.CompileError || error instanceof WebAssembly.LinkError) {
    return `The file ${MODULE} is damaged, of another version, or this browser is too old: it needs`
      + ' WebAssembly with 128-bit vectors.';
  }
  if (error instanceof RangeError) return 'The browser has no memory for the page.';
  return `The file ${MODULE} could not be loaded completely (${error.message}).`;
}
