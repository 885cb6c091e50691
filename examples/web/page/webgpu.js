// Whether WebGPU can be used here, and if not, why.

/** A sentence with the reason, or null if there is an adapter. */
export async function webgpuReason() {
  if (!isSecureContext) {
    return 'WebGPU is not available: browsers offer it only to pages from https or localhost.';
  }
  if (!navigator.gpu) return 'WebGPU is not available: this browser does not have it.';
  try {
    if (await navigator.gpu.requestAdapter()) return null;
    return 'WebGPU is not available: the browser has it, but offers no GPU. It may block this'
      + ' graphics driver, or hardware acceleration may be switched off.';
  } catch (error) {
    return `WebGPU is not available: the browser refused an adapter (${error.message}).`;
  }
}
