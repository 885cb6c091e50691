// The page: controls, plots and messages. It computes nothing itself; the worker does.

import { Pad, drawInk, drawWeights } from './pad.js';
import { Plot } from './plot.js';
import { keep, kept, forget } from './keep.js';
import { webgpuReason } from './webgpu.js';

const $ = id => document.getElementById(id);
const DEFAULT_LR = { mlp: 0.4, cnn: 0.01 };
const SILENCE = 30_000; // milliseconds without a message of a worker that trains: it hangs
const KEEP_EVERY = 2000; // milliseconds between two checkpoints in the database
const DOCTOR_SECONDS = 3;

/** What the page knows; `window.teenyPage` for tests and the curious. */
const state = {
  worker: null,
  isReady: false,
  isRunning: false,
  namesRun: false,
  engine: 'cpu',
  arch: 'mlp',
  epoch: 0,
  step: 0,
  accuracy: null,
  best: 0,
  testImages: 0,
  testImage: -1,
  checkpoint: null, // { bytes, arch, epoch, step, lr, accuracy }
  longestGap: 0,
};
window.teenyPage = state;

const plots = {
  loss: new Plot($('loss-plot'), {
    name: 'Loss', logarithmic: true, format: y => String(Number(y.toPrecision(2))),
  }),
  accuracy: new Plot($('accuracy-plot'), {
    name: 'Test accuracy', range: [0, 1], guide: 0.9, format: y => `${Math.round(100 * y)} %`,
  }),
};
const percent = share => `${(100 * share).toFixed(1)} %`;

// ---- the worker ----

let lastMessage = 0;
let lastKept = 0;
let rate = null; // { step, time } of the last figure

function send(message, transfer = []) {
  state.worker?.postMessage(message, transfer);
}

/** Starts a worker on the chosen engine, from a checkpoint if there is one. */
function open(checkpoint = null) {
  state.worker?.terminate();
  state.isReady = state.isRunning = state.namesRun = false;
  state.engine = $('engine').value;
  state.worker = new Worker('worker.js', { type: 'module', name: 'training' });
  state.worker.onmessage = event => {
    lastMessage = performance.now();
    receive[event.data.kind](event.data);
  };
  state.worker.onerror = event => {
    event.preventDefault();
    const message = event.message ?? 'the worker cannot be started';
    receive.failed({ message, fatal: true, during: 'open' });
  };
  say(state.engine === 'webgpu' ? 'Opening the GPU…' : 'Loading…');
  const arch = checkpoint?.arch ?? $('arch').value;
  send({ kind: 'open', engine: state.engine, arch, lr: lr(), checkpoint: checkpoint?.bytes });
  update();
}

