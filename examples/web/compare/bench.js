// Trains one network with one library. The address names them:
//
//   bench.html?library=tfjs|teeny&engine=cpu|wasm|webgpu&epochs=N
//
// The result is the global variable `result`.

const [BATCH, LR, GOAL] = [64, 0.4, 0.9];
const options = new URLSearchParams(location.search);
const [library, engine] = [options.get('library'), options.get('engine')];
const epochs = Number(options.get('epochs'));

let dispatches = 0;
if (self.GPUComputePassEncoder) {
  for (const name of ['dispatchWorkgroups', 'dispatchWorkgroupsIndirect']) {
    const original = GPUComputePassEncoder.prototype[name];
    GPUComputePassEncoder.prototype[name] = function (...sizes) {
      dispatches += 1;
      return original.apply(this, sizes);
    };
  }
}

function script(path) {
  return new Promise((resolve, reject) => {
    const element = document.createElement('script');
    Object.assign(element, { src: path, onload: resolve, onerror: () => reject(Error(path)) });
    document.head.append(element);
  });
}

/** Ink from 0 to 1 and digits: the file that compare.py has written. */
async function digits() {
  const bytes = new Uint8Array(await (await fetch('digits.bin')).arrayBuffer());
  const [train, test, area] = [1437, 360, 784];
  const count = train + test;
  const ink = Float32Array.from(bytes.subarray(0, count * area), v => v / 255);
  const labels = bytes.subarray(count * area);
  const part = (from, to) => ({
    x: ink.subarray(from * area, to * area), labels: labels.subarray(from, to),
  });
  return { train: part(0, train), test: part(train, count) };
}

/** An epoch of steps, whose losses are read at its end, and the accuracy. */
async function tfjs() {
  await script('tfjs/tf.min.js');
  if (engine === 'wasm') {
    await script('tfjs/tf-backend-wasm.min.js');
    tf.wasm.setWasmPaths('tfjs/');
  }
  if (engine === 'webgpu') await script('tfjs/tf-backend-webgpu.min.js');
  if (!await tf.setBackend(engine)) throw Error(`no backend ${engine}`);
  await tf.ready();
  const { train, test } = await digits();
  const normal = shape => tf.variable(tf.randomNormal(shape, 0, 0.02));
  const [w1, b1] = [normal([784, 128]), tf.variable(tf.zeros([128]))];
  const [w2, b2] = [normal([128, 10]), tf.variable(tf.zeros([10]))];
  const optimizer = tf.train.sgd(LR);
  const logits = x => x.matMul(w1).add(b1).relu().matMul(w2).add(b2);
  const hot = labels => {
    const rows = new Float32Array(10 * labels.length);
    labels.forEach((digit, i) => { rows[10 * i + digit] = 1; });
    return tf.tensor2d(rows, [labels.length, 10]);
  };
  const x = tf.tensor2d(test.x, [360, 784]);
  const y = tf.tensor1d(Int32Array.from(test.labels), 'int32');
  const order = Array.from(train.labels, (_, i) => i);
  const steps = () => {
    tf.util.shuffle(order);
    const losses = [];
    for (let from = 0; from < order.length; from += BATCH) {
      const rows = order.slice(from, from + BATCH);
      const ink = new Float32Array(rows.length * 784);
      rows.forEach((row, i) => ink.set(train.x.subarray(row * 784, (row + 1) * 784), i * 784));
      losses.push(tf.tidy(() => {
        const images = tf.tensor2d(ink, [rows.length, 784]);
        const targets = hot(rows.map(row => train.labels[row]));
        return optimizer.minimize(
          () => tf.losses.softmaxCrossEntropy(targets, logits(images)), true);
      }));
    }
    return losses;
  };
  return {
    async epoch() {
      const losses = steps();
      const joined = tf.stack(losses);
      await joined.data();
      tf.dispose([losses, joined]);
    },
    async accuracy() {
      const right = tf.tidy(() => logits(x).argMax(1).equal(y).sum());
      const [count] = await right.data();
      right.dispose();
      return count / 360;
    },
  };
}

async function teeny() {
  const { default: init, Session } = await import('./pkg/web.js');
  await init();
  const session = await Session.open(engine === 'wasm' ? 'cpu' : engine, 'mlp', LR);
  return { epoch: () => session.steps(23), accuracy: () => session.accuracy() };
}

async function measure() {
  const start = performance.now();
  const run = await { tfjs, teeny }[library]();
  const ready = performance.now() - start;
  let toGoal = null; // seconds of training and testing, first compilations included
  const times = [];
  let spent = 0;
  let accuracy = 0;
  let launches = 0;
  for (let epoch = 0; epoch < epochs || (toGoal === null && epoch < 4 * epochs); epoch++) {
    const before = performance.now();
    dispatches = 0;
    await run.epoch();
    launches = dispatches / 23;
    times.push((performance.now() - before) / 23);
    accuracy = await run.accuracy();
    spent += performance.now() - before;
    if (toGoal === null && accuracy >= GOAL) toGoal = { seconds: spent / 1000, epoch: epoch + 1 };
    await new Promise(resolve => setTimeout(resolve));
  }
  const warm = times.slice(2).sort((a, b) => a - b);
  return {
    ready, first: times[0], least: warm[0], median: warm[warm.length >> 1], toGoal, accuracy,
    launches,
  };
}

measure().then(
  result => { window.result = result; },
  error => { window.result = { error: `${error?.stack ?? error}` }; },
);
