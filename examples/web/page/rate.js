// The field of the learning rate.

import { $, announce } from './messages.js';

export const DEFAULT_LR = { mlp: 0.4, cnn: 0.01 };
const LR = { min: 0.0001, max: 10 };

/** The learning rate of the field; null if it is none. */
export function lr() {
  const value = $('lr').value === '' ? NaN : Number($('lr').value);
  return value >= LR.min && value <= LR.max ? value : null;
}

/** Says beside the field what is wrong with it; true if nothing is. */
export function checkLr() {
  const isRight = lr() !== null;
  $('lr').setAttribute('aria-invalid', !isRight);
  $('lr-error').hidden = isRight;
  const text = `The learning rate must be a number from ${LR.min} to ${LR.max}.`;
  $('lr-error').textContent = isRight ? '' : text;
  if (!isRight) announce('lr', text);
  return isRight;
}
