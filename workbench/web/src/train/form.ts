// The state of the form for a new run: what was entered, and what the engine
// says about it while it is typed.
import type { Plan, ProbeResult, RunSettings } from "../api/types";
import { api, status } from "../state/engine";
import { data, runs } from "../state/lists";
import { computed, effect, onCleanup, signal } from "../ui/reactive";
import type { Child } from "../ui/dom";
import { engineWords } from "../ui/parts";
import { type Refusal, refusalOf, refusalText } from "../ui/refusal";
import { showError } from "../ui/toast";
import { freeName } from "../util/names";
import { chosenData } from "./choose";
import { type Entered, type SettingKey, toRunSettings } from "./settings";

export const entered = signal<Entered>({});
export const name = signal("");
export const preset = signal("nano");
export const init = signal("");
export const device = signal("");
export const lora = signal<{ rank: string; alpha: string; targets: string } | undefined>(undefined);
/** Texts of chats to train on instead of data. */
export const chats = signal<readonly string[]>([]);
export const template = signal("");
/** Weights of the data, by name, as entered. */
export const weights = signal<Readonly<Record<string, string>>>({});

export const plan = signal<Plan | undefined>(undefined);
export const planning = signal(false);
export const refused = signal<Refusal | undefined>(undefined);
export const probe = signal<{ key: string; result: ProbeResult } | undefined>(undefined);

/** The setting that was changed last, and what the plan was before. */
let before: { key: SettingKey; plan: Plan } | undefined;

export interface Effect {
  key: SettingKey;
  memory: number;
  params: number;
  /** Time of the whole run compared with before. */
  time: number;
}
export const lastEffect = signal<Effect | undefined>(undefined);

export function enter(key: SettingKey, value: string): void {
  const current = plan.peek();
  if (current && before?.key !== key) {
    before = { key, plan: current };
    lastEffect.set(undefined);
  }
  entered.update((old) => ({ ...old, [key]: value || undefined }));
}

export const suggestedName = computed(() =>
  freeName(
    `${init() || preset() || "run"}-${chosenData()[0] ?? chats()[0] ?? "data"}`,
    runs().map((r) => r.name),
  ),
);

/** The form as the engine wants it, and the entries that are no numbers. */
export const request = computed((): { settings: RunSettings; bad: SettingKey[] } => {
  const { settings, bad } = toRunSettings(entered());
  const sft = init() ? chats() : [];
  const l = lora();
  return {
    settings: {
      ...settings,
      model: init() ? undefined : settings.model,
      name: name().trim() || suggestedName(),
      data:
        sft.length > 0
          ? []
          : chosenData().map((n) => ({ name: n, weight: Number(weights()[n]?.replace(",", ".")) || undefined })),
      sft: sft.length > 0 ? [...sft] : undefined,
      template: sft.length > 0 && template() ? template() : undefined,
      init: init() || undefined,
      lora:
        l && init()
          ? { rank: Number(l.rank) || 8, alpha: Number(l.alpha.replace(",", ".")) || 16, targets: l.targets }
          : undefined,
      preset: init() ? undefined : preset(),
      device: device() || undefined,
    },
    bad,
  };
});

/** What decides speed: a probe holds for as long as this is the same. */
export const probeKey = computed(() => {
  const { name: _, max_steps, max_tokens, max_minutes, epochs, lr, ...rest } = request().settings;
  return JSON.stringify(rest);
});

const typingMs = 180;

/** Asks for a plan whenever the form has changed; lives as long as the view. */
export function planAsTyped(): void {
  let stop: AbortController | undefined;
  let timer = 0;
  onCleanup(() => (stop?.abort(), clearTimeout(timer)));
  effect(() => {
    const { settings } = request();
    data();
    stop?.abort();
    clearTimeout(timer);
    refused.set(undefined);
    if (settings.data.length === 0 && !settings.sft) return plan.set(undefined);
    const mine = (stop = new AbortController());
    planning.set(true);
    timer = window.setTimeout(() => void askPlan(settings, mine.signal), typingMs);
  });
}

async function askPlan(settings: RunSettings, signal: AbortSignal): Promise<void> {
  try {
    const answer = await api.plan(settings, signal);
    if (signal.aborted) return;
    noteEffect(answer);
    plan.set(answer);
  } catch (error) {
    if (signal.aborted) return;
    const refusal = refusalOf(error);
    if (refusal) refused.set(refusal);
    else showError(error);
  } finally {
    if (!signal.aborted) planning.set(false);
  }
}

function noteEffect(now: Plan): void {
  if (!before) return;
  const was = before.plan;
  lastEffect.set({
    key: before.key,
    memory: now.total - was.total,
    params: now.params - was.params,
    time: work(now) / work(was),
  });
}

/** Arithmetic of the whole run. */
function work(p: Plan): number {
  return p.flops_per_token * p.tokens_per_step * p.steps;
}

/** The problem of a field, from the plan or from a refusal. */
export function problemOf(field: string): Child {
  const refusal = refused();
  if (refusal?.field === field) return refusalText(refusal);
  const problem = plan()?.problems.find((p) => p.field === field || p.field === `model.${field}`);
  return problem && engineWords(problem.message);
}

/** Seconds that the run will take, 0 when nothing was measured yet. */
export const seconds = computed(() => {
  const p = plan();
  const speed = tokPerSec();
  return p && speed > 0 ? (p.steps * p.tokens_per_step) / speed : 0;
});

export const tokPerSec = computed(() => {
  const measured = probe();
  if (measured && measured.key === probeKey()) return measured.result.tok_per_s;
  return plan()?.tok_per_s ?? 0;
});

export const presets = computed(() => status()?.presets ?? []);

/** Fills the form with the settings of a run, to begin one like it. */
export function fillForm(from: RunSettings, values: Entered): void {
  entered.set(values);
  name.set("");
  preset.set(from.preset || "nano");
  init.set(from.init ?? "");
  device.set(from.device ?? "");
  chats.set(from.sft ?? []);
  template.set(from.template ?? "");
}
