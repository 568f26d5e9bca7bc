// The demo: from the sample text to generated text, one step after the other.
// Every step first looks whether its result is there already, so that a page
// that was loaded anew goes on where the demo was.
import type { Data, GenerateMessage, Job, ProbeResult, Run, RunSettings, Tokenizer } from "../api/types";
import { remember } from "../generate/state";
import { api } from "../state/engine";
import { Canceled, data, finished, isActive, jobs, refresh, runs, texts, tokenizers } from "../state/lists";
import { effect, signal } from "../ui/reactive";
import { freeName } from "../util/names";
import { demoLength, demoPrompt } from "./length";
import { askPersistence } from "../state/storage";

export const demoStages = ["tokenizer", "data", "probe", "train", "write"] as const;
export type DemoStage = (typeof demoStages)[number];

export interface Demo {
  name: string;
  /** Seconds of training. */
  seconds: number;
  stage: DemoStage | "done";
  job?: Job;
  error?: unknown;
  tokenizer?: Tokenizer;
  data?: Data;
  probe?: ProbeResult;
  output: string;
  tokensPerSecond: number;
}

export const demo = signal<Demo | undefined>(undefined);
const storageKey = "tezgah.demo";
const vocabSize = 2048;

function change(part: Partial<Demo>): void {
  demo.update((old) => (old ? { ...old, ...part } : old));
}

export function demoRunning(): boolean {
  const now = demo();
  return now !== undefined && now.stage !== "done" && now.error === undefined;
}

/** Starts a demo with a name of its own. */
export function startDemo(seconds: number): Promise<void> {
  const taken = [tokenizers, data, runs].flatMap((list) => list.peek().map((item: { name: string }) => item.name));
  const name = freeName("demo", taken);
  localStorage.setItem(storageKey, JSON.stringify({ name, seconds }));
  return run(name, seconds);
}

/** Goes on with a demo that a closed page left behind. */
export function continueDemo(): void {
  const kept = localStorage.getItem(storageKey);
  if (!kept || demo.peek()) return;
  try {
    const { name, seconds } = JSON.parse(kept) as { name: string; seconds: number };
    const exists = tokenizers.peek().some((t) => t.name === name) || jobs.peek().some((j) => j.name === name);
    if (exists) void run(name, seconds);
    else localStorage.removeItem(storageKey);
  } catch {
    localStorage.removeItem(storageKey);
  }
}

/** Breaks the demo off; what it has made stays. */
export async function stopDemo(): Promise<void> {
  const now = demo.peek();
  localStorage.removeItem(storageKey);
  demo.set(undefined);
  if (!now) return;
  if (now.job?.state === "running") await api.cancelJob(now.job.id);
  if (runs.peek().some((r) => r.name === now.name && isActive(r))) await api.stopRun(now.name);
}

/** Closes the demo's account of itself once it has been read. */
export function closeDemo(): void {
  demo.set(undefined);
}

async function run(name: string, seconds: number): Promise<void> {
  demo.set({ name, seconds, stage: "tokenizer", output: "", tokensPerSecond: 0 });
  const current = () => demo.peek()?.name === name;
  try {
    change({ tokenizer: await ensureTokenizer(name) });
    if (!current()) return;
    change({ stage: "data", data: await ensureData(name) });
    if (!current()) return;
    await ensureRun(name, seconds, demo.peek()!.data!.tokens);
    if (!current()) return;
    change({ stage: "train", job: undefined });
    await trained(name);
    if (!current()) return;
    change({ stage: "write" });
    await write(name);
    change({ stage: "done" });
    localStorage.removeItem(storageKey);
  } catch (error) {
    if (!current()) return;
    localStorage.removeItem(storageKey);
    if (error instanceof Canceled) demo.set(undefined);
    else change({ error });
  }
}

