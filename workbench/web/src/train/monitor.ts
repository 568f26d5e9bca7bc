// One run: its state and buttons, numbers, charts, samples, profile, checkpoints
// and settings.
import type { Run } from "../api/types";
import { fmt, m } from "../i18n";
import { downloadDialog } from "../home/models";
import { api } from "../state/engine";
import { applyRuns, isActive, loaded, refresh, runs, touchStatus } from "../state/lists";
import { dropLog, useLog } from "../state/runlog";
import { type Child, each, h } from "../ui/dom";
import { icon } from "../ui/icons";
import { action, badge, card, confirm, details, empty, engineWords, iconButton, progress, stat } from "../ui/parts";
import { computed, onCleanup } from "../ui/reactive";
import { go, link } from "../ui/router";
import { charts } from "./charts";
import { forkDialog, resumeDialog } from "./dialogs";
import { fillForm } from "./form";
import { chooseAll } from "./choose";
import { profileCard } from "./profile";
import { toEntered } from "./settings";
import { warningText } from "./warnings";

export function monitorView(name: string): Child {
  const run = computed(() => runs().find((r) => r.name === name));
  const exists = computed(() => run() !== undefined);
  return () => {
    if (!exists()) return loaded() ? empty([m.train.noRun(name), " ", h("a", { href: link("train") }, m.train.newRun)]) : null;
    const now = () => run() ?? runs.peek().find((r) => r.name === name)!;
    return [
      head(now),
      notices(now),
      h("section.card", { "aria-label": m.charts.title }, charts(name)),
      h(
        "div.columns",
        h("div.column", samplesCard(name), profileCard(now)),
        h("div.column", checkpointsCard(now), settingsCard(now)),
      ),
    ];
  };
}

// ---- head

function head(run: () => Run): Element {
  return h(
    "section.card.run-head",
    { "aria-label": run().name },
    h(
      "div.run-title",
      h("h2", run().name),
      badge(
        () => m.states[run().state],
        () => run().state,
      ),
      h("span.muted", () =>
        [fmt.compact(run().params), run().device && engineWords(run().device)].flatMap((x, i) =>
          x ? [i > 0 ? " · " : "", x] : [],
        ),
      ),
      h("div.run-buttons", buttons(run)),
    ),
    progress(
      m.train.progress,
      () => run().step,
      () => run().last_step,
    ),
    h("p.muted.numbers", () => progressText(run())),
    h(
      "dl.stats",
      stat(m.charts.names.loss, () => fmt.fixed(run().loss || NaN, 3)),
      stat(m.train.valLoss, () => fmt.fixed(run().val_loss || NaN, 3)),
      stat(m.train.perplexity, () => fmt.number(run().val_loss ? Math.exp(run().val_loss!) : NaN, 1), m.train.perplexityHelp),
      stat(m.charts.names.tok_per_s, () => fmt.compact(run().tok_per_s || NaN)),
      stat(m.train.tokensSeen, () => fmt.compact(run().tokens)),
      stat(m.charts.names.lr, () => fmt.rate(run().lr)),
    ),
  );
}

function progressText(run: Run): string {
  const parts = [m.train.stepOf(fmt.number(run.step), fmt.number(run.last_step)), m.train.elapsed(fmt.duration(run.elapsed_s))];
  if (isActive(run) && run.eta_s > 0) parts.push(m.common.left(fmt.duration(run.eta_s)));
  else parts.push(fmt.ago(run.updated));
  return parts.join(" · ");
}

function buttons(run: () => Run): Child {
  const state = computed(() => run().state);
  const name = run().name;
  return () => {
    const s = state();
    const active = s === "running" || s === "starting";
    const take = async (answer: Promise<Run>) => applyRuns([await answer]);
    return [
      active ? action(m.train.pause, () => take(api.pauseRun(name)), { icon: "pause" }) : null,
      active
        ? action(
            m.train.stop,
            async () => ((await confirm(m.train.stop, m.train.stopText, m.train.stop)) ? take(api.stopRun(name)) : undefined),
            { icon: "stop" },
          )
        : null,
      s === "paused" || s === "failed"
        ? action(m.train.resume, () => take(api.resumeRun(name, {})), { icon: "play", class: "primary" })
        : null,
      s === "done" || s === "stopped" ? action(m.train.goOn, () => resumeDialog(run()), { icon: "play" }) : null,
      s === "done" || s === "stopped" || s === "paused"
        ? h("a.btn.primary", { href: link("generate", name) }, icon("send"), h("span", m.train.write))
        : null,
      action(m.train.fork, () => forkDialog(run(), 0), { icon: "fork" }),
      !active && s !== "pausing" ? iconButton("trash", m.common.deleteOf(name), () => remove(name)) : null,
    ];
  };
}

