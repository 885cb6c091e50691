// The worker: opens an engine, trains, and answers the page's messages in between.
//
// Calls of the library come one after another: messages wait in a queue until the current call has
// ended. A call takes some milliseconds (BUDGET), then the loop gives way to the event loop, by a
// MessageChannel, because a timer would cost 4 ms each time.

import { load } from './library.js';
import { engineText } from './words.js';

const BUDGET = { cpu: 8, webgpu: 50 }; // milliseconds of training between two looks at the queue
const REPORT_EVERY = 40; // milliseconds between two messages about progress
const PICTURES_EVERY = 700;
const CHECKPOINT_EVERY = 500;
const NAMES_EVERY = 1000;
const NAMES = 12;
const SPARE_NAMES = 4; // in place of empty ones, which a network makes up in its first steps
const MAX_LOSS = 1000; // beyond it a run has diverged: that of random answers is 2.3

const queue = [];
let wake = () => {};
let library = null;
let session = null;
let engine = 'cpu';
const running = { digits: false, names: false };
let losses = []; // of steps that the page does not know
let last = { report: 0, pictures: 0, checkpoint: 0, names: 0 };

const channel = new MessageChannel();
const turns = [];
channel.port1.onmessage = () => turns.shift()();

/** Gives way to the event loop once. */
function turn() {
  return new Promise(resolve => {
    turns.push(resolve);
    channel.port2.postMessage(0);
  });
}

self.onmessage = event => {
  queue.push(event.data);
  wake();
};

/** True once `interval` ms have passed since it was last true for `what`. */
function due(what, interval) {
  const now = performance.now();
  if (now - last[what] < interval) return false;
  last[what] = now;
  return true;
}

/** Why a call has failed, as far as the page reacts to it. */
function causeOf({ name, message }, during) {
  if (name === 'LoadError') return 'library';
  // a read may fail before the browser says that the GPU is lost
  if (/GPU was lost|reading from the GPU failed/i.test(message)) return 'lost';
  const isOfRun = !['load', 'restore', 'names'].includes(during);
  if (isOfRun && /^loss is |not finite numbers/.test(message)) return 'diverged';
  return null;
}

/** Tells the page. A run ends if one of its steps has failed, or nothing can be computed. */
function fail(error, during) {
  const Trap = globalThis.WebAssembly?.RuntimeError;
  const trapped = Trap !== undefined && error instanceof Trap;
  const { name } = error;
  const message = trapped ? self.panicText ?? error.message : error.message ?? String(error);
  const cause = trapped ? 'panic' : causeOf({ name, message }, during);
  const fatal = trapped || cause === 'lost';
  if (fatal || cause === 'diverged' || during === 'train') running.digits = false;
  if (fatal || during === 'names') running.names = false;
  const lr = cause === 'diverged' ? JSON.parse(session.state()).lr : undefined;
  const report = error.report ?? message;
  postMessage({ kind: 'failed', during, name, message, report, cause, fatal, lr });
}

async function sendPictures() {
  const pictures = await session.pictures();
  const { values, side } = pictures;
  pictures.free();
  postMessage({ kind: 'pictures', values, side }, [values.buffer]);
}

async function sendCheckpoint(reason, known) {
  const bytes = await session.save();
  const accuracy = known ?? await session.accuracy();
  const state = JSON.parse(session.state());
  postMessage({ kind: 'checkpoint', reason, bytes, accuracy, ...state }, [bytes.buffer]);
}

function sendState(kind) {
  postMessage({ kind, ...JSON.parse(session.state()) });
}

async function trainDigits() {
  const progress = await session.train(BUDGET[engine]);
  const { step, epoch, accuracy } = progress;
  const taken = progress.losses;
  losses.push(...taken);
  progress.free();
  const bad = taken.findIndex(loss => loss > MAX_LOSS);
  if (bad >= 0) {
    const place = step - taken.length + bad;
    throw new Error(`loss is ${taken[bad].toExponential(0)} at step ${place}`);
  }
  if (accuracy !== undefined || due('report', REPORT_EVERY)) {
    postMessage({ kind: 'progress', losses, step, epoch, accuracy });
    losses = [];
  }
  if (accuracy !== undefined && due('checkpoint', CHECKPOINT_EVERY)) {
    await sendCheckpoint('epoch', accuracy);
  }
  if (due('pictures', PICTURES_EVERY)) await sendPictures();
}

