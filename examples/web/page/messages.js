// Messages to the visitor: the alert, a question before progress is lost, and one live region, in
// which a screen reader hears of changes, one a second at most.

export const $ = id => document.getElementById(id);

const ANNOUNCE_EVERY = 1000; // milliseconds
const announcements = new Map(); // by source: a later one replaces an earlier one that waits
let timer = null;

/** Lets screen readers say `text` soon. */
export function announce(source, text) {
  announcements.delete(source);
  announcements.set(source, text);
  if (timer === null) announceNext();
}

function announceNext() {
  const [next] = announcements;
  timer = null;
  if (!next) return;
  announcements.delete(next[0]);
  $('live').textContent = next[1];
  timer = setTimeout(announceNext, ANNOUNCE_EVERY);
}

/** Writes a text that screen readers say as well. */
export function tell(id, text) {
  if ($(id).textContent === text) return;
  $(id).textContent = text;
  if (text) announce(id, text);
}

let alertKind = null;

/**
 * Shows an error or, with another kind, a question: `notice`, about a wait `silence`, or about a
 * network that is far worse than its checkpoint `worse`.
 * @param actions pairs of a label and a function
 */
export function alert(title, text, actions, kind = 'error') {
  alertKind = kind;
  $('alert-title').textContent = title;
  $('alert-text').textContent = text;
  $('alert').classList.toggle('notice', kind !== 'error');
  $('alert-actions').replaceChildren(...actions.map(([label, act], i) => {
    const button = document.createElement('button');
    button.textContent = label;
    if (i === 0) button.className = 'primary';
    button.onclick = () => {
      dismiss();
      act();
    };
    return button;
  }));
  $('alert').hidden = false;
}

/** Hides the alert, or only one of `kind`. */
export function dismiss(kind = alertKind) {
  if (kind !== alertKind || kind === null) return;
  // a focus on a button that vanishes would be at the start of the page
  if ($('alert').contains(document.activeElement)) {
    setTimeout(() => ($('run').disabled ? $('engine') : $('run')).focus());
  }
  $('alert').hidden = true;
  alertKind = null;
}

/** Asks before `action` loses progress; true if it may. */
export function ask(action, text) {
  const dialog = $('ask-dialog');
  $('ask-title').textContent = `${action}?`;
  $('ask-text').textContent = text;
  $('ask-confirm').textContent = action;
  dialog.returnValue = 'cancel';
  dialog.showModal();
  return new Promise(resolve => {
    dialog.onclose = () => resolve(dialog.returnValue === 'confirm');
  });
}
