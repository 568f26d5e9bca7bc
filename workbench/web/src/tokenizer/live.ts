// The live view: any text as the chosen tokenizer cuts it, while it is typed.
import type { Encoded } from "../api/types";
import { fmt, m } from "../i18n";
import { api } from "../state/engine";
import { models, tokenizers } from "../state/lists";
import { type Child, h } from "../ui/dom";
import { card, empty, field, newId, select, stat } from "../ui/parts";
import { computed, effect, onCleanup, signal, untrack } from "../ui/reactive";
import { showError } from "../ui/toast";
import { tokenStrip } from "../ui/tokens";
import { liveText, pickTokenizer, tokenizerName } from "./state";

/** As many tokens as are shown; more would slow the page and help nobody. */
const shown = 2000;
const largestText = 256 * 1024;
const typingMs = 120;

/** A model's tokenizer, chosen here only; "" follows the list of tokenizers. */
const ofModel = signal("");
const source = computed(() => ofModel() || tokenizerName());

export function liveCard(): Element {
  const encoded = signal<Encoded | undefined>(undefined);
  if (liveText.peek() === undefined) liveText.set(m.tokenizer.liveDefault);
  encodeAsTyped(encoded);
  return card(m.tokenizer.live, () =>
    tokenizers().length === 0 && models().length === 0 ? empty(m.tokenizer.liveNone) : liveContent(encoded),
  );
}

function encodeAsTyped(encoded: { set(e: Encoded | undefined): void }): void {
  let stop: AbortController | undefined;
  let timer = 0;
  onCleanup(() => (stop?.abort(), clearTimeout(timer)));
  effect(() => {
    const name = source();
    const text = liveText() ?? "";
    stop?.abort();
    clearTimeout(timer);
    if (!name) return encoded.set(undefined);
    const mine = (stop = new AbortController());
    timer = window.setTimeout(() => {
      api
        .encode(name, text.slice(0, largestText / 4), mine.signal)
        .then((e) => !mine.signal.aborted && encoded.set(e), showError);
    }, typingMs);
  });
}

function liveContent(encoded: () => Encoded | undefined): Child {
  const id = newId();
  return [
    sourceField(),
    h(
      "div.field",
      h("label", { for: id }, m.tokenizer.liveText),
      h("textarea", {
        id,
        rows: 4,
        value: liveText,
        oninput: (e: Event) => liveText.set((e.target as HTMLTextAreaElement).value),
      }),
    ),
    strip(encoded),
    numbers(encoded),
  ];
}

function sourceField(): Child {
  return () => {
    const own = tokenizers().map((t) => [t.name, t.name] as [string, string]);
    const foreign = models().map((x) => [`model:${x.name}`, m.tokenizer.ofModel(x.name)] as [string, string]);
    const choose = (value: string) => {
      const model = value.startsWith("model:");
      ofModel.set(model ? value : "");
      if (!model) pickTokenizer(value);
    };
    return field({ label: m.tokenizer.through }, (attributes) => select([...own, ...foreign], source, choose, attributes));
  };
}

function strip(encoded: () => Encoded | undefined): Child {
  const tokens = () => untrack(() => encoded()?.tokens ?? []);
  const view = tokenStrip({
    label: m.tokenizer.tokens,
    marks: true,
    inspect: (i) => {
      const token = tokens()[i];
      if (!token) return null;
      return h(
        "dl.facts.tight",
        h("dt", m.tokenizer.id),
        h("dd.mono", fmt.number(token.id)),
        h("dt", m.tokenizer.tokenText),
        h("dd.mono", { translate: "no" }, JSON.stringify(token.text)),
        h("dt", m.tokenizer.bytes),
        h("dd", fmt.number(token.end - token.start)),
        token.special ? [h("dt", m.tokenizer.kind), h("dd", m.tokenizer.special)] : null,
      );
    },
  });
  effect(() => {
    const list = encoded()?.tokens ?? [];
    view.replace(list.slice(0, shown).map((t, i) => ({ text: t.text, class: colour(t.id, list[i - 1]?.id, t.special) })));
  });
  return [
    view.element,
    () =>
      (encoded()?.tokens.length ?? 0) > shown
        ? h("p.muted", m.tokenizer.capped(fmt.number(shown), fmt.number(encoded()!.tokens.length)))
        : null,
  ];
}

const dyes = 7;

/** A dye by the id, so that equal tokens look equal, and neighbours differ. */
function colour(id: number, before: number | undefined, special: boolean): string {
  if (special) return "special";
  const dye = id % dyes;
  return `dye${before !== undefined && before % dyes === dye && before !== id ? (dye + 1) % dyes : dye}`;
}

function numbers(encoded: () => Encoded | undefined): Child {
  return h(
    "dl.stats",
    stat(m.tokenizer.tokens, () => fmt.number(encoded()?.tokens.length)),
    stat(m.tokenizer.bytes, () => fmt.number(encoded()?.bytes)),
    stat(m.tokenizer.bytesPerToken, () => fmt.fixed(encoded()?.bytes_per_token, 2)),
    stat(m.tokenizer.tokensPerWord, () => fmt.fixed(encoded()?.tokens_per_word, 2)),
    stat(m.tokenizer.vocabUsed, () => fmt.number(encoded()?.vocab_used)),
  );
}