const receive = {
  pong() {},
  ready(message) {
    state.isReady = true;
    state.testImages = message.testImages;
    $('known-names').textContent = message.knownNames;
    $('engine-note').textContent = message.description;
    if ($('ready-time').textContent === '–') {
      $('ready-time').textContent = `${Math.round(performance.now())} ms`;
    }
    adopt(message);
    say('Ready');
    predict();
  },
  reset(message) {
    adopt(message);
    state.checkpoint = null;
    $('checkpoint-note').textContent = 'The page keeps a checkpoint after each epoch.';
    say('Ready');
    predict();
  },
  loaded(message) {
    adopt(message);
    tell('checkpoint-status', `Loaded: ${describe(message)}`);
    predict();
  },
  progress({ losses, step, epoch, accuracy }) {
    losses.forEach((loss, i) => plots.loss.add(step - losses.length + 1 + i, loss));
    if (losses.length > 0) $('loss').textContent = losses.at(-1).toPrecision(3);
    state.step = step;
    state.epoch = epoch;
    if (accuracy !== undefined) {
      state.accuracy = accuracy;
      state.best = Math.max(state.best, accuracy);
      plots.accuracy.add(step, accuracy);
      predict();
    }
    measureRate();
    figures();
  },
  pictures({ values, side }) {
    state.pictures = { values, side };
    paintPictures();
  },
  prediction({ probabilities }) {
    predicting = false;
    showPrediction(probabilities);
    if (predictAgain) predict();
  },
  testImage({ pixels, digit, index }) {
    state.testImage = index;
    $('pad-note').textContent = `Test image ${index + 1} of ${state.testImages}: a ${digit}`;
    pad.show(pixels);
  },
  names({ step, loss, names }) {
    if (!state.namesRun) return;
    tell('names-status', `Step ${step}, loss ${loss.toFixed(3)}`);
    if (names) {
      $('names-list').replaceChildren(...names.map(name => {
        const item = document.createElement('li');
        item.textContent = name;
        return item;
      }));
    }
  },
  checkpoint({ reason, bytes, arch, epoch, step, lr }) {
    const accuracy = state.accuracy;
    state.checkpoint = { bytes, arch, epoch, step, lr, accuracy };
    $('checkpoint-note').textContent = `Kept: ${describe(state.checkpoint)}`;
    if (reason === 'save') download(state.checkpoint);
    if (reason !== 'epoch' || performance.now() - lastKept > KEEP_EVERY) {
      lastKept = performance.now();
      keep(state.checkpoint).catch(error => {
        tell('checkpoint-status', `The browser cannot keep the checkpoint: ${error}`);
      });
    }
    update();
  },
  failed({ message, fatal, during }) {
    state.isRunning = state.namesRun = false;
    predicting = false;
    update();
    if (during === 'load') {
      tell('checkpoint-status', '');
      return alert(`The file was not loaded; nothing has changed.\n${message}`, [close()]);
    }
    say('Stopped');
    const what = { open: 'The engine cannot be opened.', train: 'Training has stopped.' };
    if (fatal || during === 'open') state.isReady = false;
    update();
    alert(`${what[during] ?? 'The last action has failed.'}\n${message}`, recovery(fatal, during));
  },
};

/** The state of a run that the worker has begun or loaded. */
function adopt({ arch, epoch, step, lr, accuracy, parameters }) {
  Object.assign(state, { arch, epoch, step, accuracy: accuracy ?? null, best: accuracy ?? 0 });
  rate = null;
  $('arch').value = arch;
  $('lr').value = lr;
  $('loss').textContent = $('rate').textContent = '–';
  $('step').title = `${parameters} parameters`;
  plots.loss.clear();
  plots.accuracy.clear();
  if (accuracy !== undefined) plots.accuracy.add(step, accuracy);
  figures();
  update();
}

/** The ways out of an error. */
function recovery(fatal, during) {
  const actions = [];
  const { checkpoint } = state;
  const from = checkpoint ? ` from epoch ${checkpoint.epoch}` : '';
  const restart = (engine, text) => actions.push([text, () => {
    $('engine').value = engine;
    open(checkpoint);
  }]);
  if (during !== 'open' && !fatal) return [close()];
  if (state.engine === 'webgpu') restart('webgpu', `Go on with WebGPU${from}`);
  restart('cpu', `Go on with the CPU${from}`);
  return actions;
}

// ---- messages to the reader ----

function tell(id, text) {
  $(id).textContent = text;
}

const say = text => tell('status', text);
const close = () => ['Close', () => {}];

function alert(text, actions, isNotice = false) {
  $('alert-text').textContent = text;
  $('alert').classList.toggle('notice', isNotice);
  $('alert-actions').replaceChildren(...actions.map(([label, act]) => {
    const button = document.createElement('button');
    button.textContent = label;
    button.onclick = () => {
      $('alert').hidden = true;
      act();
    };
    return button;
  }));
  $('alert').hidden = false;
}

function describe({ arch, epoch, step, accuracy }) {
  const tested = accuracy == null ? '' : `, ${percent(accuracy)} of the test images`;
  return `${arch.toUpperCase()}, epoch ${epoch}, step ${step}${tested}`;
}

