// The learning rate as a function of the step, as package optim computes it,
// for the picture beside the form. Both ends of every kind are the engine's.

export interface Schedule {
  kind: string;
  lr: number;
  minLr: number;
  warmup: number;
  steps: number;
  /** Steps of the last phase of wsd. */
  decay: number;
}

/** The rate at a step, counted from 0. */
export function rateAt(s: Schedule, step: number): number {
  if (step < s.warmup) return (s.lr * (step + 1)) / (s.warmup + 1);
  const span = Math.max(1, s.steps - s.warmup);
  const x = Math.min(1, (step - s.warmup) / span);
  if (s.kind === "constant") return s.lr;
  if (s.kind === "linear") return s.lr + (s.minLr - s.lr) * x;
  if (s.kind === "wsd") {
    const y = Math.min(1, Math.max(0, (step - (s.steps - s.decay)) / Math.max(1, s.decay)));
    return s.minLr + (s.lr - s.minLr) * (1 - Math.sqrt(y));
  }
  return s.minLr + ((s.lr - s.minLr) * (1 + Math.cos(Math.PI * x))) / 2;
}

/** Points of the curve, both axes from 0 to 1. */
export function scheduleCurve(s: Schedule, points: number): [number, number][] {
  if (!(s.steps > 0) || !(s.lr > 0)) return [];
  return Array.from({ length: points + 1 }, (_, i) => [i / points, rateAt(s, (i / points) * s.steps) / s.lr]);
}
