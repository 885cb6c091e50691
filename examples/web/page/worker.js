// The worker: opens an engine, trains, and answers the page's messages in between.
//
// Calls of the library come one after another: messages wait in a queue until the current call has
// ended. A call takes some milliseconds (BUDGET), then the loop gives way to the event loop, by a
// MessageChannel, because a timer would cost 4 ms each time.

import init, { Session, examine } from './pkg/web.js';

const BUDGET = { cpu: 8, webgpu: 50 }; // milliseconds of training between two looks at the queue
const REPORT_EVERY = 40; // milliseconds between two messages about progress
const PICTURES_EVERY = 700;
const CHECKPOINT_EVERY = 500;
const NAMES_EVERY = 1000;
const NAMES = 12;

const queue = [];
let wake = () => {};
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
  if (event.data.kind === 'ping') return postMessage({ kind: 'pong' });
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

function fail(error, during) {
  running.digits = running.names = false;
  const trapped = error instanceof WebAssembly.RuntimeError;
  const message = trapped ? self.panicText ?? error.message : error.message ?? String(error);
  postMessage({ kind: 'failed', during, message, fatal: trapped || /GPU was lost/.test(message) });
}

async function sendPictures() {
  const pictures = await session.pictures();
  const { values, side } = pictures;
  pictures.free();
  postMessage({ kind: 'pictures', values, side }, [values.buffer]);
}

async function sendCheckpoint(reason) {
  const bytes = await session.save();
  const state = JSON.parse(session.state());
  postMessage({ kind: 'checkpoint', reason, bytes, ...state }, [bytes.buffer]);
}

function sendState(kind) {
  postMessage({ kind, ...JSON.parse(session.state()) });
}

async function trainDigits() {
  const progress = await session.train(BUDGET[engine]);
  const { step, epoch, accuracy } = progress;
  losses.push(...progress.losses);
  progress.free();
  if (accuracy !== undefined || due('report', REPORT_EVERY)) {
    postMessage({ kind: 'progress', losses, step, epoch, accuracy });
    losses = [];
  }
  if (accuracy !== undefined && due('checkpoint', CHECKPOINT_EVERY)) await sendCheckpoint('epoch');
  if (due('pictures', PICTURES_EVERY)) await sendPictures();
}

async function trainNames() {
  const progress = await session.train_names(BUDGET[engine]);
  const { step } = progress;
  const loss = progress.losses.at(-1);
  progress.free();
  const message = { kind: 'names', step, loss };
  if (due('names', NAMES_EVERY)) message.names = await session.sample_names(NAMES);
  postMessage(message);
}

/** The engine in words. WebGPU's adapter is known to the browser, not to the library. */
async function describe(name, text) {
  if (name !== 'webgpu') return text;
  const { info } = await navigator.gpu.requestAdapter();
  const names = [info.vendor, info.architecture, info.device, info.description].filter(Boolean);
  return `WebGPU: ${names.join(', ') || 'an adapter without a name'}`
    + (info.isFallbackAdapter ? ' (emulated by the CPU)' : '');
}

const handlers = {
  async open(message) {
    engine = message.engine;
    await init();
    session = await Session.open(engine, message.arch, message.lr);
    if (message.checkpoint) session.load(message.checkpoint);
    const state = JSON.parse(session.state());
    postMessage({
      kind: 'ready',
      description: await describe(engine, session.description()),
      testImages: session.test_images(),
      knownNames: session.known_names(),
      accuracy: message.checkpoint ? await session.accuracy() : undefined,
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
  async load({ bytes }) {
    session.load(bytes);
    losses = [];
    const accuracy = await session.accuracy();
    postMessage({ kind: 'loaded', accuracy, ...JSON.parse(session.state()) });
    await sendCheckpoint('load');
    await sendPictures();
  },
  async examine(message) {
    await init();
    const text = await examine(message.engine, message.seconds, turn);
    const used = await describe(message.engine, '');
    postMessage({ kind: 'report', text: used ? `${text}\nadapter  ${used}` : text });
  },
};

async function work() {
  for (;;) {
    while (queue.length > 0) {
      const message = queue.shift();
      try {
        await handlers[message.kind](message);
      } catch (error) {
        fail(error, message.kind);
      }
    }
    if (!running.digits && !running.names) {
      await new Promise(resolve => { wake = resolve; });
      continue;
    }
    try {
      if (running.digits) await trainDigits();
      if (running.names) await trainNames();
    } catch (error) {
      fail(error, 'train');
    }
    await turn();
  }
}

work();
