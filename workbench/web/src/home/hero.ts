// The demo's face: one button on the first visit, then every step as it happens.
import { fmt, m } from "../i18n";
import { place } from "../state/engine";
import { runs, texts } from "../state/lists";
import { useLog } from "../state/runlog";
import { chart } from "../ui/chart";
import { type Child, h } from "../ui/dom";
import { icon } from "../ui/icons";
import { jobNumbers } from "../ui/job";
import { action, engineWords, progress, segmented } from "../ui/parts";
import { computed, onCleanup, signal } from "../ui/reactive";
import { link } from "../ui/router";
import { decimate } from "../util/decimate";
import { smooth } from "../util/smooth";
import { closeDemo, type Demo, demo, type DemoStage, demoStages, startDemo, stopDemo } from "./demo";
import { demoPrompt } from "./length";

const lengths = [20, 90, 300] as const;
const seconds = signal<number>(90);

export function hero(first: boolean): Element {
  const hasSample = computed(() => texts().some((t) => t.sample));
  const options = lengths.map((s) => [String(s), fmt.duration(s)] as [string, string]);
  const heading = first ? h("h1", m.home.heading) : h("h2", m.home.demoAgain);
  return h(
    "section.hero",
    { class: first ? "" : "small" },
    h(
      "div.hero-text",
      heading,
      h("p.lead", first ? m.home.lead : m.home.demoText),
      h(
        "div.row",
        () =>
          action(m.home.start, () => void startDemo(seconds.peek()), {
            icon: "play",
            class: "primary big",
            disabled: () => !hasSample(),
          }),
        segmented(
          m.home.length,
          options,
          () => String(seconds()),
          (v) => seconds.set(Number(v)),
        ),
      ),
      h("p.muted", () => (hasSample() ? (place() === "tab" ? m.home.promiseTab : m.home.promiseServer) : m.home.noSample)),
      first ? h("p", m.home.orOwn, " ", h("a", { href: link("tokenizer") }, m.home.ownText)) : null,
    ),
    first ? loom() : null,
  );
}

/** A cloth on its loom, half woven, with a diamond as on a kilim. */
function loom(): Element {
  const rows = 13;
  const columns = 15;
  const picks = Array.from({ length: rows }, (_, r) => {
    const cells = Array.from({ length: columns }, (_, c) => {
      const ring = (Math.abs(r - 6) + Math.abs(c - 7)) % 6;
      return h("span", { class: `dye${ring} ${(r + c) % 2 === 0 ? "over" : "under"}` });
    });
    return h("div.pick", { style: { "--n": r } }, cells);
  });
  return h("div.loom", { "aria-hidden": "true" }, picks);
}

