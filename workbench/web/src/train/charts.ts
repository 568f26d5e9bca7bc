// The four charts of a run beside those of the runs it is compared with.
import { fmt, m } from "../i18n";
import { type ColumnName, type RunLog, useLog } from "../state/runlog";
import { runs } from "../state/lists";
import { chart, type Line, type Range } from "../ui/chart";
import { type Child, h } from "../ui/dom";
import { icon } from "../ui/icons";
import { check, newId, segmented } from "../ui/parts";
import { computed, effect, onCleanup, signal } from "../ui/reactive";
import { go, route } from "../ui/router";
import { decimate, lowerBound } from "../util/decimate";
import { smooth } from "../util/smooth";

type Axis = "step" | "tokens" | "time";

// How the charts are looked at stays while a person goes from run to run.
const smoothing = signal(0.6);
const logScale = signal(false);
const axis = signal<Axis>("step");

/** Half the points that a line may have: about one for each pixel of a chart. */
const buckets = 300;
const comparedAtMost = 5;

const compared = computed(() => (route().query.get("compare") ?? "").split(",").filter(Boolean).slice(0, comparedAtMost));

export function charts(name: string): Child {
  const range = signal<Range>(null);
  const logs = usedLogs(name);
  const shared = {
    log: () => false,
    range,
    formatX: (x: number) => (axis() === "time" ? fmt.duration(x) : fmt.compact(x)),
    sync: `run-${name}`,
  };
  const lines = (column: ColumnName, smoothed: boolean) => () =>
    logs().flatMap((log, i) => runLines(log, i, column, smoothed, range()));
  const last = (column: ColumnName) => {
    const c = logs()[0]?.columns[column];
    return c && c.length > 0 ? c.values[c.length - 1]! : NaN;
  };
  const loss = () => logs().flatMap((log, i) => [...runLines(log, i, "loss", true, range()), validation(log, i)]);
  const one = (title: string, column: ColumnName, format: (v: number) => string, extra: object = {}) =>
    chart({
      ...shared,
      title,
      lines: lines(column, column !== "lr"),
      formatY: format,
      describe: () => m.charts.describe(title, format(last(column))),
      ...extra,
    });
  return [
    toolbar(name, range),
    h(
      "div.charts",
      one(m.charts.loss, "loss", (v) => fmt.number(v, 3), { lines: loss, log: logScale }),
      one(m.charts.lr, "lr", fmt.rate),
      one(m.charts.gradNorm, "grad_norm", (v) => fmt.number(v, 3), { log: logScale }),
      one(m.charts.speed, "tok_per_s", fmt.compact),
    ),
  ];
}

/** The logs of the run and of those compared with it, opened and let go as they change. */
function usedLogs(name: string): () => RunLog[] {
  const logs = signal<RunLog[]>([]);
  effect(() => {
    const names = [name, ...compared().filter((n) => n !== name)];
    const used = names.map(useLog);
    logs.set(used.map((u) => u.log));
    onCleanup(() => used.forEach((u) => u.release()));
  });
  return logs;
}

/** x of a log on the chosen axis. */
function xOf(log: RunLog): Float64Array {
  const c = log.columns;
  if (axis() === "step") return c.step.values;
  if (axis() === "tokens") return c.tokens.values;
  const start = c.time.values[0] ?? 0;
  return c.time.values.subarray(0, c.time.length).map((t) => t - start);
}

function label(log: RunLog, i: number, what: string): string {
  return i === 0 && compared().length === 0 ? what : log.name;
}

function runLines(log: RunLog, i: number, column: ColumnName, smoothed: boolean, range: Range): Line[] {
  log.version();
  const x = xOf(log);
  const length = log.columns.step.length;
  const y = log.columns[column].values;
  const lo = range ? Math.max(0, lowerBound(x, range[0], length) - 1) : 0;
  const hi = range ? Math.min(length, lowerBound(x, range[1], length) + 1) : length;
  const name = label(log, i, m.charts.names[column as keyof typeof m.charts.names] ?? column);
  const raw = { ...decimate(x, y, lo, hi, buckets), label: name, color: i };
  if (!smoothed || smoothing() === 0) return [raw];
  const s = smooth(y, smoothing(), length);
  return [
    { ...raw, faint: true, quiet: true },
    { ...decimate(x, s, lo, hi, buckets), label: name, color: i },
  ];
}