function figures() {
  $('epoch').textContent = state.epoch;
  $('step').textContent = state.step;
  $('accuracy').textContent = state.accuracy === null ? '–' : percent(state.accuracy);
}

function measureRate() {
  const now = performance.now();
  if (rate && now - rate.time > 1000) {
    $('rate').textContent = ((state.step - rate.step) / (now - rate.time) * 1000).toFixed(1);
    rate = null;
  }
  rate ??= { step: state.step, time: now };
}

/** Enables and names the buttons. */
function update() {
  const { isReady, isRunning, namesRun } = state;
  for (const id of ['run', 'reset', 'names-run', 'save', 'previous', 'next']) {
    $(id).disabled = !isReady;
  }
  $('run').textContent = isRunning ? 'Pause' : state.step > 0 ? 'Go on' : 'Start';
  $('names-run').textContent = namesRun ? 'Pause' : 'Start';
  document.documentElement.dataset.state = !isReady ? 'loading' : isRunning ? 'running' : 'ready';
}

function lr() {
  const value = Number($('lr').value);
  return value > 0 && Number.isFinite(value) ? value : DEFAULT_LR[$('arch').value];
}

// ---- controls ----

$('run').onclick = () => {
  state.isRunning = !state.isRunning;
  send({ kind: 'run', digits: state.isRunning });
  say(state.isRunning ? 'Training' : 'Paused');
  rate = null;
  update();
};

function reset() {
  state.isRunning = false;
  send({ kind: 'reset', arch: $('arch').value, lr: lr() });
  update();
}

$('reset').onclick = reset;
$('arch').onchange = () => {
  $('lr').value = DEFAULT_LR[$('arch').value];
  reset();
};
$('lr').onchange = () => {
  $('lr').value = lr();
  send({ kind: 'lr', lr: lr() });
};
$('engine').onchange = () => {
  // a run goes on on the other engine
  open(state.step > 0 ? state.checkpoint : null);
};
$('names-run').onclick = () => {
  state.namesRun = !state.namesRun;
  send({ kind: 'run', names: state.namesRun });
  tell('names-status', state.namesRun ? 'Training' : 'Paused');
  update();
};

// ---- drawing and prediction ----

let predicting = false;
let predictAgain = false;
const bars = Array.from({ length: 10 }, (_, digit) => {
  const item = document.createElement('li');
  item.innerHTML = '<span></span><div class="track"><div class="bar"></div></div>'
    + '<span class="percent">–</span>';
  item.firstChild.textContent = digit;
  $('bars').append(item);
  return item;
});

/** One prediction is on its way at a time; a change meanwhile asks again. */
function predict() {
  predictAgain = predicting;
  if (predicting || !state.isReady || pad.isEmpty) return;
  predicting = true;
  const image = pad.image();
  drawInk($('seen'), image);
  send({ kind: 'predict', image });
}

function showPrediction(probabilities) {
  if (pad.isEmpty) return;
  const best = probabilities.indexOf(Math.max(...probabilities));
  state.prediction = best;
  $('answer').textContent = best;
  bars.forEach((item, digit) => {
    const p = probabilities[digit];
    item.classList.toggle('best', digit === best);
    item.querySelector('.bar').style.width = `${100 * p}%`;
    item.lastChild.textContent = percent(p);
  });
}

const pad = new Pad($('pad'), $('pad-cursor'), () => {
  if (pad.isEmpty) {
    drawInk($('seen'), new Float32Array(784));
    $('answer').textContent = '–';
    state.prediction = null;
    bars.forEach(item => {
      item.classList.remove('best');
      item.querySelector('.bar').style.width = '0';
      item.lastChild.textContent = '–';
    });
  } else {
    predict();
  }
}, text => tell('pad-note', text));

