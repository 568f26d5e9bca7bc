// What there is, as the engine tells it: texts, tokenizers, data, runs, models
// and jobs, kept up to date by the stream of events.
import type { Data, Event, Job, ListName, Model, Run, Text, Tokenizer } from "../api/types";
import { signal } from "../ui/reactive";
import { showError, toast } from "../ui/toast";
import { api, lost, refreshStatus } from "./engine";
import { batch, perFrame } from "./frame";

export const texts = signal<Text[]>([]);
export const tokenizers = signal<Tokenizer[]>([]);
export const data = signal<Data[]>([]);
export const runs = signal<Run[]>([]);
export const models = signal<Model[]>([]);
export const jobs = signal<Job[]>([]);
/** True once the lists have been read for the first time. */
export const loaded = signal(false);

const readers: Record<ListName, () => Promise<void>> = {
  texts: async () => texts.set(await api.texts()),
  tokenizers: async () => tokenizers.set(await api.tokenizers()),
  data: async () => data.set(await api.data()),
  runs: async () => runs.set(await api.runs()),
  models: async () => models.set(await api.models()),
};

export async function refresh(...what: ListName[]): Promise<void> {
  await Promise.all(what.map((name) => readers[name]()));
}

async function refreshAll(): Promise<void> {
  await Promise.all([refresh("texts", "tokenizers", "data", "runs", "models"), refreshStatus()]);
  replaceJobs(await api.jobs());
  loaded.set(true);
}

// ---- jobs

const waiting = new Map<string, ((job: Job) => void)[]>();

function applyJobs(changed: Job[]): void {
  if (changed.length === 0) return;
  const byId = new Map(jobs.peek().map((job) => [job.id, job]));
  for (const job of changed) {
    // The answer to a request may come behind the event that the job has ended.
    const known = byId.get(job.id);
    if (known && known.state !== "running" && job.state === "running") continue;
    byId.set(job.id, job);
    if (job.state !== "running") settle(job);
  }
  jobs.set([...byId.values()].slice(-100));
}

/** Takes the engine's list for the whole: one that was started anew counts from 1 again. */
function replaceJobs(now: Job[]): void {
  const known = new Set(now.map((job) => job.id));
  for (const job of jobs.peek()) {
    if (job.state === "running" && !known.has(job.id)) settle({ ...job, state: "failed", error: "the engine was started anew" });
  }
  for (const job of now) if (job.state !== "running") settle(job);
  jobs.set(now);
}

function settle(job: Job): void {
  for (const resolve of waiting.get(job.id) ?? []) resolve(job);
  waiting.delete(job.id);
}

/** A job that was canceled by the person. */
export class Canceled extends Error {}

/** Waits for a job and returns its result; rejects with its error. */
export async function finished<R>(job: Job): Promise<R> {
  applyJobs([job]);
  const known = jobs.peek().find((j) => j.id === job.id) ?? job;
  const end =
    known.state !== "running"
      ? known
      : await new Promise<Job>((resolve) => waiting.set(job.id, [...(waiting.get(job.id) ?? []), resolve]));
  if (end.state === "canceled") throw new Canceled();
  if (end.state === "failed") throw new Error(end.error ?? "");
  return end.result as R;
}

/** The newest job of a kind, running or not, as a view wants to show it. */
export function jobOf(kind: Job["kind"], name?: string): Job | undefined {
  const list = jobs();
  for (let i = list.length - 1; i >= 0; i--)
    if (list[i]!.kind === kind && (name === undefined || list[i]!.name === name)) return list[i];
  return undefined;
}

// ---- runs

export function applyRuns(changed: Run[]): void {
  if (changed.length === 0) return;
  const byName = new Map(changed.map((run) => [run.name, run]));
  const old = runs.peek();
  const next = old.map((run) => byName.get(run.name) ?? run);
  const known = new Set(old.map((run) => run.name));
  runs.set([...changed.filter((run) => !known.has(run.name)), ...next]);
}

export function runNamed(name: string): Run | undefined {
  return runs().find((run) => run.name === name);
}

export function isActive(run: Run): boolean {
  return run.state === "running" || run.state === "starting" || run.state === "pausing";
}

// ---- events

const receive = batch<Event>((events) => {
  const changedJobs = new Map<string, Job>();
  const changedRuns = new Map<string, Run>();
  const lists = new Set<ListName>();
  for (const event of events) {
    if (event.type === "job") changedJobs.set(event.job.id, event.job);
    else if (event.type === "run") changedRuns.set(event.run.name, event.run);
    else if (event.type === "list") lists.add(event.what);
    else if (event.type === "notice") toast({ kind: "info", title: "", detail: event.message });
  }
  applyJobs([...changedJobs.values()]);
  applyRuns([...changedRuns.values()]);
  if (lists.size > 0) {
    refresh(...lists).catch(showError);
    touchStatus();
  }
});

const sleep = (ms: number) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(done, ms);
    function done(): void {
      clearTimeout(timer);
      removeEventListener("online", done);
      document.removeEventListener("visibilitychange", done);
      resolve();
    }
    addEventListener("online", done);
    document.addEventListener("visibilitychange", done);
  });

/** Reads events for as long as the page lives, and comes back after a loss. */
export async function listenForever(): Promise<never> {
  for (let wait = 200; ; wait = Math.min(10000, wait * 2)) {
    const stop = new AbortController();
    try {
      // The stream is opened before the lists are read, so that nothing falls between.
      const events = api.events(stop.signal);
      const first = events.next();
      await Promise.all([refreshAll(), Promise.race([first, sleep(1000)])]);
      lost.set(false);
      wait = 200;
      for (let next = await first; !next.done; next = await events.next()) receive(next.value);
    } catch (error) {
      lost.set(true);
      console.warn("events:", error);
    }
    stop.abort();
    await sleep(wait);
  }
}

/** Storage may have changed: reads the status again, at leisure. */
export const touchStatus = perFrame(() => void refreshStatus().catch(() => {}), 2000);
