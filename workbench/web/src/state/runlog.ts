// The log of a run as columns of numbers for the charts, read once and then
// followed line by line.
import type { LogRecord } from "../api/types";
import { signal } from "../ui/reactive";
import { api } from "./engine";
import { perFrame } from "./frame";
import { applyRuns, isActive, runs } from "./lists";

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A column that grows. */
class Column {
  values = new Float64Array(1024);
  length = 0;

  push(v: number): void {
    if (this.length === this.values.length) {
      const larger = new Float64Array(2 * this.length);
      larger.set(this.values);
      this.values = larger;
    }
    this.values[this.length++] = v;
  }
}

/** As often as charts follow a run, at most; what the eye sees of a curve is not faster. */
const drawnMs = 330;

/** The log writes numbers that are not finite as strings. */
function toNumber(v: number | string | undefined): number {
  if (typeof v === "number") return v;
  return v === "+Inf" ? Infinity : v === "-Inf" ? -Infinity : NaN;
}

export const columnNames = ["step", "loss", "lr", "grad_norm", "tok_per_s", "tokens", "time"] as const;
export type ColumnName = (typeof columnNames)[number];

export interface LogEvent {
  type: string;
  step: number;
  time: string;
  message: string;
}

/** What is remembered of events that are not steps; the newest stay. */
const keptEvents = 500;

export class RunLog {
  readonly columns = Object.fromEntries(columnNames.map((name) => [name, new Column()])) as Record<ColumnName, Column>;
  readonly valStep = new Column();
  readonly valLoss = new Column();
  events: LogEvent[] = [];
  samples: LogEvent[] = [];
  /** Counts changes; read it in an effect to follow the log. */
  readonly version = signal(0);
  /** True while the first read is going on. */
  readonly loading = signal(true);

  private line = 0;
  private stop?: AbortController;
  private readonly changed = perFrame(() => this.version.update((v) => v + 1), drawnMs);

  constructor(readonly name: string) {}

  /** Adds one record; a step that is not above the last one means that the log was cut for a resume. */
  add(record: LogRecord): void {
    if (record.type === "step") {
      this.cut(record.step);
      this.addStep(record);
    } else this.addEvent(record);
    this.changed();
  }

  private addStep(record: LogRecord): void {
    const c = this.columns;
    c.step.push(record.step);
    c.loss.push(toNumber(record.loss));
    c.lr.push(toNumber(record.lr));
    c.grad_norm.push(toNumber(record.grad_norm));
    c.tok_per_s.push(toNumber(record.tok_per_s));
    c.tokens.push(record.tokens ?? NaN);
    c.time.push(record.time ? Date.parse(record.time) / 1000 : NaN);
    if (record.val_loss !== undefined) {
      this.valStep.push(record.step);
      this.valLoss.push(toNumber(record.val_loss));
    }
  }

  private addEvent(record: LogRecord): void {
    const event = { type: record.type, step: record.step ?? 0, time: record.time ?? "", message: record.message ?? "" };
    const list = record.type === "sample" ? this.samples : this.events;
    list.push(event);
    if (list.length > keptEvents) list.shift();
  }

  private cut(step: number): void {
    const c = this.columns;
    let length = c.step.length;
    if (length === 0 || c.step.values[length - 1]! < step) return;
    while (length > 0 && c.step.values[length - 1]! >= step) length--;
    for (const name of columnNames) c[name].length = length;
    while (this.valStep.length > 0 && this.valStep.values[this.valStep.length - 1]! >= step) {
      this.valStep.length--;
      this.valLoss.length--;
    }
  }

  /**
   * Reads what is there, and follows a run for as long as it is active: a
   * browser has few connections to one server, and runs at rest need none.
   */
  async follow(): Promise<void> {
    const stop = (this.stop = new AbortController());
    while (!stop.signal.aborted) {
      try {
        await this.readPages(stop.signal);
        this.loading.set(false);
        this.changed();
        if (this.active()) await this.stream(stop.signal);
        else await this.untilActive(stop.signal);
      } catch (error) {
        if (stop.signal.aborted) return;
        console.warn("run log:", error);
        await sleep(1500);
      }
    }
  }

  private async stream(signal: AbortSignal): Promise<void> {
    for await (const message of api.runEvents(this.name, this.line, signal)) {
      if (message.restart) this.clear();
      if (message.line !== undefined) this.line = message.line;
      if (message.record) this.add(message.record);
      if (message.run) {
        applyRuns([message.run]);
        if (!isActive(message.run)) return;
      }
    }
  }

  private active(): boolean {
    const run = runs.peek().find((r) => r.name === this.name);
    return run !== undefined && isActive(run);
  }

  /** A resumed run cuts its log behind the checkpoint, so it is read again from the start. */
  private async untilActive(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && !this.active()) await sleep(300);
    this.clear();
  }

  private clear(): void {
    for (const column of [...Object.values(this.columns), this.valStep, this.valLoss]) column.length = 0;
    this.events = [];
    this.samples = [];
    this.line = 0;
  }

  private async readPages(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const page = await api.runLog(this.name, this.line);
      for (const record of page.records) this.add(record);
      this.line = page.next;
      if (page.next >= page.total) return;
    }
  }

  close(): void {
    this.stop?.abort();
  }
}

// A run that was just looked at is likely to be looked at again: logs stay open
// for a moment after the last view has let go of them.
const open = new Map<string, { log: RunLog; users: number }>();
const lingerMs = 5000;

/** The log of a run, shared between views; call `release` when done with it. */
export function useLog(name: string): { log: RunLog; release(): void } {
  let entry = open.get(name);
  if (!entry) {
    entry = { log: new RunLog(name), users: 0 };
    open.set(name, entry);
    void entry.log.follow();
  }
  const held = entry;
  held.users++;
  return { log: held.log, release: () => release(name, held) };
}

function release(name: string, entry: { log: RunLog; users: number }): void {
  entry.users--;
  setTimeout(() => {
    if (entry.users > 0 || open.get(name) !== entry) return;
    open.delete(name);
    entry.log.close();
  }, lingerMs);
}

/** Forgets a deleted run, whose name may come back. */
export function dropLog(name: string): void {
  open.get(name)?.log.close();
  open.delete(name);
}