/** The demo as it runs: a thread of steps, the one at work opened. */
export function demoCard(): Element {
  return h(
    "section.card.demo",
    { "aria-label": m.home.demo },
    h("header.card-head", h("h1", m.home.demo), demoButtons()),
    h("ol.thread", demoStages.map(stageItem)),
    () =>
      demo()?.error
        ? h(
            "div.banner.bad",
            { role: "alert" },
            icon("warn"),
            h("p", h("strong", m.common.failed), " ", engineWords(messageOf(demo()!.error))),
          )
        : null,
    () =>
      demo()?.stage === "done"
        ? h(
            "div.row",
            { role: "status" },
            h("a.btn.primary", { href: link("generate", demo()!.name) }, m.home.toGenerate),
            h("a.btn", { href: link("train", demo()!.name) }, m.home.toRun),
            h("a.btn", { href: link("tokenizer") }, m.home.toTokenizer),
          )
        : null,
  );
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function demoButtons(): Child {
  return () => {
    const over = demo()?.stage === "done" || demo()?.error !== undefined;
    return over
      ? action(m.common.close, closeDemo, { icon: "close", class: "small" })
      : action(m.common.cancel, stopDemo, { icon: "stop", class: "small" });
  };
}

type StageState = "waiting" | "now" | "done";

function stateOf(stage: DemoStage, now: Demo | undefined): StageState {
  if (!now) return "waiting";
  if (now.stage === "done") return "done";
  const [at, own] = [demoStages.indexOf(now.stage), demoStages.indexOf(stage)];
  return own < at ? "done" : own === at ? "now" : "waiting";
}

function stageItem(stage: DemoStage): Element {
  const state = computed(() => stateOf(stage, demo()));
  const [title, text] = m.home.stages[stage];
  return h(
    "li",
    { class: state, "aria-current": () => (state() === "now" ? "step" : undefined) },
    h("span.knot", { "aria-hidden": "true" }, () => (state() === "done" ? icon("check") : null)),
    h("div.stage", h("h2", title), h("p.muted", text), () => (state() === "waiting" ? null : details(stage, state()))),
  );
}

function details(stage: DemoStage, state: StageState): Child {
  switch (stage) {
    case "tokenizer":
      return [
        work(state, stage),
        () => (demo()?.tokenizer ? h("p.result", m.home.madeTokenizer(fmt.number(demo()!.tokenizer!.vocab_size))) : null),
      ];
    case "data":
      return [
        work(state, stage),
        () =>
          demo()?.data
            ? h(
                "p.result",
                m.home.madeData(fmt.number(demo()!.data!.tokens), fmt.number(demo()!.data!.text_bytes / demo()!.data!.tokens, 2)),
              )
            : null,
      ];
    case "probe":
      return [
        work(state, stage),
        () => (demo()?.probe ? h("p.result", m.home.measured(fmt.number(demo()!.probe!.tok_per_s))) : null),
      ];
    case "train":
      return training();
    case "write":
      return [
        h("p.output", { translate: "no" }, h("span.prompt", demoPrompt), () => demo()?.output ?? ""),
        () => (demo()?.tokensPerSecond ? h("p.muted.numbers", m.generate.speed(fmt.number(demo()!.tokensPerSecond, 1))) : null),
      ];
  }
}

function work(state: StageState, stage: DemoStage): Child {
  if (state !== "now") return null;
  const title = m.home.stages[stage][0];
  return [
    progress(
      title,
      () => demo()?.job?.done ?? 0,
      () => demo()?.job?.total ?? 0,
    ),
    h("p.muted.numbers", () => (demo()?.job ? jobNumbers(demo()!.job!) : "")),
  ];
}

/** The run with its falling loss. */
function training(): Child {
  const name = demo.peek()?.name ?? "";
  const run = () => runs().find((r) => r.name === name);
  const exists = computed(() => run() !== undefined);
  return () => {
    if (!exists())
      return progress(
        m.home.stages.train[0],
        () => 0,
        () => 0,
      );
    return [
      progress(
        m.train.progress,
        () => run()?.step ?? 0,
        () => run()?.last_step ?? 0,
      ),
      h("p.muted.numbers", () =>
        [
          m.train.stepOf(fmt.number(run()?.step), fmt.number(run()?.last_step)),
          `${fmt.number(run()?.tok_per_s)} ${m.units["tokens/s"]}`,
          run()?.eta_s ? m.common.left(fmt.duration(run()!.eta_s)) : "",
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      lossChart(name),
      () =>
        run()?.sample
          ? h(
              "figure.sample",
              h("figcaption.muted", m.home.sampleAt(fmt.number(run()!.sample!.step))),
              h("blockquote", { translate: "no" }, run()!.sample!.text),
            )
          : null,
    ];
  };
}

function lossChart(name: string): Element {
  const { log, release } = useLog(name);
  onCleanup(release);
  const lines = () => {
    log.version();
    const c = log.columns;
    const val = {
      x: [...log.valStep.values.subarray(0, log.valStep.length)],
      y: [...log.valLoss.values.subarray(0, log.valLoss.length)],
    };
    return [
      {
        ...decimate(c.step.values, c.loss.values, 0, c.step.length, 300),
        label: m.charts.names.loss,
        color: 0,
        faint: true,
        quiet: true,
      },
      {
        ...decimate(c.step.values, smooth(c.loss.values, 0.85, c.step.length), 0, c.step.length, 300),
        label: m.charts.names.loss,
        color: 0,
      },
      { ...val, label: m.train.valLoss, color: 1, dashed: true },
    ];
  };
  const last = () => log.columns.loss.values[Math.max(0, log.columns.loss.length - 1)] ?? NaN;
  return chart({
    title: m.charts.loss,
    lines,
    log: () => false,
    range: signal(null),
    formatX: fmt.compact,
    formatY: (v) => fmt.number(v, 2),
    describe: () => m.charts.describe(m.charts.loss, fmt.number(last(), 2)),
    sync: "demo",
  });
}
