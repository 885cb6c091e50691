// Runs the tasks of the example `node`, built for wasm32-unknown-unknown, in node.
//
//   node run.mjs MODULE.wasm suite | fuzz CASES | oneop CASES
//   node run.mjs MODULE.wasm bench [PROGRAM]      PROGRAM: the example, built for this machine
//
// The exit status is 0 if the task has succeeded. `bench PROGRAM` runs both in turns, on one thread,
// and prints the ratios of the shortest times.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

const [path, task, argument] = process.argv.slice(2);
const usage = 'usage: node run.mjs MODULE.wasm suite | fuzz CASES | oneop CASES | bench [PROGRAM]';
if (!task) {
    console.error(usage);
    process.exit(2);
}
const { instance } = await WebAssembly.instantiate(readFileSync(path), {});
const module = instance.exports;

/** The report of the last call; after a panic, its message. */
function report() {
    const bytes = new Uint8Array(module.memory.buffer, module.report_start(), module.report_len());
    return new TextDecoder().decode(bytes);
}

/** The result of `call`. A panic ends the program with its message. */
function guard(call) {
    try {
        return call();
    } catch (error) {
        console.error(`${report()}\n${error.stack}`);
        process.exit(1);
    }
}

/** The times of each workload in milliseconds by its name: the shortest, and the median. */
function wasmTimes() {
    const times = new Map();
    for (let i = 0; guard(() => module.prepare(i)); i += 1) {
        const name = report();
        const samples = [];
        const begin = performance.now();
        while (samples.length < 20 || performance.now() - begin < 500) {
            const start = performance.now();
            guard(module.work);
            samples.push(performance.now() - start);
        }
        samples.sort((a, b) => a - b);
        times.set(name, [samples[0], samples[samples.length >> 1]]);
    }
    return times;
}

/** The same of the native program, at the lowest instruction level unless the caller sets one. */
function nativeTimes(program) {
    const env = { TEENY_CPU_LEVEL: 'portable', RAYON_NUM_THREADS: '1', ...process.env };
    const { status, stdout } = spawnSync(program, ['bench'], { env, encoding: 'utf8' });
    if (status !== 0) {
        throw new Error(`${program} bench: status ${status}`);
    }
    const lines = stdout.trim().split('\n').map((line) => line.split('\t'));
    return new Map(lines.map(([name, ...times]) => [name, times.map(Number)]));
}

function bench(program) {
    const kinds = { wasm: wasmTimes, ...(program && { native: () => nativeTimes(program) }) };
    const best = {};
    for (let round = 0; round < 3; round += 1) {
        for (const [kind, measure] of Object.entries(kinds)) {
            best[kind] ??= new Map();
            for (const [name, times] of measure()) {
                const old = best[kind].get(name) ?? times;
                best[kind].set(name, times.map((time, i) => Math.min(time, old[i])));
            }
        }
    }
    const text = (times) => times.map((time) => time.toFixed(4)).join(' / ');
    console.log('milliseconds, shortest / median, the best of 3 rounds');
    for (const [name, wasm] of best.wasm) {
        const native = best.native?.get(name);
        const rest = native
            ? `   native ${text(native)}   ratio ${(wasm[0] / native[0]).toFixed(2)}`
            : '';
        console.log(`${name.padEnd(42)} wasm ${text(wasm)}${rest}`);
    }
}

const cases = Number(argument);
let passed = 1;
if (task === 'suite') {
    passed = guard(module.run_suite);
    console.log(report());
} else if (task === 'fuzz' && cases > 0) {
    passed = guard(() => module.run_fuzz(cases));
    console.log(report());
} else if (task === 'oneop' && cases > 0) {
    passed = guard(() => module.run_oneop(cases));
    console.log(report());
} else if (task === 'bench') {
    bench(argument);
} else {
    console.error(usage);
    process.exit(2);
}
process.exit(passed ? 0 : 1);
