// Every setting of a run as a table: how it is entered, where it goes in
// RunSettings, and what stands there when nothing is entered. Labels and help
// are in the catalogues under the same keys.
import type { ModelConfig, Plan, RunSettings } from "../api/types";
import type { en } from "../i18n/en";
import { parseNumber } from "../util/format";

export type SettingKey = keyof typeof en.settings;

export type Group = "size" | "batch" | "length" | "rate" | "optimizer" | "memory" | "loss" | "rhythm" | "samples";

export interface Setting {
  key: SettingKey;
  group: Group;
  /** whole and real are numbers, flag is a tick, choice one of options, text free. */
  kind: "whole" | "real" | "flag" | "choice" | "text";
  /** True when the value belongs into `model` of RunSettings. */
  model?: boolean;
  options?: readonly string[];
  /** What the engine takes when nothing is entered, as far as the page can say. */
  fallback?: (plan: Plan | undefined) => number | string | boolean | undefined;
  /** Shown without opening "every setting". */
  basic?: boolean;
}

const ofModel = (key: keyof ModelConfig) => (plan: Plan | undefined) => plan?.model[key];
const fixed = (value: number | string | boolean) => () => value;

export const settings: readonly Setting[] = [
  { key: "layers", group: "size", kind: "whole", model: true, fallback: ofModel("layers") },
  { key: "d_model", group: "size", kind: "whole", model: true, fallback: ofModel("d_model") },
  { key: "heads", group: "size", kind: "whole", model: true, fallback: ofModel("heads") },
  { key: "kv_heads", group: "size", kind: "whole", model: true, fallback: ofModel("kv_heads") },
  { key: "head_dim", group: "size", kind: "whole", model: true, fallback: ofModel("head_dim") },
  { key: "ffn", group: "size", kind: "whole", model: true, fallback: ofModel("ffn") },
  {
    key: "activation",
    group: "size",
    kind: "choice",
    model: true,
    options: ["silu", "gelu_tanh"],
    fallback: ofModel("activation"),
  },
  { key: "tied", group: "size", kind: "flag", model: true, fallback: (plan) => plan?.model.tied ?? true },
  { key: "rope_theta", group: "size", kind: "real", model: true, fallback: ofModel("rope_theta") },
  { key: "norm_eps", group: "size", kind: "real", model: true, fallback: ofModel("norm_eps") },
  { key: "init_std", group: "size", kind: "real", model: true, fallback: ofModel("init_std") },

  { key: "context", group: "batch", kind: "whole", basic: true, fallback: ofModel("context") },
  { key: "batch", group: "batch", kind: "whole", basic: true, fallback: fixed(8) },
  { key: "accum", group: "batch", kind: "whole", fallback: fixed(1) },
  { key: "seed", group: "batch", kind: "whole", fallback: fixed(1) },
  { key: "val_fraction", group: "batch", kind: "real", fallback: fixed(0.05) },
  { key: "doc_mask", group: "batch", kind: "flag", fallback: fixed(false) },

  { key: "max_steps", group: "length", kind: "whole", basic: true, fallback: (plan) => plan?.steps },
  { key: "epochs", group: "length", kind: "real", fallback: (plan) => plan?.epochs },
  { key: "max_tokens", group: "length", kind: "whole" },
  { key: "max_minutes", group: "length", kind: "real" },

  { key: "lr", group: "rate", kind: "real", basic: true, fallback: (plan) => plan?.lr },
  { key: "schedule", group: "rate", kind: "choice", options: ["cosine", "linear", "wsd", "constant"], fallback: fixed("cosine") },
  { key: "warmup", group: "rate", kind: "whole", fallback: (plan) => plan?.warmup },
  { key: "min_lr", group: "rate", kind: "real", fallback: (plan) => plan?.min_lr },
  { key: "decay_steps", group: "rate", kind: "whole", fallback: (plan) => (plan ? Math.round(plan.steps / 5) : undefined) },

  { key: "weight_decay", group: "optimizer", kind: "real", fallback: fixed(0.1) },
  { key: "clip", group: "optimizer", kind: "real", fallback: fixed(1) },
  { key: "beta1", group: "optimizer", kind: "real", fallback: fixed(0.9) },
  { key: "beta2", group: "optimizer", kind: "real", fallback: fixed(0.95) },
  { key: "eps", group: "optimizer", kind: "real", fallback: fixed(1e-8) },
  { key: "nonfinite", group: "optimizer", kind: "choice", options: ["skip", "zero", "stop"], fallback: fixed("skip") },

  { key: "precision", group: "memory", kind: "choice", options: ["f32", "mixed", "bf16", "f16"], fallback: fixed("f32") },
  { key: "moments8", group: "memory", kind: "flag", fallback: fixed(false) },
  { key: "recompute", group: "memory", kind: "flag", fallback: fixed(false) },

  { key: "label_smoothing", group: "loss", kind: "real", fallback: fixed(0) },
  { key: "z_loss", group: "loss", kind: "real", fallback: fixed(0) },

  { key: "eval_every", group: "rhythm", kind: "whole", fallback: (plan) => tenth(plan) },
  { key: "checkpoint_every", group: "rhythm", kind: "whole", fallback: (plan) => tenth(plan) },
  { key: "keep", group: "rhythm", kind: "whole", fallback: fixed(3) },

  { key: "sample_every", group: "samples", kind: "whole" },
  { key: "sample_prompt", group: "samples", kind: "text" },
  { key: "sample_tokens", group: "samples", kind: "whole" },
];

function tenth(plan: Plan | undefined): number | undefined {
  return plan && plan.steps > 0 ? Math.max(1, Math.round(plan.steps / 10)) : undefined;
}

/** What a person has entered, by key, as text; flags are "true" and "false". */
export type Entered = Readonly<Partial<Record<SettingKey, string>>>;

/** Settings as entered for the engine, and what is wrong with the entries. */
export function toRunSettings(entered: Entered): { settings: Partial<RunSettings>; bad: SettingKey[] } {
  const out: Record<string, unknown> = {};
  const model: Record<string, unknown> = {};
  const bad: SettingKey[] = [];
  for (const s of settings) {
    const text = entered[s.key] ?? "";
    if (text.trim() === "") continue;
    const value = toValue(s, text);
    if (value === undefined) bad.push(s.key);
    else (s.model ? model : out)[s.key] = value;
  }
  if (Object.keys(model).length > 0) out.model = model;
  return { settings: out as Partial<RunSettings>, bad };
}

function toValue(s: Setting, text: string): number | string | boolean | undefined {
  if (s.kind === "flag") return text === "true";
  // A blank at the end of a prompt is part of it.
  if (s.kind === "choice" || s.kind === "text") return text;
  const n = parseNumber(text, s.kind === "whole");
  if (!Number.isFinite(n) || (s.kind === "whole" && !Number.isInteger(n))) return undefined;
  return n;
}

/** The other way round, for a form that begins with the settings of a run. */
export function toEntered(from: RunSettings): Entered {
  const out: Partial<Record<SettingKey, string>> = {};
  for (const s of settings) {
    const value = s.model ? from.model?.[s.key as keyof ModelConfig] : from[s.key as keyof RunSettings];
    if (value !== undefined && value !== null && typeof value !== "object") out[s.key] = String(value);
  }
  return out;
}
