// One tab at a time: the files, and what is known of them, belong to one worker.

const name = "tezgah-workbench";

/** How long a reloaded page waits for the worker before it to be gone, in milliseconds. */
const patience = 3000;

/**
 * takeTurn resolves once this worker has the files. When another tab has them, busy is called after a moment, and the
 * promise resolves when that tab is closed. Without the Web Locks API it resolves at once.
 */
export function takeTurn(busy: () => void): Promise<void> {
  if (!("locks" in navigator)) return Promise.resolve();
  return new Promise((resolve, reject) => {
    let ours = false;
    // A slow browser may need as long for a lock that nobody has.
    const ask = async () => {
      const { held } = await navigator.locks.query();
      if (ours) return;
      if (held?.some((lock) => lock.name === name)) busy();
      else setTimeout(ask, patience);
    };
    setTimeout(ask, patience);
    navigator.locks
      .request(name, () => {
        ours = true;
        resolve();
        return new Promise(() => {}); // held until the worker ends
      })
      .catch(reject);
  });
}
