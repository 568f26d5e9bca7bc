// Reactive values in the manner of signals: a value that remembers who read it,
// and functions that run again when what they read has changed. Nothing here
// knows of the DOM. Changes are gathered and effects run once, in a microtask.

/** A value that can be read inside effects. `peek` reads without subscribing. */
export interface Readable<T> {
  (): T;
  peek(): T;
}

/** A value that can be changed. */
export interface Signal<T> extends Readable<T> {
  set(value: T): void;
  update(change: (old: T) => T): void;
}

/** Something that can be read: the source side of the graph. */
interface Source {
  version: number;
  readers: Set<Reader>;
  /** Brings a computed value up to date; nothing for a plain signal. */
  refresh?: () => void;
}

/** Something that reads: an effect or a computed value. */
interface Reader {
  sources: Map<Source, number>;
  invalidate(): void;
}

/** An owner ends what was made under it: effects, listeners, timers. */
interface Owner {
  cleanups: (() => void)[];
}

let reader: Reader | undefined;
let owner: Owner | undefined;
let queue: (() => void)[] = [];
let scheduled = false;

function track(source: Source): void {
  if (!reader) return;
  source.readers.add(reader);
  reader.sources.set(source, source.version);
}

function forget(r: Reader): void {
  for (const source of r.sources.keys()) source.readers.delete(r);
  r.sources.clear();
}

/** True when a source has moved on since r read it. */
function stale(r: Reader): boolean {
  for (const [source, seen] of r.sources) {
    source.refresh?.();
    if (source.version !== seen) return true;
  }
  return false;
}

/** Decides when an effect runs again after a change. */
export type Schedule = (run: () => void) => void;

function schedule(run: () => void): void {
  queue.push(run);
  if (scheduled) return;
  scheduled = true;
  queueMicrotask(flush);
}

/** Runs the effects that wait now; normally a microtask does it. */
export function flush(): void {
  for (let round = 0; queue.length > 0; round++) {
    if (round > 100) {
      queue = [];
      scheduled = false;
      throw new Error("reactive: effects keep changing what they read");
    }
    const now = queue;
    queue = [];
    for (const run of now) run();
  }
  scheduled = false;
}

/** Makes a value. Setting it to what it is (Object.is) changes nothing. */
export function signal<T>(initial: T): Signal<T> {
  const source: Source = { version: 0, readers: new Set() };
  let value = initial;
  const read = (() => {
    track(source);
    return value;
  }) as Signal<T>;
  read.peek = () => value;
  read.set = (next) => {
    if (Object.is(next, value)) return;
    value = next;
    source.version++;
    for (const r of [...source.readers]) r.invalidate();
  };
  read.update = (change) => read.set(change(value));
  return read;
}

/** A value computed from others, when it is read and only if they changed. */
export function computed<T>(compute: () => T): Readable<T> {
  let value: T;
  let dirty = true;
  let made = false;
  const self: Reader & Source = {
    version: 0,
    readers: new Set(),
    sources: new Map(),
    invalidate() {
      if (dirty) return;
      dirty = true;
      for (const r of [...self.readers]) r.invalidate();
    },
    refresh() {
      if (!dirty) return;
      dirty = false;
      if (made && !stale(self)) return;
      forget(self);
      const next = within(self, owner, compute);
      if (made && Object.is(next, value)) return;
      value = next;
      made = true;
      self.version++;
    },
  };
  onCleanup(() => {
    forget(self);
    dirty = true;
    made = false;
  });
  const read = (() => {
    self.refresh!();
    track(self);
    return value;
  }) as Readable<T>;
  read.peek = () => {
    self.refresh!();
    return value;
  };
  return read;
}

function within<T>(r: Reader | undefined, o: Owner | undefined, f: () => T): T {
  const [oldReader, oldOwner] = [reader, owner];
  reader = r;
  owner = o;
  try {
    return f();
  } finally {
    reader = oldReader;
    owner = oldOwner;
  }
}

function dispose(o: Owner): void {
  const list = o.cleanups.splice(0);
  for (let i = list.length - 1; i >= 0; i--) list[i]!();
}

/**
 * Runs f now, and again whenever something that it read has changed, in the
 * next microtask unless `when` says otherwise. What f made under itself is
 * disposed of before each run. Returns the way to end it.
 */
export function effect(f: () => void, when: Schedule = schedule): () => void {
  const own: Owner = { cleanups: [] };
  let waiting = false;
  let ended = false;
  const self: Reader = {
    sources: new Map(),
    invalidate() {
      if (waiting || ended) return;
      waiting = true;
      when(run);
    },
  };
  function run(): void {
    waiting = false;
    if (ended || !stale(self)) return;
    start();
  }
  function start(): void {
    dispose(own);
    forget(self);
    within(self, own, f);
  }
  const end = () => {
    if (ended) return;
    ended = true;
    dispose(own);
    forget(self);
  };
  onCleanup(end);
  start();
  return end;
}

/** Calls f when the effect or root around it runs again or ends. */
export function onCleanup(f: () => void): void {
  owner?.cleanups.push(f);
}

/** Reads without subscribing. */
export function untrack<T>(f: () => T): T {
  return within(undefined, owner, f);
}

/** Runs f under an owner of its own, which the returned function ends. */
export function root<T>(f: () => T): [T, () => void] {
  const own: Owner = { cleanups: [] };
  return [within(undefined, own, f), () => dispose(own)];
}
