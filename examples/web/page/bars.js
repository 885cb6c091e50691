// The probability of each digit as a bar.

import { $ } from './messages.js';
import { percent } from './words.js';

const bars = Array.from({ length: 10 }, (_, digit) => {
  const item = document.createElement('li');
  item.innerHTML = '<span></span><div class="track"><div class="bar"></div></div>'
    + '<span class="percent">–</span>';
  item.firstChild.textContent = digit;
  $('bars').append(item);
  return item;
});

/** Shows ten probabilities, or none if they are null; the most probable digit, or null. */
export function showBars(probabilities) {
  const best = probabilities && probabilities.indexOf(Math.max(...probabilities));
  $('answer').textContent = best ?? '–';
  bars.forEach((item, digit) => {
    const p = probabilities?.[digit];
    item.classList.toggle('best', digit === best);
    item.querySelector('.bar').style.width = `${100 * (p ?? 0)}%`;
    item.lastChild.textContent = p === undefined ? '–' : percent(p);
  });
  return best;
}
