// Training a tokenizer, and the tokenizers that there are.
import { filePaths } from "../api/client";
import type { Tokenizer } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { finished, jobOf, refresh, tokenizers } from "../state/lists";
import { each, h } from "../ui/dom";
import { dropZone, type Picked } from "../ui/drop";
import { jobView } from "../ui/job";
import { action, card, check, confirm, details, empty, field, iconButton, newId, select } from "../ui/parts";
import { signal } from "../ui/reactive";
import { type Refusal, refusalOf, refusalText } from "../ui/refusal";
import { download } from "../ui/save";
import { toast } from "../ui/toast";
import { parseNumber } from "../util/format";
import { freeName, toName } from "../util/names";
import { chosenTexts, form, pickTokenizer, tokenizerName } from "./state";

const smallest = 512;
const largest = 65536;
/** What Turkish is advised to take; see the help text for why. */
const advised = 32768;

const refused = signal<Refusal | undefined>(undefined);

export function trainCard(): Element {
  return card(
    m.tokenizer.train,
    vocabField(),
    patternField(),
    details(m.tokenizer.more, nameField(), specialsField(), check(m.tokenizer.nfc, form.nfc, form.nfc.set, m.tokenizer.nfcHelp)),
    () =>
      running()
        ? null
        : h(
            "div.row",
            action(m.tokenizer.start, start, { icon: "play", class: "primary", disabled: () => chosenTexts().length === 0 }),
            h("span.muted", () => m.tokenizer.startFrom(chosenTexts().length)),
          ),
    jobView(() => jobOf("tokenizer"), m.tokenizer.training),
    h("h3", m.tokenizer.list),
    () => (tokenizers().length === 0 ? empty(m.tokenizer.none) : null),
    h(
      "ul.choices",
      each(
        tokenizers,
        (t) => t.name,
        (t) => tokenizerRow(t),
      ),
    ),
    dropZone({ text: m.tokenizer.load, accept: ".json", take: loadTokenizer }),
  );
}

const running = () => jobOf("tokenizer")?.state === "running";

const errorOf = (name: string) => () => (refused()?.field === name ? refusalText(refused()!) : undefined);

/** A slider in powers of two beside an exact number. */
function vocabField(): Element {
  const exponent = () => Math.log2(form.vocabSize());
  const outOfRange = () => {
    const n = form.vocabSize();
    return n >= smallest && n <= largest && Number.isInteger(n)
      ? undefined
      : m.tokenizer.vocabRange(fmt.number(smallest), fmt.number(largest));
  };
  const error = () => outOfRange() ?? errorOf("vocab_size")();
  return field({ label: m.tokenizer.vocab, help: m.tokenizer.vocabHelp, error }, (attributes) =>
    h(
      "div.vocab",
      h("input", {
        type: "range",
        min: Math.log2(smallest),
        max: Math.log2(largest),
        step: 1,
        value: () => exponent(),
        "aria-label": m.tokenizer.vocabSlider,
        "aria-valuetext": () => fmt.number(form.vocabSize()),
        oninput: (e: Event) => form.vocabSize.set(2 ** Number((e.target as HTMLInputElement).value)),
      }),
      h("input.short", {
        ...attributes,
        type: "text",
        inputmode: "numeric",
        value: () => fmt.number(form.vocabSize()),
        onchange: (e: Event) => form.vocabSize.set(parseNumber((e.target as HTMLInputElement).value, true)),
      }),
      h(
        "button.btn.small",
        {
          type: "button",
          "aria-pressed": () => form.vocabSize() === advised,
          onclick: () => (form.vocabSize.set(advised), form.pattern.set("turkish")),
        },
        m.tokenizer.advised,
      ),
    ),
  );
}

