// The form for a new run: data, size, every setting, and beside it what the
// engine says about memory and time.
import { fmt, m } from "../i18n";
import { api, status } from "../state/engine";
import { data, models, refresh, texts } from "../state/lists";
import { askPersistence } from "../state/storage";
import { type Attributes, type Child, each, h } from "../ui/dom";
import { action, card, check, details, field, newId, select } from "../ui/parts";
import { computed } from "../ui/reactive";
import { refusalOf } from "../ui/refusal";
import { go, link } from "../ui/router";
import { chosenData, tickData } from "./choose";
import * as form from "./form";
import { planPanel } from "./plan";
import { type Group, type Setting, settings } from "./settings";

export function newRunView(): Child {
  form.planAsTyped();
  return h(
    "form.new-run",
    { onsubmit: (e: Event) => e.preventDefault(), novalidate: true },
    h("div.column", dataCard(), sizeCard(), basicCard(), everyCard()),
    h("aside.column.sticky", { "aria-label": m.plan.title }, planPanel(startButton())),
  );
}

function startButton(): Element {
  const ready = () => form.request().bad.length === 0 && form.plan() !== undefined && form.plan()!.problems.length === 0;
  return action(m.train.start, start, { icon: "play", class: "primary wide", disabled: () => !ready() });
}