function validation(log: RunLog, i: number): Line {
  log.version();
  const x = xOf(log);
  const step = log.columns.step;
  const at = (s: number) => x[Math.min(step.length - 1, lowerBound(step.values, s, step.length))] ?? s;
  const steps = [...log.valStep.values.subarray(0, log.valStep.length)];
  const values = [...log.valLoss.values.subarray(0, log.valLoss.length)].map((v) => (Number.isFinite(v) ? v : null));
  return {
    x: steps.map(at),
    y: values,
    label: label(log, i, "") ? m.charts.val(i === 0 && compared().length === 0 ? "" : log.name) : "",
    color: i === 0 && compared().length === 0 ? 1 : i,
    dashed: true,
  };
}

// ---- tools

function toolbar(name: string, range: { (): Range; set(r: Range): void }): Child {
  const axes: [string, string][] = [
    ["step", m.charts.byStep],
    ["tokens", m.charts.byTokens],
    ["time", m.charts.byTime],
  ];
  return h(
    "div.chart-tools",
    segmented(m.charts.axis, axes, axis, (v) => (range.set(null), axis.set(v as Axis))),
    smoothingSlider(),
    check(m.charts.log, logScale, logScale.set),
    zoomTools(name, range),
    comparison(name),
  );
}

function smoothingSlider(): Element {
  const id = newId("s");
  return h(
    "div.slider",
    h("label", { for: id }, m.charts.smoothing),
    h("input", {
      id,
      type: "range",
      min: 0,
      max: 0.99,
      step: 0.01,
      value: () => smoothing(),
      "aria-valuetext": () => fmt.number(smoothing(), 2),
      oninput: (e: Event) => smoothing.set(Number((e.target as HTMLInputElement).value)),
    }),
    h("output", { for: id }, () => fmt.fixed(smoothing(), 2)),
  );
}

/** Zoom without a pointer: the whole, the last half, the last tenth. */
function zoomTools(name: string, range: { (): Range; set(r: Range): void }): Element {
  const tail = (share: number) => () => {
    const { log, release } = useLog(name);
    const x = xOf(log);
    const length = log.columns.step.length;
    if (length > 1) range.set([x[Math.floor((1 - share) * (length - 1))]!, x[length - 1]!]);
    release();
  };
  return h(
    "div.row.tight",
    { role: "group", "aria-label": m.charts.zoom },
    h("button.btn.small", { type: "button", disabled: () => range() === null, onclick: () => range.set(null) }, m.charts.all),
    h("button.btn.small", { type: "button", onclick: tail(0.5) }, m.charts.lastHalf),
    h("button.btn.small", { type: "button", onclick: tail(0.1) }, m.charts.lastTenth),
  );
}

function comparison(name: string): Child {
  const others = () => runs().filter((r) => r.name !== name);
  const toggle = (other: string) => (on: boolean) => {
    const next = on ? [...compared.peek(), other] : compared.peek().filter((n) => n !== other);
    go("train", name, next.length > 0 ? { compare: next.join(",") } : {}, true);
  };
  return () =>
    others().length === 0
      ? null
      : h(
          "details.details.compare",
          h(
            "summary",
            h("span", m.charts.compare, () => (compared().length > 0 ? ` (${compared().length})` : "")),
            icon("down"),
          ),
          h(
            "div.details-body",
            others().map((r) =>
              check(r.name, () => compared().includes(r.name), toggle(r.name), undefined, {
                disabled: () => !compared().includes(r.name) && compared().length >= comparedAtMost,
              }),
            ),
          ),
        );
}
