// Going on with a run that has ended, and forking a new one off a checkpoint.
import type { Run, RunSettings } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { applyRuns, refresh, runs } from "../state/lists";
import { askPersistence } from "../state/storage";
import { h } from "../ui/dom";
import { action, dialog, field, select } from "../ui/parts";
import { computed, signal } from "../ui/reactive";
import { go } from "../ui/router";
import { parseNumber } from "../util/format";
import { freeName } from "../util/names";

/** Asks up to which step to go on. */
export function resumeDialog(run: Run): void {
  const steps = signal(String(Math.max(run.last_step, run.step) * 2 || 1000));
  const value = computed(() => parseNumber(steps(), true));
  const error = () => (value() > run.step ? undefined : m.train.moreThan(fmt.number(run.step)));
  dialog(m.train.goOn, (close) => [
    h("p", m.train.goOnText),
    field({ label: m.train.upTo, error }, (a) =>
      h("input", {
        ...a,
        type: "text",
        inputmode: "numeric",
        value: steps,
        oninput: (e: Event) => steps.set((e.target as HTMLInputElement).value),
      }),
    ),
    h(
      "div.row.end",
      action(
        m.train.goOn,
        async () => {
          void askPersistence();
          applyRuns([await api.resumeRun(run.name, { max_steps: value.peek() })]);
          close();
        },
        { class: "primary", icon: "play", disabled: () => error() !== undefined },
      ),
    ),
  ]);
}

/** Asks for a name, a checkpoint, and the settings that a fork usually changes. */
export function forkDialog(run: Run, step: number): void {
  const name = signal(
    freeName(
      run.name,
      runs.peek().map((r) => r.name),
    ),
  );
  const from = signal(String(step));
  const lr = signal("");
  const steps = signal("");
  const points: [string, string][] = [
    ["0", m.train.newest],
    ...(run.checkpoints ?? []).map((c) => [String(c.step), m.train.atStep(fmt.number(c.step))] as [string, string]),
  ];
  const input =
    (value: typeof name, extra: object = {}) =>
    (a: object) =>
      h("input", {
        ...a,
        type: "text",
        autocomplete: "off",
        value,
        oninput: (e: Event) => value.set((e.target as HTMLInputElement).value),
        ...extra,
      });
  const fork = async () => {
    const changes: Partial<RunSettings> = {};
    if (lr.peek().trim()) changes.lr = parseNumber(lr.peek());
    if (steps.peek().trim()) changes.max_steps = parseNumber(steps.peek(), true);
    void askPersistence();
    const made = await api.forkRun(run.name, { name: name.peek().trim(), step: Number(from.peek()) || undefined, ...changes });
    await refresh("runs");
    return made.name;
  };
  dialog(m.train.forkOf(run.name), (close) => [
    h("p", m.train.forkText),
    field({ label: m.common.name }, input(name)),
    field({ label: m.train.checkpoint }, (a) => select(points, from, from.set, a)),
    h(
      "div.grid",
      field(
        { label: m.settings.lr[0], help: m.train.asBefore },
        input(lr, { inputmode: "decimal", placeholder: run.settings.lr ? fmt.rate(run.settings.lr) : "" }),
      ),
      field(
        { label: m.settings.max_steps[0], help: m.train.asBefore },
        input(steps, { inputmode: "numeric", placeholder: fmt.number(run.settings.max_steps || run.last_step) }),
      ),
    ),
    h(
      "div.row.end",
      action(m.train.fork, async () => (go("train", await fork()), close()), { class: "primary", icon: "fork" }),
    ),
  ]);
}
