// The last checkpoint in the browser's database, for the next visit. A transaction is written as a
// whole or not at all, so a page that is closed meanwhile leaves the earlier one.

const [STORE, KEY] = ['checkpoints', 'last'];

function database() {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open('teeny', 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
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

export const keep = checkpoint => transact('readwrite', store => store.put(checkpoint, KEY));
export const kept = () => transact('readonly', store => store.get(KEY));
export const forget = () => transact('readwrite', store => store.delete(KEY));
