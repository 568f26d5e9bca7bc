// A chart of lines that change: uPlot with the page's colours, a readout of the
// values under the cursor, and zoom by dragging that several charts share.
import uPlot from "uplot";
import { oneAFrame } from "../state/frame";
import { h } from "./dom";
import { effect, onCleanup, signal, type Signal } from "./reactive";
import { theme } from "./theme";

export interface Line {
  label: string;
  /** Number of the colour, --line-0 … --line-5. */
  color: number;
  x: number[];
  y: (number | null)[];
  /** Thin and pale: the values behind a smoothed line. */
  faint?: boolean;
  dashed?: boolean;
  /** Left out of the readout. */
  quiet?: boolean;
}

export type Range = readonly [number, number] | null;

export interface ChartOptions {
  title: string;
  /** A sentence for those who cannot see the lines. */
  describe(): string;
  lines(): Line[];
  log(): boolean;
  range: Signal<Range>;
  formatX(x: number): string;
  formatY(y: number): string;
  /** Charts with the same key share their cursor. */
  sync: string;
}

const height = 220;
const css = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function chart(options: ChartOptions): HTMLElement {
  const readout = h("ul.readout");
  const host = h("div.chart-host", { role: "img" });
  const element = h("figure.chart", h("figcaption", h("h3", options.title), readout), host);
  const width = signal(0);
  let plot: uPlot | undefined;
  let lines: Line[] = [];
  let shape = "";

  const write = (at: number | null) => {
    readout.replaceChildren(...lines.filter((l) => !l.quiet).map((l) => readoutRow(l, at, options)));
  };
  // Nothing is drawn before the page has given the chart a width.
  const sized = new ResizeObserver(() => width.set(host.clientWidth));
  sized.observe(host);
  // A chart out of sight is not drawn.
  const inSight = signal(true);
  const seen = new IntersectionObserver((entries) => inSight.set(entries.at(-1)!.isIntersecting), { rootMargin: "200px" });
  seen.observe(host);
  onCleanup(() => {
    sized.disconnect();
    seen.disconnect();
    plot?.destroy();
  });

  const draw = () => {
    if (!inSight()) return;
    lines = options.lines();
    host.setAttribute("aria-label", options.describe());
    if (!plot || plot.cursor.idx == null) write(null);
    if (width() === 0) return;
    const log = options.log();
    const now = [theme(), log, ...lines.map((l) => [l.label, l.color, l.faint, l.dashed])].join("|");
    const data = joined(lines);
    if (now !== shape || !plot) {
      plot?.destroy();
      plot = new uPlot(plotOptions(options, lines, log, width.peek(), write), data, host);
      shape = now;
    } else plot.setData(data, false);
    if (plot.width !== width.peek()) plot.setSize({ width: width.peek(), height });
    showRange(plot, options.range(), data[0] as number[]);
  };
  effect(draw, oneAFrame);
  return element;
}

function showRange(plot: uPlot, range: Range, x: number[]): void {
  const [min, max] = range ?? [x[0] ?? 0, x[x.length - 1] ?? 1];
  plot.setScale("x", { min, max: max > min ? max : min + 1 });
}

/** uPlot wants one column of x for all lines. */
function joined(lines: Line[]): uPlot.AlignedData {
  const tables = lines.filter((l) => l.x.length > 0).map((l) => [l.x, l.y] as uPlot.AlignedData);
  if (tables.length === 0) return [[], ...lines.map(() => [])] as unknown as uPlot.AlignedData;
  if (tables.length === lines.length) return lines.length === 1 ? tables[0]! : uPlot.join(tables);
  // A line without points still has its place.
  const full = lines.map((l) => (l.x.length > 0 ? l : { x: [lines.find((o) => o.x.length > 0)!.x[0]!], y: [null] }));
  return uPlot.join(full.map((l) => [l.x, l.y] as uPlot.AlignedData));
}

function plotOptions(
  options: ChartOptions,
  lines: Line[],
  log: boolean,
  width: number,
  write: (at: number | null) => void,
): uPlot.Options {
  const axis = {
    stroke: css("--muted"),
    grid: { stroke: css("--rule"), width: 1 },
    ticks: { show: false },
    font: `11px ${css("--sans")}`,
  };
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 18, 0, 0],
    cursor: { sync: { key: options.sync }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
    scales: { x: { time: false }, y: { distr: log ? 3 : 1 } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map(options.formatX), size: 28 },
      { ...axis, values: (_, ticks) => ticks.map((v) => (v == null ? "" : options.formatY(v))), size: 58 },
    ],
    series: [{}, ...lines.map(seriesOf)],
    hooks: {
      setCursor: [(u) => write(u.cursor.idx == null ? null : (u.data[0]![u.cursor.idx] ?? null))],
      setSelect: [(u) => zoom(u, options.range)],
      ready: [(u) => u.over.addEventListener("dblclick", () => options.range.set(null))],
    },
  };
}

function seriesOf(line: Line): uPlot.Series {
  const stroke = css(`--line-${line.color}`);
  return {
    label: line.label,
    stroke: line.faint ? stroke + "55" : stroke,
    width: line.faint ? 1 : 2,
    dash: line.dashed ? [5, 4] : undefined,
    spanGaps: true,
    points: { show: line.dashed ?? false, size: 5, fill: stroke },
  };
}

function zoom(u: uPlot, range: Signal<Range>): void {
  if (u.select.width < 6) return;
  const min = u.posToVal(u.select.left, "x");
  const max = u.posToVal(u.select.left + u.select.width, "x");
  u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  range.set([min, max]);
}

/** "■ loss 3.21", at the cursor or at the end. */
function readoutRow(line: Line, at: number | null, options: ChartOptions): Element {
  let value: number | null = null;
  for (let i = line.x.length - 1; i >= 0; i--) {
    if ((at === null || line.x[i]! <= at) && line.y[i] != null) {
      value = line.y[i]!;
      break;
    }
  }
  return h(
    "li",
    h("span.swatch", {
      "aria-hidden": "true",
      class: line.dashed ? "dashed" : "",
      style: { "--swatch": `var(--line-${line.color})` },
    }),
    h("span", line.label),
    h("strong.numbers", value === null ? "–" : options.formatY(value)),
  );
}