async function remove(name: string): Promise<void> {
  if (!(await confirm(m.common.deleteOf(name), m.train.deleteText, m.common.delete))) return;
  await api.deleteRun(name);
  dropLog(name);
  runs.update((list) => list.filter((r) => r.name !== name));
  go("train");
  await refresh("runs", "models");
  touchStatus();
}

// ---- warnings

function notices(run: () => Run): Child {
  return () => {
    const { warnings, error, notices: lines } = run();
    if (!error && (warnings ?? []).length === 0 && (lines ?? []).length === 0) return null;
    return h(
      "div.warnings",
      error
        ? h("div.banner.bad", { role: "alert" }, icon("warn"), h("p", h("strong", m.train.failedTitle), " ", engineWords(error)))
        : null,
      (warnings ?? [])
        .slice(-4)
        .map((w) =>
          h(
            "div.banner.warn",
            { role: "status" },
            icon("warn"),
            h("p", h("span.muted", m.train.atStep(fmt.number(w.step)), " "), warningText(w)),
          ),
        ),
      engineNotes(lines ?? []),
    );
  };
}

/** The newest note in sight, such as that a device was lost and opened again; the older ones folded. */
function engineNotes(lines: string[]): Child {
  if (lines.length === 0) return null;
  const older = lines.slice(-30, -1).reverse();
  return [
    h("div.banner.info", { role: "status" }, icon("chip"), h("p", m.train.notes, " ", engineWords(lines[lines.length - 1]!))),
    older.length > 0
      ? details(
          m.train.olderNotes(fmt.number(older.length)),
          h(
            "ul.notices",
            older.map((n) => h("li", engineWords(n))),
          ),
        )
      : null,
  ];
}

// ---- samples, checkpoints, settings

function samplesCard(name: string): Element {
  const { log, release } = useLog(name);
  onCleanup(release);
  const samples = computed(() => {
    log.version();
    return log.samples.slice(-30).reverse();
  });
  return card(
    m.train.samples,
    () => (samples().length === 0 ? empty(m.train.noSamples) : null),
    h(
      "ol.samples",
      { tabindex: () => (samples().length > 0 ? 0 : undefined), "aria-label": m.train.samples },
      each(
        samples,
        (s) => `${s.step}-${s.time}`,
        (s) =>
          h(
            "li",
            h("span.muted.numbers", m.train.atStep(fmt.number(s().step))),
            h("blockquote", { translate: "no" }, s().message),
          ),
      ),
    ),
  );
}

function checkpointsCard(run: () => Run): Element {
  const list = () => [...(run().checkpoints ?? [])].reverse();
  return card(
    m.train.checkpoints,
    () => (list().length === 0 ? empty(m.train.noCheckpoints) : null),
    h(
      "ul.choices",
      each(
        list,
        (c) => String(c.step),
        (c) =>
          h(
            "li.choice.plain",
            h(
              "div.choice-text",
              h("strong.numbers", m.train.atStep(fmt.number(c().step))),
              h("small", () => `${fmt.bytes(c().bytes)} · ${fmt.ago(c().created)}`),
            ),
            action(m.train.fork, () => forkDialog(run(), c().step), { icon: "fork", class: "small" }),
          ),
      ),
    ),
    () =>
      list().length > 0 || run().state === "done"
        ? action(m.models.download, () => downloadDialog(run().name), { icon: "download" })
        : null,
  );
}

function settingsCard(run: () => Run): Element {
  const again = () => {
    const { settings } = run();
    fillForm(settings, toEntered(settings));
    chooseAll((settings.data ?? []).map((d) => d.name));
    go("train");
  };
  const labels = m.settings as Record<string, readonly [string, string]>;
  const words = m.choices as Record<string, string>;
  const rows = () =>
    Object.entries(toEntered(run().settings)).map(([key, value]) => [
      h("dt", labels[key]?.[0] ?? key),
      h("dd", value === "true" ? m.common.yes : value === "false" ? m.common.no : (words[value] ?? value)),
    ]);
  return card(
    m.train.settings,
    details(
      m.train.showSettings,
      h(
        "dl.facts",
        h("dt", m.train.data),
        h("dd", () => fmt.list((run().settings.data ?? []).map((d) => d.name)) || fmt.list(run().settings.sft ?? [])),
        () => (run().settings.preset ? [h("dt", m.train.preset), h("dd", run().settings.preset)] : null),
        () => rows(),
      ),
    ),
    h("div.row", action(m.train.another, again, { icon: "plus", class: "small" })),
  );
}
