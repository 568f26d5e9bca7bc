// Smoothing of curves: an exponential moving average without the bias towards
// its start (the correction of Adam, as TensorBoard's slider does it).

/**
 * Returns the smoothed values; amount from 0 (as they are) to below 1. Values
 * that are not finite stay gaps and do not touch the average.
 */
export function smooth(values: ArrayLike<number>, amount: number, length = values.length): Float64Array {
  const out = new Float64Array(length);
  let average = 0;
  let weight = 0;
  for (let i = 0; i < length; i++) {
    const v = values[i]!;
    if (!Number.isFinite(v)) {
      out[i] = NaN;
      continue;
    }
    average = amount * average + (1 - amount) * v;
    weight = amount * weight + (1 - amount);
    out[i] = average / weight;
  }
  return out;
}