$('clear').onclick = () => {
  $('pad-note').textContent = 'Draw with the mouse, a finger or the arrow keys and Space, or look at the test'
    + ' images.';
  pad.clear();
};
const step = by => {
  const index = (state.testImage + by + state.testImages) % state.testImages;
  send({ kind: 'testImage', index });
};
$('previous').onclick = () => step(state.testImage < 0 ? 0 : -1);
$('next').onclick = () => step(1);

function paintPictures() {
  if (!state.pictures) return;
  const { values, side } = state.pictures;
  drawWeights($('layer'), values, side);
  const count = values.length / side / side;
  $('layer').setAttribute('aria-label', `Weights of the first layer: ${count} pictures`);
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  paintPictures();
  if (!pad.isEmpty) drawInk($('seen'), pad.image());
});

// ---- checkpoints ----

$('save').onclick = () => send({ kind: 'save' });

function download({ bytes, arch, epoch }) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
  link.download = `digits-${arch}-epoch-${epoch}.safetensors`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  tell('checkpoint-status', `Saved ${link.download}, ${Math.round(bytes.length / 1024)} KiB`);
}

$('load').onchange = async () => {
  const file = $('load').files[0];
  if (!file) return;
  tell('checkpoint-status', `Reading ${file.name}`);
  try {
    const bytes = new Uint8Array(await file.arrayBuffer());
    if (state.isRunning) $('run').click();
    send({ kind: 'load', bytes }, [bytes.buffer]);
  } catch (error) {
    receive.failed({ during: 'load', message: `${file.name}: ${error.message}` });
  }
  $('load').value = '';
};

// ---- doctor ----

$('doctor-run').onclick = () => {
  $('doctor-run').disabled = true;
  tell('doctor-status', `Examining the ${$('engine').value} engine`);
  // a worker of its own: a failure there does not end the training
  const worker = new Worker('worker.js', { type: 'module', name: 'doctor' });
  const finish = text => {
    worker.terminate();
    $('report').textContent = `${text}\nbrowser  ${navigator.userAgent}`;
    $('report').hidden = false;
    $('doctor-run').disabled = false;
    $('doctor-copy').disabled = false;
    tell('doctor-status', 'Done');
  };
  worker.onmessage = ({ data }) => finish(data.text ?? `FAILED   ${data.message}`);
  worker.onerror = event => finish(`FAILED   ${event.message}`);
  worker.postMessage({ kind: 'examine', engine: $('engine').value, seconds: DOCTOR_SECONDS });
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

// ---- watching ----

let lastTick = performance.now();
setInterval(() => {
  const now = performance.now();
  // a hidden tab's timers are slow on purpose
  if (!document.hidden) state.longestGap = Math.max(state.longestGap, now - lastTick);
  lastTick = now;
}, 10);
document.addEventListener('visibilitychange', () => { lastTick = performance.now(); });

setInterval(() => {
  $('longest-gap').textContent = `${Math.round(state.longestGap)} ms`;
  if (!state.isRunning || performance.now() - lastMessage < SILENCE) return;
  state.worker.terminate();
  const message = `There was no progress for ${SILENCE / 1000} seconds.`;
  receive.failed({ during: 'train', fatal: true, message });
}, 500);

// ---- start ----

async function start() {
  open();
  const [reason, last] = await Promise.all([webgpuReason(), kept().catch(() => null)]);
  const option = $('engine').querySelector('[value="webgpu"]');
  option.disabled = reason !== null;
  option.textContent = reason === null ? 'WebGPU' : 'WebGPU (not available)';
  if (reason !== null) {
    state.webgpuReason = reason;
    const note = document.createElement('p');
    note.className = 'note';
    note.id = 'webgpu-reason';
    note.textContent = reason;
    $('engine-note').after(note);
  }
  if (!last) return;
  alert(`There is a checkpoint of your last visit: ${describe(last)}`, [
    ['Go on from it', () => {
      state.checkpoint = last;
      open(last);
    }],
    ['Forget it', () => forget(last)],
  ], true);
}

start();
