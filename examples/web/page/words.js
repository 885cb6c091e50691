// Sentences for visitors. The library's errors are for programmers: they name calls and shapes.

export const PAD_NOTE = 'Draw with mouse, finger, or arrow keys and Space.';
export const CHECKPOINT_NOTE = 'After an epoch, twice a second at most, the page keeps a'
  + ' checkpoint: all that the training needs to continue. It is offered after an error and at your'
  + ' next visit.';

const SENTENCES = [
  [/GPU was lost|reading from the GPU failed/i,
    'The GPU was lost: its driver was restarted, or the browser took it away.'],
  [/no GPU adapter/, 'The browser offers no GPU to this page. It may block this graphics driver, or'
    + ' hardware acceleration may be switched off in its settings.'],
  [/^loss is (NaN|-?inf) at step (\d+)/, 'The loss is no longer a number at step $2. The usual'
    + ' cause is too high a learning rate.'],
  [/^loss is \S+ at step (\d+)/, 'At step $1 the loss is far higher than that of random guesses.'
    + ' The usual cause is too high a learning rate.'],
  [/not finite numbers/, 'It has weights that are not finite numbers.'],
  [/expected network /, 'The file is of a network that this page does not have.'],
  [/missing key|unexpected key|no part|not a checkpoint|batch \d+ of an epoch/,
    'The file was saved by another program, or by another version of this page.'],
];

/** An error in words that a visitor understands. */
export function explain({ message, name, cause }) {
  if (cause === 'panic') {
    return 'This is a bug in the page, or the memory of the tab has ended. The browser\'s console'
      + ' shows the report.';
  }
  if (cause === 'diverged' && /not finite/.test(message)) {
    return 'The weights of the network are no longer numbers. The usual cause is too high a'
      + ' learning rate.';
  }
  if (name === 'OutOfMemory') return 'The memory that this tab may use does not suffice.';
  for (const [pattern, sentence] of SENTENCES) {
    const match = message.match(pattern);
    if (match) return sentence.replace(/\$(\d)/g, (_, group) => match[group]);
  }
  const line = message.split('\n')[0];
  return line[0].toUpperCase() + line.slice(1) + (/[.!?]$/.test(line) ? '' : '.');
}

/** The engine in words, from the library's description. */
export function engineText(engine, description, adapter) {
  if (engine === 'cpu') {
    const vectors = /simd128/i.test(description) ? ', with 128-bit vectors' : '';
    return `Runs on one core of the CPU as WebAssembly${vectors}.`;
  }
  const names = adapter.names.join(', ') || 'which the browser does not name';
  return adapter.isFallback
    ? `Runs on a GPU that the CPU emulates (${names}): slowly.`
    : `Runs on the GPU (${names}) by WebGPU.`;
}

/** What the pictures of the first layer show. */
export function layerText(arch, parameters) {
  const square = arch === 'mlp' ? 'the weights from the image to one of 128 units'
    : 'one of 8 filters of 3 x 3 pixels';
  return `Each square shows ${square}. In all, the network has`
    + ` ${parameters.toLocaleString('en')} weights.`;
}

export const percent = share => `${(100 * share).toFixed(1)} %`;

const NETWORKS = { mlp: 'fully connected', cnn: 'convolutional' };

/** A checkpoint in words. */
export function describe({ arch, epoch, step, accuracy }) {
  const tested = accuracy == null ? '' : `, ${percent(accuracy)} of the test images`;
  return `${NETWORKS[arch]} network, epoch ${epoch}, step ${step}${tested}`;
}

/** What the page keeps, and when it goes on to keep it. */
export const keptText = checkpoint => `Kept: ${describe(checkpoint)}. A network that reads less`
  + ' than half as many does not replace it.';

export const engineName = engine => (engine === 'cpu' ? 'CPU' : 'GPU');
