// How long the demo trains, and what its samples begin with.
import type { Plan, RunSettings } from "../api/types";

/** The sample text is mostly Go, and this is how its functions begin. */
export const demoPrompt = "func ";

/** Share of the time that training itself gets; the rest goes to measuring and sampling. */
const trainingShare = 0.85;
const evaluations = 4;
/** A held-out token costs a forward pass alone, a third of a trained one. */
const evaluationCost = 1 / 3;

/**
 * How many steps fit the time on a device that trains tokPerSec tokens a
 * second, how often to look at the model meanwhile, and how much of tokens to
 * hold out so that looking does not cost more than training.
 */
export function demoLength(
  plan: Pick<Plan, "tokens_per_step">,
  tokPerSec: number,
  seconds: number,
  tokens: number,
): Partial<RunSettings> {
  const steps = Math.max(20, Math.min(5000, Math.round((trainingShare * tokPerSec * seconds) / plan.tokens_per_step)));
  const heldOut = ((1 - trainingShare) * tokPerSec * seconds) / evaluations / evaluationCost;
  const every = (parts: number) => Math.max(1, Math.ceil(steps / parts));
  return {
    max_steps: steps,
    val_fraction: Math.max(0.002, Math.min(0.05, heldOut / tokens)),
    eval_every: every(evaluations),
    checkpoint_every: every(3),
    keep: 2,
    sample_every: every(5),
    sample_prompt: demoPrompt,
    sample_tokens: 50,
  };
}
