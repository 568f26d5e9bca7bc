// How long the demo trains, and what its samples begin with.
import type { Plan, RunSettings } from "../api/types";

/** The sample text is mostly Go, and this is how its functions begin. */
export const demoPrompt = "func ";

/** How many steps fit the time, and how often to look at the model meanwhile. */
export function demoLength(plan: Pick<Plan, "tokens_per_step">, tokPerSec: number, seconds: number): Partial<RunSettings> {
  const steps = Math.max(20, Math.min(5000, Math.round((tokPerSec * seconds) / plan.tokens_per_step)));
  const every = (parts: number) => Math.max(1, Math.round(steps / parts));
  return {
    max_steps: steps,
    eval_every: every(8),
    checkpoint_every: every(3),
    keep: 2,
    sample_every: every(6),
    sample_prompt: demoPrompt,
    sample_tokens: 60,
  };
}
