import assert from "node:assert/strict";
import { test } from "node:test";
import { decimate, lowerBound } from "../../src/util/decimate";
import { rateAt, scheduleCurve } from "../../src/util/schedule";
import { smooth } from "../../src/util/smooth";

const near = (got: number, want: number, bound = 1e-12) => assert.ok(Math.abs(got - want) <= bound, `got ${got}, want ${want}`);

test("smoothing of a constant is the constant, from the first value on", () => {
  for (const amount of [0, 0.5, 0.99]) for (const v of smooth([3, 3, 3, 3], amount)) near(v, 3);
});

test("smoothing equals the weighted mean written out", () => {
  const values = [5, 1, 4, 2, 8];
  const amount = 0.7;
  const got = smooth(values, amount);
  for (let i = 0; i < values.length; i++) {
    let sum = 0;
    let weight = 0;
    for (let j = 0; j <= i; j++) {
      const w = amount ** (i - j);
      sum += w * values[j]!;
      weight += w;
    }
    near(got[i]!, sum / weight);
  }
});

test("gaps stay gaps and do not touch what follows", () => {
  const whole = smooth([1, 2, 3], 0.5);
  const gap = smooth([1, NaN, 2, Infinity, 3], 0.5);
  assert.ok(Number.isNaN(gap[1]) && Number.isNaN(gap[3]));
  assert.deepEqual([gap[0], gap[2], gap[4]], [...whole]);
});

test("decimation keeps few points, rising x, the ends and the extremes", () => {
  const n = 100_003;
  const x = Float64Array.from({ length: n }, (_, i) => i);
  const y = Float64Array.from({ length: n }, (_, i) => Math.sin(i / 500) + (i === 41_234 ? 50 : 0) - (i === 77_001 ? 60 : 0));
  const got = decimate(x, y, 0, n, 400);
  assert.ok(got.x.length <= 801, `${got.x.length} points`);
  assert.ok(
    got.x.every((v, i) => i === 0 || v > got.x[i - 1]!),
    "x rises",
  );
  assert.ok(got.x.includes(41_234) && got.x.includes(77_001), "the spikes are there");
  assert.equal(got.x[got.x.length - 1], n - 1);
  got.x.forEach((v, i) => assert.equal(got.y[i], y[v]));
});

test("few points are left as they are, and what is not finite is a gap", () => {
  const got = decimate([1, 2, 3], [1, NaN, Infinity], 0, 3, 400);
  assert.deepEqual(got, { x: [1, 2, 3], y: [1, null, null] });
  assert.deepEqual(decimate([], [], 0, 0, 10), { x: [], y: [] });
});

test("a gap survives decimation", () => {
  const x = Array.from({ length: 1000 }, (_, i) => i);
  const got = decimate(
    x,
    x.map((i) => (i >= 500 && i < 600 ? NaN : i)),
    0,
    1000,
    50,
  );
  assert.ok(got.y.some((v) => v === null));
});

test("lowerBound agrees with a plain search", () => {
  const x = [1, 3, 3, 7, 9];
  for (let v = 0; v <= 10; v++) {
    const plain = x.findIndex((e) => e >= v);
    assert.equal(lowerBound(x, v), plain < 0 ? x.length : plain);
  }
});

test("the schedule's picture follows the formulas of package optim", () => {
  const s = { kind: "cosine", lr: 1, minLr: 0.1, warmup: 9, steps: 109, decay: 20 };
  near(rateAt(s, 0), 0.1);
  near(rateAt(s, 8), 0.9);
  near(rateAt(s, 9), 1);
  near(rateAt(s, 59), 0.55);
  near(rateAt(s, 109), 0.1);
  near(rateAt({ ...s, kind: "linear" }, 59), 0.55);
  near(rateAt({ ...s, kind: "constant" }, 109), 1);
  near(rateAt({ ...s, kind: "wsd" }, 80), 1);
  near(rateAt({ ...s, kind: "wsd" }, 94), 0.1 + 0.9 * (1 - Math.sqrt(0.25)));
  const curve = scheduleCurve(s, 10);
  assert.equal(curve.length, 11);
  assert.ok(curve.every(([x, y]) => x >= 0 && x <= 1 && y >= 0 && y <= 1));
  assert.deepEqual(scheduleCurve({ ...s, steps: 0 }, 10), []);
});