function patternField(): Element {
  const options = Object.entries(m.tokenizer.patterns).map(([key, [name]]) => [key, name] as [string, string]);
  const help = () => (m.tokenizer.patterns as Record<string, readonly [string, string]>)[form.pattern()]?.[1];
  return field(
    { label: m.tokenizer.pattern, help: [m.tokenizer.patternHelp, " ", help], error: errorOf("pattern") },
    (attributes) => select(options, form.pattern, form.pattern.set, attributes),
  );
}

function nameField(): Element {
  return field({ label: m.common.name, error: errorOf("name") }, (attributes) =>
    h("input", {
      ...attributes,
      type: "text",
      autocomplete: "off",
      placeholder: suggestedName,
      value: form.name,
      oninput: (e: Event) => form.name.set((e.target as HTMLInputElement).value),
    }),
  );
}

function specialsField(): Element {
  return field({ label: m.tokenizer.specials, help: m.tokenizer.specialsHelp, error: errorOf("specials") }, (attributes) =>
    h("textarea", {
      ...attributes,
      rows: 3,
      spellcheck: "false",
      placeholder: "<|im_start|>\n<|im_end|>",
      value: form.specials,
      oninput: (e: Event) => form.specials.set((e.target as HTMLTextAreaElement).value),
    }),
  );
}

function suggestedName(): string {
  const base = chosenTexts()[0] ?? "sample";
  return freeName(
    `${base}-${fmt.compact(form.vocabSize()).replace(/[^\p{L}\p{N}]/gu, "")}`,
    tokenizers().map((t) => t.name),
  );
}

async function start(): Promise<void> {
  refused.set(undefined);
  const specials = form.specials.peek().split(/\s+/).filter(Boolean);
  try {
    const job = await api.trainTokenizer({
      name: form.name.peek().trim() || suggestedName(),
      texts: chosenTexts(),
      vocab_size: form.vocabSize.peek(),
      pattern: form.pattern.peek(),
      specials: specials.length > 0 ? specials : undefined,
      nfc: form.nfc.peek() || undefined,
    });
    // The button is free again at once; the job is shown below it.
    void finished<Tokenizer>(job).then(trained, () => {});
  } catch (error) {
    const refusal = refusalOf(error);
    if (!refusal) throw error;
    refused.set(refusal);
  }
}

async function trained(made: Tokenizer): Promise<void> {
  form.name.set("");
  await refresh("tokenizers");
  pickTokenizer(made.name);
  toast({ kind: "done", title: m.tokenizer.trained(made.name, fmt.number(made.vocab_size)) });
}

function tokenizerRow(tokenizer: () => Tokenizer): Element {
  const { name } = tokenizer();
  const id = newId("k");
  const facts = () =>
    [m.tokenizer.ids(fmt.number(tokenizer().vocab_size)), tokenizer().pattern, fmt.ago(tokenizer().created)]
      .filter(Boolean)
      .join(" · ");
  return h(
    "li.choice",
    h("input", {
      type: "radio",
      name: "tokenizer",
      id,
      checked: () => tokenizerName() === name,
      onchange: () => pickTokenizer(name),
    }),
    h("label", { for: id }, name, h("small", facts)),
    iconButton("download", m.tokenizer.save(name), () => download(filePaths.tokenizer(name), `${name}.json`)),
    iconButton("trash", m.common.deleteOf(name), () => removeTokenizer(name)),
  );
}

async function removeTokenizer(name: string): Promise<void> {
  if (!(await confirm(m.common.deleteOf(name), m.common.deleteText, m.common.delete))) return;
  await api.deleteTokenizer(name);
  await refresh("tokenizers");
}

export async function loadTokenizer(picked: Picked): Promise<void> {
  const { path, file } = picked.files[0]!;
  const name = freeName(
    toName(path, "tokenizer"),
    tokenizers.peek().map((t) => t.name),
  );
  await api.putTokenizer(name, file);
  await refresh("tokenizers");
  pickTokenizer(name);
  toast({ kind: "done", title: m.tokenizer.loaded(name) });
}
