// The Generate tab: a model, a prompt or a chat, how to choose the next token,
// and the text as it comes.
import { fmt, localNumber, m } from "../i18n";
import { models } from "../state/lists";
import { type Child, h } from "../ui/dom";
import { action, card, check, details, field, segmented, select } from "../ui/parts";
import { computed } from "../ui/reactive";
import { go, link } from "../ui/router";
import { showError as report } from "../ui/toast";
import { chatCard } from "./chat";
import { outputCard } from "./output";
import * as state from "./state";

export function generateView(): Child {
  const some = computed(() => models().length > 0);
  const chatting = computed(() => state.canChat() && state.chatMode());
  return [
    h("header.view-head", h("h1", m.generate.title), h("p.lead", m.generate.lead)),
    () =>
      some()
        ? h(
            "div.columns.wide-left",
            h("div.column", () => (chatting() ? chatCard() : [promptCard(), outputCard()])),
            h("div.column", modelCard(), samplingCard()),
          )
        : h("p.empty.card", m.generate.noModels, " ", h("a", { href: link("home") }, m.generate.toHome)),
  ];
}

function modelCard(): Element {
  const options = () => models().map((x) => [x.name, `${x.name} · ${fmt.compact(x.params)}`] as [string, string]);
  const fact = (name: string, value: Child) => [h("dt", name), h("dd", value)];
  const modes: [string, string][] = [
    ["chat", m.generate.chat],
    ["text", m.generate.text],
  ];
  return card(
    m.generate.model,
    () =>
      field({ label: m.generate.model, class: "bare" }, (a) =>
        select(options(), state.modelName, (name) => go("generate", name), a),
      ),
    () => {
      const x = state.model();
      if (!x) return null;
      const loss = x.val_loss || x.loss;
      return h(
        "dl.facts",
        fact(m.plan.params, fmt.number(x.params)),
        fact(m.train.valLoss, loss ? fmt.fixed(loss, 3) : "–"),
        fact(m.settings.context[0], fmt.number(x.context)),
        fact(m.tokenizer.vocab, fmt.number(x.vocab_size)),
        fact(m.models.trained, x.trained_tokens ? m.data.tokens(fmt.compact(x.trained_tokens)) : "–"),
      );
    },
    () =>
      state.canChat()
        ? segmented(
            m.generate.mode,
            modes,
            () => (state.chatMode() ? "chat" : "text"),
            (v) => state.chatMode.set(v === "chat"),
          )
        : null,
  );
}

function promptCard(): Element {
  const submit = (e: KeyboardEvent) => {
    if (e.key !== "Enter" || !(e.ctrlKey || e.metaKey)) return;
    e.preventDefault();
    (document.getElementById("generate-start") as HTMLButtonElement | null)?.click();
  };
  return card(
    m.generate.prompt,
    field({ label: m.generate.prompt, class: "bare", help: m.generate.promptHelp }, (a) =>
      h("textarea", {
        ...a,
        rows: 4,
        placeholder: m.generate.promptExample,
        value: state.prompt,
        onkeydown: submit,
        oninput: (e: Event) => state.prompt.set((e.target as HTMLTextAreaElement).value),
      }),
    ),
    generateButtons(),
  );
}

function generateButtons(): Element {
  const bad = () => (Object.keys(state.sampling) as state.SamplingKey[]).some(state.isBad);
  return h("div.row", () =>
    state.busy()
      ? action(m.generate.stop, state.stop, { icon: "stop", class: "primary" })
      : [
          action(m.generate.start, () => void state.generate().catch(report), {
            icon: "play",
            class: "primary",
            id: "generate-start",
            disabled: bad,
          }),
          () =>
            state.output()
              ? action(m.generate.again, () => void state.generate(state.output()!.seed).catch(report), {
                  icon: "again",
                  disabled: bad,
                  title: m.generate.againHelp,
                })
              : null,
        ],
  );
}

function samplingCard(): Element {
  return card(
    m.generate.sampling,
    (Object.keys(state.sampling) as state.SamplingKey[]).map(samplingField),
    details(
      m.tokenizer.more,
      field({ label: m.generate.stopTexts, help: m.generate.stopTextsHelp }, (a) =>
        h("textarea", {
          ...a,
          rows: 2,
          spellcheck: "false",
          value: state.stopTexts,
          oninput: (e: Event) => state.stopTexts.set((e.target as HTMLTextAreaElement).value),
        }),
      ),
      check(m.generate.ignoreEnd, state.ignoreEnd, state.ignoreEnd.set, m.generate.ignoreEndHelp),
      field({ label: m.settings.precision[0], help: m.generate.precisionHelp }, (a) =>
        select(
          [
            ["f32", m.choices.f32],
            ["mixed", m.choices.mixed],
          ],
          state.precision,
          state.precision.set,
          a,
        ),
      ),
    ),
  );
}

const sliders: Partial<Record<state.SamplingKey, readonly [number, number, number]>> = {
  temperature: [0, 2, 0.05],
  top_p: [0.05, 1, 0.05],
  min_p: [0, 0.5, 0.01],
  repetition_penalty: [0.8, 2, 0.05],
};

function samplingField(key: state.SamplingKey): Element {
  const [label, help] = m.sampling[key];
  const value = state.sampling[key];
  const set = (e: Event) => value.set((e.target as HTMLInputElement).value);
  const error = () =>
    state.isBad(key) ? m.generate.between(fmt.number(state.ranges[key][0], 2), fmt.number(state.ranges[key][1], 2)) : undefined;
  const slider = sliders[key];
  return field({ label, help, error, class: slider ? "sampling" : "sampling inline" }, (a) =>
    h(
      "div.with-slider",
      slider
        ? h("input", {
            type: "range",
            min: slider[0],
            max: slider[1],
            step: slider[2],
            "aria-label": label,
            value: () => String(state.valueOf(key) ?? slider[0]),
            oninput: set,
          })
        : null,
      h("input.short", {
        ...a,
        type: "text",
        inputmode: "decimal",
        autocomplete: "off",
        value: () => localNumber(value()),
        placeholder: key === "seed" ? m.generate.random : "",
        oninput: set,
      }),
    ),
  );
}
