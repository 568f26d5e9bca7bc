// Turns of the worker's event loop. Go runs on the worker's one thread; while it
// computes, no message of the page arrives and no promise of the browser settles.
// So whatever may take long lets the loop turn now and then, through a message
// channel: timers would be slowed down to one a second in a hidden tab, messages
// are not. A turn costs about 15 µs.

/** How long, in milliseconds, work may hold the event loop before it should let it turn. */
const longestHold = 8;

const channel = new MessageChannel();
const waiting: (() => void)[] = [];
let turned = performance.now();

channel.port1.onmessage = () => {
  turned = performance.now();
  waiting.shift()?.();
};

/** afterTurn calls back once everything that now waits in the event loop has had its turn. */
export function afterTurn(back: () => void): void {
  waiting.push(back);
  channel.port2.postMessage(null);
}

/** soon calls back at once, or after a turn when the last one was too long ago. */
export function soon(back: () => void): void {
  if (performance.now() - turned > longestHold) afterTurn(back);
  else back();
}