async function start(): Promise<void> {
  void askPersistence();
  try {
    const run = await api.startRun(form.request.peek().settings);
    form.name.set("");
    await refresh("runs");
    go("train", run.name);
  } catch (error) {
    const refusal = refusalOf(error);
    if (!refusal) throw error;
    form.refused.set(refusal);
    requestAnimationFrame(() => document.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
  }
}

// ---- data

function dataCard(): Element {
  const problem = () => form.problemOf("data");
  return card(
    m.train.data,
    () => (data().length === 0 ? h("p.empty", m.train.noData, " ", h("a", { href: link("tokenizer") }, m.train.makeData)) : null),
    h(
      "ul.choices",
      each(
        data,
        (d) => d.name,
        (d) => dataRow(d().name, () => fmt.compact(d().tokens)),
      ),
    ),
    () => (problem() ? h("p.field-error", { role: "alert" }, problem()) : null),
    details(m.train.startFrom, initField(), loraFields(), chatFields()),
  );
}

function dataRow(name: string, tokens: () => string): Element {
  const id = newId("r");
  const chosen = () => chosenData().includes(name);
  const several = () => chosen() && chosenData().length > 1;
  const weight = () =>
    h("input.short", {
      type: "text",
      inputmode: "decimal",
      placeholder: m.train.bySize,
      "aria-label": m.train.weightOf(name),
      value: form.weights.peek()[name] ?? "",
      oninput: (e: Event) => form.weights.update((w) => ({ ...w, [name]: (e.target as HTMLInputElement).value })),
    });
  return h(
    "li.choice",
    h("input", {
      type: "checkbox",
      id,
      checked: chosen,
      // Chats are learned from instead.
      disabled: () => (form.request().settings.sft ?? []).length > 0,
      onchange: (e: Event) => tickData(name, (e.target as HTMLInputElement).checked),
    }),
    h(
      "label",
      { for: id },
      name,
      h("small", () => m.data.tokens(tokens())),
    ),
    () => (several() ? weight() : null),
  );
}

function initField(): Element {
  return field({ label: m.train.init, help: m.train.initHelp, error: () => form.problemOf("init") }, (attributes) =>
    h("div", () =>
      select(
        [["", m.train.fromRandom], ...models().map((x) => [x.name, `${x.name} (${fmt.compact(x.params)})`] as [string, string])],
        form.init,
        form.init.set,
        attributes,
      ),
    ),
  );
}

function loraFields(): Child {
  const on = computed(() => form.lora() !== undefined && form.init() !== "");
  const set = (key: "rank" | "alpha" | "targets") => (e: Event) =>
    form.lora.update((l) => l && { ...l, [key]: (e.target as HTMLInputElement).value });
  const input = (key: "rank" | "alpha", label: string, help: string) =>
    field({ label, help, error: () => form.problemOf(`lora.${key}`) }, (a) =>
      h("input", { ...a, type: "text", inputmode: "decimal", value: form.lora.peek()?.[key] ?? "", oninput: set(key) }),
    );
  return () => {
    if (!form.init()) return null;
    const toggle = (yes: boolean) => form.lora.set(yes ? { rank: "8", alpha: "16", targets: "all" } : undefined);
    const targets: [string, string][] = [
      ["all", m.train.loraAll],
      ["attn", m.train.loraAttention],
      ["ffn", m.train.loraFfn],
    ];
    return [
      check(m.train.lora, on, toggle, m.train.loraHelp),
      () =>
        on()
          ? h(
              "div.grid",
              input("rank", m.train.loraRank, m.train.loraRankHelp),
              input("alpha", m.train.loraAlpha, m.train.loraAlphaHelp),
              field({ label: m.train.loraTargets, error: () => form.problemOf("lora.targets") }, (a) =>
                select(
                  targets,
                  () => form.lora()?.targets ?? "all",
                  (v) => form.lora.update((l) => l && { ...l, targets: v }),
                  a,
                ),
              ),
            )
          : null,
    ];
  };
}

const templates: [string, string][] = [
  ["", "chatml"],
  ["llama3", "llama3"],
];

/** Fine-tuning on chats: texts of conversations instead of token files. */
function chatFields(): Child {
  return () => {
    const candidates = texts().filter((t) => t.format !== "text" && !t.sample);
    if (!form.init() || candidates.length === 0) return null;
    const toggle = (name: string) => (on: boolean) =>
      form.chats.update((old) => (on ? [...old, name] : old.filter((n) => n !== name)));
    return h(
      "fieldset",
      h("legend", m.train.chats),
      h("p.help", m.train.chatsHelp),
      candidates.map((t) => check(t.name, () => form.chats().includes(t.name), toggle(t.name))),
      field({ label: m.train.template, help: m.train.templateHelp, error: () => form.problemOf("template") }, (a) =>
        select(templates, form.template, form.template.set, a),
      ),
    );
  };
}

// ---- size

function sizeCard(): Element {
  const group = newId("preset");
  const choice = (name: string, params: number) =>
    h(
      "label.preset",
      h("input", {
        type: "radio",
        name: group,
        value: name,
        checked: () => form.preset() === name,
        disabled: () => form.init() !== "",
        onchange: () => form.preset.set(name),
      }),
      h("span.preset-name", name),
      h("span.preset-size", fmt.compact(params)),
      h("small", m.train.presets[name as keyof typeof m.train.presets] ?? ""),
    );
  return card(
    m.train.size,
    () => (form.init() ? h("p.muted", m.train.sizeOfInit) : null),
    h("fieldset.presets", h("legend.visually-hidden", m.train.preset), () => form.presets().map((p) => choice(p.name, p.params))),
    () => (form.problemOf("preset") ? h("p.field-error", { role: "alert" }, form.problemOf("preset")) : null),
  );
}

// ---- settings

function basicCard(): Element {
  return card(m.train.basics, h("div.grid", runNameField(), deviceField(), settings.filter((s) => s.basic).map(settingField)));
}

function everyCard(): Element {
  const groups = Object.keys(m.train.groups) as Group[];
  const rest = (g: Group) => settings.filter((s) => s.group === g && !s.basic);
  return card(
    m.train.every,
    groups.filter((g) => rest(g).length > 0).map((g) => details(m.train.groups[g], h("div.grid", rest(g).map(settingField)))),
  );
}

function runNameField(): Element {
  return field({ label: m.train.runName, help: m.train.runNameHelp, error: () => form.problemOf("name") }, (a) =>
    h("input", {
      ...a,
      type: "text",
      autocomplete: "off",
      placeholder: form.suggestedName,
      value: form.name,
      oninput: (e: Event) => form.name.set((e.target as HTMLInputElement).value),
    }),
  );
}

function deviceField(): Element {
  return field({ label: m.train.device, help: m.train.deviceHelp, error: () => form.problemOf("device") }, (a) =>
    h("div", () => {
      const list = (status()?.devices ?? []).map(
        (d) => [d.id, `${d.id} · ${d.name}${d.software ? ` (${m.place.software})` : ""}`] as [string, string],
      );
      return select([["", m.train.deviceAuto], ...list], form.device, form.device.set, a);
    }),
  );
}

function settingField(s: Setting): Element {
  const [label, help] = m.settings[s.key];
  const error = () => (form.request().bad.includes(s.key) ? m.train.notANumber : form.problemOf(s.key));
  if (s.kind === "flag") return flagField(s, label, help);
  return field({ label, help, error, note: effectNote(s) }, (attributes) =>
    s.kind === "choice" ? choiceInput(s, attributes) : textInput(s, attributes),
  );
}

function flagField(s: Setting, label: string, help: string): Element {
  const value = () => (form.entered()[s.key] ?? String(s.fallback?.(form.plan()) ?? false)) === "true";
  return h(
    "div.field",
    check([label, " ", effectNote(s)], value, (on) => form.enter(s.key, String(on)), help),
  );
}

function choiceInput(s: Setting, attributes: Attributes): Element {
  const words = m.choices as Record<string, string>;
  const options = s.options!.map((o) => [o, words[o] ?? o] as [string, string]);
  return select(
    options,
    () => form.entered()[s.key] ?? String(s.fallback?.(form.plan()) ?? s.options![0]),
    (v) => form.enter(s.key, v),
    attributes,
  );
}

function textInput(s: Setting, attributes: Attributes): Element {
  const placeholder = () => {
    const value = s.fallback?.(form.plan());
    if (value === undefined) return "";
    return typeof value === "number" ? (s.kind === "whole" ? fmt.number(value) : fmt.rate(value)) : String(value);
  };
  return h("input", {
    ...attributes,
    type: "text",
    inputmode: s.kind === "text" ? "text" : "decimal",
    autocomplete: "off",
    placeholder,
    value: () => form.entered()[s.key] ?? "",
    oninput: (e: Event) => form.enter(s.key, (e.target as HTMLInputElement).value),
  });
}

/** What the last change of this setting did to memory, size and time. */
function effectNote(s: Setting): Child {
  return () => {
    const effect = form.lastEffect();
    if (!effect || effect.key !== s.key) return null;
    const parts: string[] = [];
    const signed = (n: number, text: string) => `${n > 0 ? "+" : "−"}${text}`;
    if (effect.memory !== 0) parts.push(signed(effect.memory, fmt.bytes(Math.abs(effect.memory))));
    if (effect.params !== 0) parts.push(m.plan.moreParams(signed(effect.params, fmt.compact(Math.abs(effect.params)))));
    if (Number.isFinite(effect.time) && Math.abs(effect.time - 1) > 0.005)
      parts.push(m.plan.timesWork(fmt.number(effect.time, 2)));
    return h("span.effect", { role: "status" }, parts.length > 0 ? parts.join(" · ") : m.plan.noEffect);
  };
}
