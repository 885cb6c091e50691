// The page: controls, plots and messages. It computes nothing itself; the worker does.

import { Pad, drawInk, drawWeights } from './pad.js';
import { showBars } from './bars.js';
import { Plot } from './plot.js';
import { download } from './download.js';
import { keep, kept, forget } from './keep.js';
import { $, alert, announce, ask, dismiss, tell } from './messages.js';
import { DEFAULT_LR, checkLr, lr } from './rate.js';
import {
  CHECKPOINT_NOTE, PAD_NOTE, describe, engineName, explain, keptText, layerText, percent,
} from './words.js';
import { measurePauses, signOfLife, watch } from './watch.js';
import { webgpuReason } from './webgpu.js';
import './doctor.js';

const KEEP_EVERY = 2000; // milliseconds between two checkpoints in the database

/** What the page knows; `window.teenyPage` for tests and the curious. */
const state = {
  worker: null,
  isOpening: false,
  isReady: false,
  isRunning: false,
  isBroken: false, // the weights are no longer numbers
  isWorse: false, // far worse than the checkpoint, and the page has said so
  namesRun: false,
  namesStep: 0,
  engine: 'cpu',
  arch: 'mlp',
  epoch: 0,
  step: 0,
  accuracy: null,
  testImages: 0,
  testImage: -1,
  checkpoint: null, // { bytes, arch, epoch, step, lr, accuracy }
  longestGap: 0,
  // milliseconds without an answer after which the page says so: in the first step the browser
  // compiles programs for the GPU, which takes minutes on some machines
  limits: { answer: 30_000, first: 240_000 },
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
const say = text => tell('status', text);
const close = () => ['Close', () => {}];

// ---- the worker ----

const isFirst = { digits: true, names: true }; // no step since something was opened
let lastKept = 0;
let rate = null; // { step, time } of the last figure

function send(message, transfer = []) {
  state.worker?.postMessage(message, transfer);
}

/** Starts a worker on the chosen engine, from a checkpoint if there is one. */
function open(checkpoint = null) {
  state.worker?.terminate();
  state.isReady = state.isRunning = state.namesRun = state.isBroken = predicting = false;
  state.isOpening = true;
  isFirst.digits = isFirst.names = true;
  state.namesStep = 0;
  state.engine = $('engine').value;
  const worker = new Worker('worker.js', { type: 'module', name: 'training' });
  state.worker = worker;
  worker.onmessage = event => {
    if (state.worker !== worker) return;
    dismiss('silence');
    if (signOfLife()) sayState();
    receive[event.data.kind](event.data);
  };
  worker.onerror = event => {
    event.preventDefault();
    if (state.worker !== worker) return;
    worker.terminate();
    const isMissing = event.message === undefined;
    const message = event.message ?? 'The file worker.js, or one that it needs, is missing.';
    const [cause, during] = isMissing ? ['library', 'open'] : ['panic', 'train'];
    receive.failed({ message, report: message, cause, during, fatal: true });
  };
  signOfLife();
  sayState();
  const arch = checkpoint?.arch ?? $('arch').value;
  const rate = lr() ?? DEFAULT_LR[arch];
  send({ kind: 'open', engine: state.engine, arch, lr: rate, checkpoint: checkpoint?.bytes });
  update();
}

const receive = {
  ready(message) {
    state.isReady = true;
    state.isOpening = false;
    state.testImages = message.testImages;
    $('known-names').textContent = message.knownNames;
    $('engine-note').textContent = message.description;
    if ($('ready-time').textContent === '–') {
      $('ready-time').textContent = `${Math.round(performance.now())} ms`;
    }
    $('names-status').textContent = 'Not started';
    adopt(message);
    sayState();
    predict();
  },
  reset(message) {
    adopt(message);
    state.checkpoint = null;
    $('checkpoint-note').textContent = CHECKPOINT_NOTE;
    sayState();
    predict();
  },
  loaded(message) {
    state.isRunning = false;
    adopt(message);
    sayState();
    if (!message.isReturn) tell('checkpoint-status', `Loaded: ${describe(message)}`);
    predict();
  },
  progress({ losses, step, epoch, accuracy }) {
    if (losses.length > 0) isFirst.digits = false;
    losses.forEach((loss, i) => plots.loss.add(step - losses.length + 1 + i, loss));
    if (losses.length > 0) $('loss').textContent = losses.at(-1).toPrecision(3);
    plots.accuracy.extend(step);
    state.step = step;
    state.epoch = epoch;
    if (accuracy !== undefined) {
      state.accuracy = accuracy;
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
    tell('pad-note', `Test image ${index + 1} of ${state.testImages}: a ${digit}`);
    pad.show(pixels);
  },
  names({ step, loss, names }) {
    isFirst.names = false;
    state.namesStep = step;
    if (!state.namesRun) return;
    // not said to screen readers: it changes all the time
    $('names-status').textContent = `Step ${step}, loss ${loss.toFixed(2)}`;
    if (!names) return;
    $('names-empty').hidden = true;
    $('names-list').hidden = false;
    $('names-list').replaceChildren(...names.map(name => {
      const item = document.createElement('li');
      item.textContent = name;
      return item;
    }));
  },
  checkpoint({ reason, bytes, arch, epoch, step, lr, accuracy }) {
    const checkpoint = { bytes, arch, epoch, step, lr, accuracy };
    state.accuracy = accuracy;
    figures();
    if (reason === 'save') download(checkpoint);
    if (reason !== 'load' && accuracy < state.checkpoint?.accuracy / 2) {
      sayWorse(lr);
    } else {
      state.isWorse = false;
      dismiss('worse');
      state.checkpoint = checkpoint;
      $('checkpoint-note').textContent = keptText(checkpoint);
    }
    if (reason !== 'epoch' || performance.now() - lastKept > KEEP_EVERY) {
      lastKept = performance.now();
      keep(state.checkpoint).catch(error => {
        tell('checkpoint-status', `The browser cannot keep the checkpoint: ${error.message}`);
      });
    }
    update();
  },
  failed(failure) {
    const { fatal, during, cause, report } = failure;
    console.warn(report);
    const text = explain(failure);
    predicting = false;
    if (during === 'load' && !fatal) {
      tell('checkpoint-status', '');
      return alert('The file was not loaded; nothing has changed.', text, [close()]);
    }
    if (during === 'restore') {
      forget(state.checkpoint).catch(() => {});
      state.checkpoint = null;
      return alert('The checkpoint cannot be used; the training starts anew.', text, [close()]);
    }
    const isLost = during === 'open' || fatal;
    const hasStopped = isLost || during === 'train' || cause === 'diverged';
    if (hasStopped) state.isRunning = false;
    if (isLost || during === 'names') state.namesRun = false;
    if (isLost) state.isReady = state.isOpening = false;
    if (during === 'open') $('engine-note').textContent = '\u00a0'; // keeps its line
    if (cause === 'diverged') state.isBroken = true;
    update();
    if (hasStopped) say('Stopped');
    let title = hasStopped ? 'The training has stopped.' : 'The last action has failed.';
    if (during === 'names') title = 'The network for names has stopped.';
    if (during === 'open') title = `The ${engineName(state.engine)} cannot be used.`;
    if (cause === 'library') title = 'The page cannot be loaded.';
    alert(title, text, recovery(failure));
  },
};

/** The state of a run that the worker has begun or loaded. */
function adopt({ arch, epoch, step, lr, accuracy, parameters }) {
  Object.assign(state, { arch, epoch, step, accuracy: accuracy ?? null });
  state.isBroken = state.isWorse = false;
  dismiss('worse');
  isFirst.digits = true;
  rate = null;
  $('arch').value = arch;
  $('lr').value = lr;
  checkLr();
  $('loss').textContent = $('rate').textContent = '–';
  $('layer-note').textContent = layerText(arch, parameters);
  plots.loss.clear();
  plots.accuracy.clear();
  plots.accuracy.extend(step);
  plots.loss.extend(step);
  if (accuracy !== undefined) plots.accuracy.add(step, accuracy);
  figures();
  update();
}

/** The ways out of an error. */
function recovery({ fatal, during, cause, lr }) {
  const { checkpoint } = state;
  if (cause === 'library') return [['Try again', () => open(checkpoint)]];
  if (cause === 'diverged') return wayBack(lr);
  if (during !== 'open' && !fatal) return [close()];
  return restarts();
}

/** Buttons that open an engine anew. */
function restarts() {
  const { checkpoint } = state;
  const restart = engine => {
    const name = engineName(engine);
    const without = engine === state.engine ? `Try the ${name} again` : `Use the ${name}`;
    const label = checkpoint ? `Continue with the ${name} from epoch ${checkpoint.epoch}` : without;
    return [label, () => {
      $('engine').value = engine;
      open(checkpoint);
    }];
  };
  return state.engine === 'webgpu' ? [restart('webgpu'), restart('cpu')] : [restart('cpu')];
}

/** Buttons that leave a run whose weights are no longer numbers, reached with `divergedLr`. */
function wayBack(divergedLr) {
  const { checkpoint } = state;
  const startOver = ['Start over', () => reset(DEFAULT_LR[state.arch])];
  if (!checkpoint) return [startOver];
  const { step, accuracy, arch, bytes } = checkpoint;
  const tested = accuracy == null ? '' : `, ${percent(accuracy)}`;
  const lr = checkpoint.lr === divergedLr ? DEFAULT_LR[arch] : checkpoint.lr;
  return [[`Go back to step ${step}${tested}`, () => {
    send({ kind: 'load', bytes, lr, isReturn: true });
  }], startOver];
}

/** Says once that the network is far worse than its checkpoint, which the page keeps. */
function sayWorse(lr) {
  if (state.isWorse || !$('alert').hidden) return;
  state.isWorse = true;
  const { step, accuracy } = state.checkpoint;
  alert('The network has become far worse.', `It reads ${percent(state.accuracy)} of the test`
    + ` images. At step ${step} it read ${percent(accuracy)}: the page keeps that checkpoint. The`
    + ' usual cause is too high a learning rate.', [wayBack(lr)[0], ['Go on', () => {}]], 'worse');
}

// ---- figures and buttons ----

/** What happens, in a word. */
function sayState() {
  const { isOpening, isReady, isRunning, step } = state;
  if (!isReady && !isOpening) say('Stopped');
  else if (!isReady) say(state.engine === 'webgpu' ? 'Opening the GPU…' : 'Loading…');
  else say(isRunning ? 'Training' : step > 0 ? 'Paused' : 'Ready');
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
  const { isReady, isRunning, namesRun, isBroken } = state;
  for (const id of ['run', 'reset', 'names-run', 'save', 'load', 'previous', 'next']) {
    $(id).disabled = !isReady || (isBroken && (id === 'run' || id === 'save'));
  }
  $('run').textContent = isRunning ? 'Pause' : state.step > 0 ? 'Continue' : 'Start';
  $('names-run').textContent = namesRun ? 'Pause' : state.namesStep > 0 ? 'Continue' : 'Start';
  document.documentElement.dataset.state = !isReady ? 'loading' : isRunning ? 'running' : 'ready';
}

// ---- controls ----

$('run').onclick = () => {
  if (!state.isRunning && !checkLr()) return $('lr').focus();
  state.isRunning = !state.isRunning;
  signOfLife();
  send({ kind: 'run', digits: state.isRunning });
  sayState();
  rate = null;
  update();
};

function reset(rate = lr() ?? DEFAULT_LR[$('arch').value]) {
  state.isRunning = false;
  signOfLife();
  send({ kind: 'reset', arch: $('arch').value, lr: rate });
  update();
}

/** True if there is no progress to lose, or the visitor agrees to `action`, with its `effect`. */
async function mayLose(action, effect) {
  if (state.step === 0) return true;
  const accuracy = state.accuracy === null ? '' : ` It reads ${percent(state.accuracy)} of the test`
    + ' images.';
  return ask(action, `The network has learned for ${state.step} steps.${accuracy} ${effect}`
    + ' Save it to a file before, if you want to keep it.');
}
const mayReset = () => mayLose('Start over', 'Starting over gives it random weights again.');
const mayLoad = from => mayLose(`Load the ${from}`, `The network of the ${from} replaces it.`);

$('reset').onclick = async () => {
  if (await mayReset()) reset();
};
$('arch').onchange = async () => {
  if (await mayReset()) reset(DEFAULT_LR[$('arch').value]);
  else $('arch').value = state.arch;
};
$('lr').onchange = () => {
  if (checkLr()) send({ kind: 'lr', lr: lr() });
};
$('lr').oninput = () => {
  // what is typed begins with numbers that are not meant: only a right one is looked at
  if (lr() !== null) $('lr').onchange();
};
$('engine').onchange = () => {
  // a run continues on the other engine
  open(state.step > 0 ? state.checkpoint : null);
};
$('names-run').onclick = () => {
  state.namesRun = !state.namesRun;
  signOfLife();
  send({ kind: 'run', names: state.namesRun });
  $('names-status').textContent = state.namesRun ? 'Training' : 'Paused';
  announce('names', `The network for names ${state.namesRun ? 'learns' : 'is paused'}`);
  update();
};

// ---- drawing and prediction ----

let predicting = false;
let predictAgain = false;

/** One prediction is on its way at a time; a change meanwhile asks again. */
function predict() {
  predictAgain = predicting;
  if (predicting || !state.isReady || pad.isEmpty) return;
  if (!predicting) signOfLife();
  predicting = true;
  const image = pad.image();
  drawInk($('seen'), image);
  send({ kind: 'predict', image });
}

function showPrediction(probabilities) {
  if (pad.isEmpty) return;
  const best = showBars(probabilities.every(Number.isFinite) ? probabilities : null);
  if (best !== null && best !== state.prediction) announce('answer', `The network reads ${best}`);
  state.prediction = best;
}

const pad = new Pad($('pad'), $('pad-cursor'), () => {
  $('pad-hint').hidden = !pad.isEmpty;
  if (!pad.isEmpty) return predict();
  $('pad-note').textContent = PAD_NOTE;
  drawInk($('seen'), new Float32Array(784));
  state.prediction = showBars(null);
}, text => announce('pad', text));

$('clear').onclick = () => pad.clear();
const step = by => {
  const index = (state.testImage + by + state.testImages) % state.testImages;
  send({ kind: 'testImage', index });
};
$('previous').onclick = () => step(state.testImage < 0 ? 0 : -1);
$('next').onclick = () => step(1);

function paintPictures() {
  if (!state.pictures) return;
  $('layer-empty').hidden = true;
  $('layer').hidden = false;
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

$('load').onchange = async () => {
  const file = $('load').files[0];
  $('load').value = ''; // the same file may be chosen again
  if (!file || !await mayLoad('file')) return;
  tell('checkpoint-status', `Reading ${file.name}`);
  try {
    const bytes = new Uint8Array(await file.arrayBuffer());
    signOfLife();
    send({ kind: 'load', bytes }, [bytes.buffer]);
  } catch (error) {
    const message = `${file.name} could not be read (${error.message})`;
    receive.failed({ during: 'load', message, report: message });
  }
};

// ---- watching ----

/** What the page waits for and how long it may take; null if for nothing. */
function awaited() {
  const { limits, isOpening, isReady, isRunning, namesRun, engine } = state;
  if (isOpening) return { what: `the ${engineName(engine)}`, limit: limits.first };
  if (!isReady) return null;
  const runs = [isRunning && 'digits', namesRun && 'names'].filter(Boolean);
  if (runs.some(run => isFirst[run])) {
    const why = engine === 'webgpu' ? ', for which the browser prepares the GPU' : '';
    return { what: `the first step${why}`, limit: limits.first };
  }
  if (runs.length > 0) return { what: 'the next step', limit: limits.answer };
  return predicting ? { what: 'the answer', limit: limits.first } : null;
}

measurePauses(state);
watch(state, awaited, restarts);

// ---- start ----

async function start() {
  open();
  const [reason, last] = await Promise.all([webgpuReason(), kept().catch(() => null)]);
  const option = $('engine').querySelector('[value="webgpu"]');
  option.disabled = reason !== null;
  option.textContent = reason === null ? 'GPU (WebGPU)' : 'GPU (not available)';
  if (reason !== null) {
    state.webgpuReason = reason;
    const note = document.createElement('p');
    note.className = 'note';
    note.id = 'webgpu-reason';
    note.textContent = reason;
    $('engine-note').after(note);
  }
  if (!last) return;
  // an error that is shown already is more important
  if ($('alert').hidden) offer(last);
}

/** Offers the checkpoint of the last visit. */
function offer(last) {
  const text = `There is a checkpoint of your last visit: ${describe(last)}.`;
  alert('Continue where you were?', text, [
    ['Continue from it', async () => {
      // the training may have begun meanwhile
      if (!await mayLoad('checkpoint')) return offer(last);
      state.checkpoint = last;
      open(last);
    }],
    ['Forget it', () => forget(last)],
    ['Not now', () => {}],
  ], 'notice');
}

$('pad-note').textContent = PAD_NOTE;
$('checkpoint-note').textContent = CHECKPOINT_NOTE;
start();