/** Follows a job, its own or one that is running already, in the demo's account. */
async function follow<R>(kind: Job["kind"], name: string, start: () => Promise<Job>): Promise<R> {
  const running = jobs.peek().find((j) => j.kind === kind && j.name === name && j.state === "running");
  const job = running ?? (await start());
  change({ job });
  const end = effect(() => {
    const now = jobs().find((j) => j.id === job.id);
    if (now) queueMicrotask(() => change({ job: now }));
  });
  try {
    return await finished<R>(job);
  } finally {
    end();
    change({ job: undefined });
  }
}

async function ensureTokenizer(name: string): Promise<Tokenizer> {
  const there = tokenizers.peek().find((t) => t.name === name);
  if (there) return there;
  const made = await follow<Tokenizer>("tokenizer", name, () =>
    api.trainTokenizer({ name, texts: [sampleName()], vocab_size: vocabSize, pattern: "llama3" }),
  );
  await refresh("tokenizers");
  return made;
}

async function ensureData(name: string): Promise<Data> {
  change({ stage: "data" });
  const there = data.peek().find((d) => d.name === name);
  if (there) return there;
  const made = await follow<Data>("data", name, () =>
    api.buildData({ name, texts: [sampleName()], tokenizer: name, split: true }),
  );
  await refresh("data");
  return made;
}

function sampleName(): string {
  return texts.peek().find((t) => t.sample)?.name ?? "sample";
}

/** Measures the device, then starts a run that fits the time. */
async function ensureRun(name: string, seconds: number, tokens: number): Promise<void> {
  const there = runs.peek().find((r) => r.name === name);
  if (there?.state === "paused") await api.resumeRun(name, {});
  if (there) return;
  change({ stage: "probe" });
  let settings: RunSettings = { name, data: [{ name }], preset: "nano", seed: 1 };
  let probe = await follow<ProbeResult>("probe", name, () => api.probe(settings));
  if (probe.tok_per_s < slowTokPerSec) {
    // A smaller model in smaller steps, so that a slow device still learns from enough text.
    settings = { ...settings, model: slowModel, batch: 4, context: 128 };
    probe = await follow<ProbeResult>("probe", name, () => api.probe(settings));
  }
  change({ probe });
  const plan = await api.plan(settings);
  void askPersistence();
  await api.startRun({ ...settings, ...demoLength(plan, probe.tok_per_s, seconds, tokens) });
}

const slowTokPerSec = 6000;

/** In the same two minutes of a slow device it comes to fewer bits per byte than nano; docs/log.d/tab.md has the figures. */
const slowModel: RunSettings["model"] = { d_model: 64, layers: 3, heads: 2, kv_heads: 1, head_dim: 32, ffn: 192, context: 128 };

/** Waits for the run to end. */
function trained(name: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let seen = false;
    const end = effect(() => {
      const now: Run | undefined = runs().find((r) => r.name === name);
      seen ||= now !== undefined;
      const stop = (then: () => void) => queueMicrotask(() => (end(), then()));
      if (demo()?.name !== name) stop(() => reject(new Canceled()));
      else if (now?.state === "done") stop(resolve);
      else if (now?.state === "stopped") stop(() => reject(new Canceled()));
      else if (now?.state === "failed") stop(() => reject(new Error(now.error ?? "")));
      else if (!now && seen) stop(() => reject(new Canceled()));
    });
  });
}

async function write(name: string): Promise<void> {
  const stop = new AbortController();
  const request = { model: name, prompt: demoPrompt, max_tokens: 200, temperature: 0.7, top_p: 0.95, seed: 7, alternatives: 5 };
  const received: GenerateMessage[] = [];
  for await (const message of api.generate(request, stop.signal)) {
    received.push(message);
    if (message.type === "piece") change({ output: (demo.peek()?.output ?? "") + message.text });
    if (message.type === "end") change({ tokensPerSecond: message.tok_per_s });
    if (message.type === "error") throw new Error(message.error.message);
  }
  remember(request, received);
}
