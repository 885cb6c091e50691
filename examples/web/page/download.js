// Saves a checkpoint to a file.

import { tell } from './messages.js';

export function download({ bytes, arch, epoch }) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
  link.download = `digits-${arch}-epoch-${epoch}.safetensors`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  tell('checkpoint-status', `Saved ${link.download}, ${Math.round(bytes.length / 1024)} KiB`);
}
