// What the engine says about a run before it starts: parameters, memory, time,
// and what is wrong.
import type { Plan } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { finished, jobOf } from "../state/lists";
import { type Child, h, s } from "../ui/dom";
import { jobView } from "../ui/job";
import { action, engineWords } from "../ui/parts";
import type { ProbeResult } from "../api/types";
import { scheduleCurve } from "../util/schedule";
import * as form from "./form";

export function planPanel(start: Element): Element {
  return h(
    "section.card.plan",
    { "aria-busy": () => (form.planning() ? "true" : undefined) },
    h("h2", m.plan.title),
    () => (form.plan() ? null : h("p.empty", m.plan.none)),
    () => {
      const plan = form.plan();
      if (!plan) return null;
      return plan.problems.length > 0 ? problems(plan) : [numbers(plan), memoryBar(plan), speed(), curve(plan)];
    },
    () =>
      jobOf("probe")?.state === "running" || !form.plan()
        ? null
        : action(m.plan.probe, probe, { icon: "gauge", class: "wide", title: m.plan.probeHelp }),
    jobView(() => jobOf("probe"), m.plan.probing),
    start,
  );
}

function numbers(plan: Plan): Child {
  const row = (name: string, value: Child, title?: string) => [h("dt", name), h("dd", { title }, value)];
  return h(
    "dl.facts",
    row(m.plan.params, fmt.compact(plan.params), fmt.number(plan.params)),
    row(m.plan.tokensPerStep, fmt.number(plan.tokens_per_step)),
    row(m.plan.steps, fmt.number(plan.steps)),
    row(m.plan.epochs, fmt.number(plan.epochs, 2)),
    row(m.plan.flops, fmt.compact(plan.flops_per_token)),
  );
}

/** Parts of the memory as pieces of one bar. */
function memoryBar(plan: Plan): Child {
  const words = m.memory as Record<string, string>;
  const parts = plan.memory.filter((p) => p.bytes > 0);
  if (parts.length === 0) return null;
  const verdict = plan.free > 0 ? m.plan.memoryOf(fmt.bytes(plan.total), fmt.bytes(plan.free)) : fmt.bytes(plan.total);
  return h(
    "div.memory",
    h("p.memory-head", h("span", m.plan.memory), h("strong", { class: plan.fits ? "" : "bad" }, verdict)),
    h(
      "div.memory-bar",
      { "aria-hidden": "true" },
      parts.map((p, i) => h("span", { class: `part${i % 6}`, style: { width: `${(100 * p.bytes) / plan.total}%` } })),
    ),
    h(
      "ul.memory-legend",
      parts.map((p, i) =>
        h(
          "li",
          h("span.swatch", { class: `part${i % 6}`, "aria-hidden": "true" }),
          h("span", words[p.label] ?? engineWords(p.label)),
          h("span.numbers", fmt.bytes(p.bytes)),
        ),
      ),
    ),
    plan.notices.map((line) => h("p.muted", engineWords(line))),
    plan.fits ? null : h("p.field-error", { role: "alert" }, m.plan.tooLarge),
  );
}

function speed(): Child {
  return () => {
    const rate = form.tokPerSec();
    if (rate <= 0) return h("p.muted", m.plan.unmeasured);
    const end = new Date(Date.now() + form.seconds() * 1000).toISOString();
    return h(
      "p.finish",
      m.plan.speed(fmt.compact(rate), fmt.duration(form.seconds())),
      h("br"),
      h("span.muted", m.plan.finish(fmt.moment(end))),
    );
  };
}

async function probe(): Promise<void> {
  const key = form.probeKey.peek();
  const job = await api.probe(form.request.peek().settings);
  const result = await finished<ProbeResult>(job);
  form.probe.set({ key, result });
}

/** The learning rate over the run, as a line. */
function curve(plan: Plan): Child {
  const entered = form.entered.peek();
  const points = scheduleCurve(
    {
      kind: entered.schedule ?? "cosine",
      lr: plan.lr,
      minLr: plan.min_lr,
      warmup: plan.warmup,
      steps: plan.steps,
      decay: Number(entered.decay_steps) || Math.round(plan.steps / 5),
    },
    60,
  );
  if (points.length < 2) return null;
  const path = points.map(([x, y], i) => `${i === 0 ? "M" : "L"}${(x * 200).toFixed(1)} ${(38 - 34 * y).toFixed(1)}`).join("");
  return h(
    "figure.curve",
    s(
      "svg",
      { viewBox: "0 0 200 40", preserveAspectRatio: "none", role: "img", "aria-label": m.plan.curve },
      s("path", { d: path }),
    ),
    h(
      "figcaption",
      h("span", m.plan.peak(fmt.rate(plan.lr))),
      h("span", m.plan.warmup(fmt.number(plan.warmup))),
      h("span", m.plan.last(fmt.rate(plan.min_lr))),
    ),
  );
}

function problems(plan: Plan): Child {
  const labels = m.settings as Record<string, readonly [string, string]>;
  return h(
    "div.problems",
    { role: "alert" },
    h("h3", m.plan.problems),
    h(
      "ul",
      plan.problems.map((p) =>
        h("li", h("strong", labels[p.field.replace(/^model\./, "")]?.[0] ?? p.field), ": ", engineWords(p.message)),
      ),
    ),
  );
}
