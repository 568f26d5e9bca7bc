// Fewer points for a chart without losing what the eye would see: of each
// bucket of points the smallest and the largest value stay.

export interface Points {
  x: number[];
  y: (number | null)[];
}

/**
 * Returns at most about 2·buckets points of x, y between the indices lo and hi
 * (hi excluded). x rises; values that are not finite become gaps (null).
 */
export function decimate(x: ArrayLike<number>, y: ArrayLike<number>, lo: number, hi: number, buckets: number): Points {
  const out: Points = { x: [], y: [] };
  const count = hi - lo;
  if (count <= 0) return out;
  if (count <= 2 * buckets) {
    for (let i = lo; i < hi; i++) push(out, x[i]!, y[i]!);
    return out;
  }
  for (let b = 0; b < buckets; b++) {
    const from = lo + Math.floor((b * count) / buckets);
    const to = lo + Math.floor(((b + 1) * count) / buckets);
    extremes(out, x, y, from, to);
  }
  // The newest point is what a person watching looks at.
  if (out.x[out.x.length - 1] !== x[hi - 1]) push(out, x[hi - 1]!, y[hi - 1]!);
  return out;
}

function push(out: Points, x: number, y: number): void {
  out.x.push(x);
  out.y.push(Number.isFinite(y) ? y : null);
}

function extremes(out: Points, x: ArrayLike<number>, y: ArrayLike<number>, from: number, to: number): void {
  let low = -1;
  let high = -1;
  let gap = -1;
  for (let i = from; i < to; i++) {
    const v = y[i]!;
    if (!Number.isFinite(v)) gap = i;
    else {
      if (low < 0 || v < y[low]!) low = i;
      if (high < 0 || v > y[high]!) high = i;
    }
  }
  const keep = [...new Set([low, high, gap])].filter((i) => i >= 0).sort((a, b) => a - b);
  for (const i of keep) push(out, x[i]!, y[i]!);
}

/** The first index of rising x whose value is at least v. */
export function lowerBound(x: ArrayLike<number>, v: number, length = x.length): number {
  let lo = 0;
  let hi = length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (x[mid]! < v) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
