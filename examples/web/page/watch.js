// Watches the clock: how long the page's own thread paused, and how long the worker is silent.

import { $, alert } from './messages.js';

const WATCH_EVERY = 500; // milliseconds
const PATIENCE = 3000; // milliseconds after which the page says what it waits for

let lastTick = performance.now();
let lastSign = 0; // of life: a message of the worker, or the moment from which one is awaited
let isSaid = false; // the status says what is awaited

/** Measures the longest pause of this thread. */
export function measurePauses(state) {
  setInterval(() => {
    const now = performance.now();
    // a hidden tab's timers are slow on purpose
    if (!document.hidden) state.longestGap = Math.max(state.longestGap, now - lastTick);
    lastTick = now;
  }, 10);
  document.addEventListener('visibilitychange', () => { lastTick = performance.now(); });
}

/** Notes that the worker has answered, or is asked now; true if the page had said that it waits. */
export function signOfLife() {
  lastSign = performance.now();
  const wasSaid = isSaid;
  isSaid = false;
  return wasSaid;
}

/**
 * Says so if the worker is silent. The page does not end it: a long call answers later.
 * @param awaited returns what is awaited and its limit in milliseconds, or null
 * @param actions returns the ways out, as pairs of a label and a function
 */
export function watch(state, awaited, actions) {
  let last = performance.now();
  setInterval(() => {
    $('longest-gap').textContent = `${Math.round(state.longestGap)} ms`;
    const now = performance.now();
    // a computer that slept, or a hidden tab
    if (now - last > 10 * WATCH_EVERY) lastSign = now;
    last = now;
    const wait = awaited();
    const silence = now - lastSign;
    if (!wait || silence < Math.min(PATIENCE, wait.limit)) return;
    isSaid = true;
    const seconds = Math.floor(silence / 1000);
    $('status').textContent = `Waiting for ${wait.what}: ${seconds} s`;
    if (silence < wait.limit || !$('alert').hidden) return;
    alert(`There has been no answer for ${seconds} seconds.`,
      `The page still waits for ${wait.what}. This message goes away when it comes.`,
      [...actions(), ['Wait', signOfLife]], 'silence');
  }, WATCH_EVERY);
}
