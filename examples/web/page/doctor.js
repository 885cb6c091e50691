// The self-test, in a worker of its own: a failure there does not end the training.

import { $, tell } from './messages.js';
import { engineName, explain } from './words.js';

const SECONDS = 3;

$('doctor-run').onclick = () => {
  const engine = $('engine').value;
  $('doctor-run').disabled = true;
  tell('doctor-status', `Testing the ${engineName(engine)}…`);
  const worker = new Worker('worker.js', { type: 'module', name: 'doctor' });
  const finish = text => {
    worker.terminate();
    $('report').textContent = `${text}\nbrowser  ${navigator.userAgent}`;
    $('report').hidden = false;
    $('doctor-run').disabled = false;
    $('doctor-copy').disabled = false;
    const agrees = text.includes('result   everything agrees');
    tell('doctor-status', `Done: ${agrees ? 'everything agrees' : 'see the report'}`);
  };
  worker.onmessage = ({ data }) => finish(data.text ?? `FAILED   ${explain(data)}`);
  worker.onerror = event => {
    event.preventDefault();
    finish(`FAILED   ${event.message ?? 'worker.js could not be loaded'}`);
  };
  worker.postMessage({ kind: 'examine', engine, seconds: SECONDS });
};

$('doctor-copy').onclick = async () => {
  try {
    await navigator.clipboard.writeText($('report').textContent);
    tell('doctor-status', 'Copied');
  } catch {
    getSelection().selectAllChildren($('report'));
    tell('doctor-status', 'Selected: copy it with Ctrl+C');
  }
};
