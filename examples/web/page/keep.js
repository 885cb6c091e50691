// The last checkpoint of each tab in the browser's database, for the next visit. A transaction is
// written as a whole or not at all, so a page that is closed meanwhile leaves the earlier one.
//
// A tab has a key in its session storage, which a reload keeps, and a lock of that name as long as
// it is open. A duplicated tab has a copy of the key: it finds the lock taken and chooses another.

const STORE = 'checkpoints';
const MAX_RECORDS = 4; // of closed tabs
const PREFIX = 'teeny-tab-';
const RELOAD = 500; // milliseconds in which the lock of a page before a reload is released

/** The key of this tab. */
const tab = claim();

async function claim() {
  let key = null;
  try {
    key = sessionStorage.getItem(PREFIX);
  } catch {
    // storage is switched off: the key is that of one page
  }
  const end = performance.now() + RELOAD;
  while (key && !await hold(PREFIX + key)) {
    if (performance.now() > end) key = null;
    else await new Promise(resolve => { setTimeout(resolve, 50); });
  }
  if (!key) {
    key = `${Date.now()}-${Math.random().toString(36).slice(2)}`;
    await hold(PREFIX + key);
  }
  try {
    sessionStorage.setItem(PREFIX, key);
  } catch {
    // as above
  }
  return key;
}

/** Takes a lock until the page is gone; false if another page has it. */
function hold(name) {
  if (!navigator.locks) return true;
  return new Promise(resolve => {
    navigator.locks.request(name, { ifAvailable: true }, lock => {
      resolve(lock !== null);
      return lock && new Promise(() => {});
    }).catch(() => resolve(true));
  });
}

/** The locks of open tabs. */
async function openTabs() {
  const held = (await navigator.locks?.query())?.held ?? [];
  return new Set(held.map(lock => lock.name));
}

function database() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open('teeny', 2);
    request.onupgradeneeded = () => {
      const { result } = request;
      if (!result.objectStoreNames.contains(STORE)) result.createObjectStore(STORE);
      request.transaction.objectStore(STORE).clear(); // the first version had no checksums
    };
    request.onsuccess = () => resolve(request.result);
    request.onblocked = () => reject(new Error('another tab has an older version of this page'));
    request.onerror = () => reject(request.error);
  });
}

async function transact(mode, act) {
  const opened = await database();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = opened.transaction(STORE, mode);
      const request = act(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error);
    });
  } finally {
    opened.close();
  }
}

/** Keeps a checkpoint as that of this tab. */
export async function keep(checkpoint) {
  const record = { ...checkpoint, tab: await tab, time: Date.now() };
  return transact('readwrite', store => store.put(record, record.tab));
}

/** The last checkpoint of this tab, or else the newest of a closed one; the oldest are deleted. */
export async function kept() {
  const own = await tab;
  const [records, open] = await Promise.all([
    transact('readonly', store => store.getAll()), openTabs(),
  ]);
  const closed = records.filter(record => record.tab !== own && !open.has(PREFIX + record.tab))
    .sort((a, b) => b.time - a.time);
  await Promise.all(closed.slice(MAX_RECORDS).map(forget));
  return records.find(record => record.tab === own) ?? closed[0] ?? null;
}

export const forget = record => transact('readwrite', store => store.delete(record.tab));
