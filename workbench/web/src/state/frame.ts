// Work gathered until the next frame, so that a stream of a thousand messages
// a second still changes the page once a frame. A hidden page has no frames;
// there a timer takes their place.

/** Calls f soon, once however often it is asked; returns the asking function. */
export function perFrame(f: () => void, minMs = 0): () => void {
  let waiting = false;
  let last = 0;
  const run = () => {
    waiting = false;
    last = performance.now();
    f();
  };
  return () => {
    if (waiting) return;
    waiting = true;
    const wait = Math.max(0, last + minMs - performance.now());
    if (document.hidden) setTimeout(run, Math.max(wait, 250));
    else if (wait > 20) setTimeout(() => requestAnimationFrame(run), wait);
    else requestAnimationFrame(run);
  };
}

/** Gathers items and hands them over together, once a frame. */
export function batch<T>(take: (items: T[]) => void): (item: T) => void {
  let items: T[] = [];
  const ask = perFrame(() => {
    const now = items;
    items = [];
    take(now);
  });
  return (item) => {
    items.push(item);
    ask();
  };
}

const slots: (() => void)[] = [];

function runSlot(): void {
  slots.shift()?.();
  if (slots.length > 0) requestAnimationFrame(runSlot);
}

/** Runs heavy updates one a frame, so that four charts never share one frame. */
export function oneAFrame(run: () => void): void {
  if (document.hidden) return void setTimeout(run, 250);
  slots.push(run);
  if (slots.length === 1) requestAnimationFrame(runSlot);
}