async function trainNames() {
  const progress = await session.train_names(BUDGET[engine]);
  const { step } = progress;
  const loss = progress.losses.at(-1);
  progress.free();
  const message = { kind: 'names', step, loss };
  if (due('names', NAMES_EVERY)) {
    const names = await session.sample_names(NAMES + SPARE_NAMES);
    message.names = names.filter(Boolean).slice(0, NAMES);
  }
  postMessage(message);
}

/** The adapter that the browser offers first; the library does not know its name. */
async function adapterOf(name) {
  if (name !== 'webgpu') return null;
  const info = (await navigator.gpu?.requestAdapter())?.info ?? {};
  const names = [info.vendor, info.architecture, info.device, info.description].filter(Boolean);
  return { names, isFallback: info.isFallbackAdapter === true };
}

const handlers = {
  async open(message) {
    engine = message.engine;
    library = await load();
    session = await library.Session.open(engine, message.arch, message.lr);
    let isRestored = false;
    try {
      if (message.checkpoint) session.load(message.checkpoint);
      isRestored = Boolean(message.checkpoint);
    } catch (error) {
      fail(error, 'restore');
    }
    const state = JSON.parse(session.state());
    postMessage({
      kind: 'ready',
      description: engineText(engine, session.description(), await adapterOf(engine)),
      testImages: session.test_images(),
      knownNames: session.known_names(),
      accuracy: isRestored ? await session.accuracy() : undefined,
      ...state,
    });
    await sendPictures();
  },
  async run({ digits, names }) {
    if (digits !== undefined) running.digits = digits;
    if (names !== undefined) running.names = names;
    if (digits === false) {
      postMessage({ kind: 'progress', losses, ...JSON.parse(session.state()) });
      losses = [];
      await sendCheckpoint('pause');
      await sendPictures();
    }
  },
  async reset({ arch, lr }) {
    running.digits = false;
    losses = [];
    session.reset(arch, lr);
    sendState('reset');
    await sendPictures();
  },
  async lr({ lr }) {
    session.set_lr(lr);
  },
  async predict({ image }) {
    const probabilities = await session.predict(image);
    postMessage({ kind: 'prediction', probabilities });
  },
  async testImage({ index }) {
    const bytes = session.test_image(index);
    postMessage({ kind: 'testImage', index, pixels: bytes.subarray(0, 784), digit: bytes[784] });
  },
  async save() {
    await sendCheckpoint('save');
  },
  async load({ bytes, lr, isReturn }) {
    session.load(bytes);
    if (lr !== undefined) session.set_lr(lr);
    running.digits = false;
    losses = [];
    const accuracy = await session.accuracy();
    postMessage({ kind: 'loaded', isReturn, accuracy, ...JSON.parse(session.state()) });
    await sendCheckpoint('load', accuracy);
    await sendPictures();
  },
  async examine(message) {
    const { examine } = await load();
    const text = await examine(message.engine, message.seconds, turn);
    const adapter = await adapterOf(message.engine);
    const used = adapter ? `\nadapter  ${adapter.names.join(', ')}` : '';
    postMessage({ kind: 'report', text: text + used });
  },
};

const RUNS = [['digits', trainDigits, 'train'], ['names', trainNames, 'names']];

async function work() {
  for (;;) {
    while (queue.length > 0) {
      const message = queue.shift();
      try {
        const needsSession = message.kind !== 'open' && message.kind !== 'examine';
        // after an engine that cannot be opened, only another one can be asked for
        if (needsSession && !session) continue;
        await handlers[message.kind](message);
      } catch (error) {
        fail(error, message.kind);
      }
    }
    if (!running.digits && !running.names) {
      await new Promise(resolve => { wake = resolve; });
      continue;
    }
    for (const [run, train, during] of RUNS) {
      try {
        if (running[run]) await train();
      } catch (error) {
        fail(error, during);
      }
    }
    await turn();
  }
}

work();
