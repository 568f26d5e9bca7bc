import assert from "node:assert/strict";
import { test } from "node:test";
import { computed, effect, flush, onCleanup, root, signal, untrack } from "../../src/ui/reactive";

test("an effect runs again once for many changes, and not for none", () => {
  const a = signal(1);
  const b = signal(2);
  const seen: number[] = [];
  effect(() => void seen.push(a() + b()));
  a.set(10);
  b.set(20);
  a.set(10);
  flush();
  assert.deepEqual(seen, [3, 30]);
  a.set(10);
  flush();
  assert.equal(seen.length, 2);
});

test("what is computed is computed when needed, and stops what does not change", () => {
  const n = signal(1);
  let computations = 0;
  const even = computed(() => {
    computations++;
    return n() % 2 === 0;
  });
  const seen: boolean[] = [];
  assert.equal(computations, 0);
  effect(() => void seen.push(even()));
  n.set(3);
  flush();
  n.set(4);
  flush();
  assert.deepEqual(seen, [false, true]);
  assert.equal(computations, 3);
});

test("a diamond is seen whole", () => {
  const n = signal(1);
  const double = computed(() => n() * 2);
  const triple = computed(() => n() * 3);
  const seen: number[] = [];
  effect(() => void seen.push(double() + triple()));
  n.set(2);
  flush();
  assert.deepEqual(seen, [5, 10]);
});

test("an effect forgets what it no longer reads", () => {
  const which = signal(true);
  const a = signal("a");
  const b = signal("b");
  const seen: string[] = [];
  effect(() => void seen.push(which() ? a() : b()));
  which.set(false);
  flush();
  a.set("A");
  flush();
  assert.deepEqual(seen, ["a", "b"]);
});

test("what is made under an effect or a root ends with it", () => {
  const n = signal(0);
  const log: string[] = [];
  const [, end] = root(() => {
    effect(() => {
      const own = n();
      onCleanup(() => log.push(`end ${own}`));
      effect(() => void log.push(`inner ${own} ${n()}`));
    });
  });
  n.set(1);
  flush();
  end();
  n.set(2);
  flush();
  assert.deepEqual(log, ["inner 0 0", "end 0", "inner 1 1", "end 1"]);
});

test("untracked reads do not count", () => {
  const a = signal(1);
  let runs = 0;
  effect(() => {
    runs++;
    untrack(a);
    a.peek();
  });
  a.set(2);
  flush();
  assert.equal(runs, 1);
});

test("effects that chase each other are stopped", () => {
  const a = signal(0);
  effect(() => a.set(a() + 1));
  assert.throws(flush, /keep changing/);
});
