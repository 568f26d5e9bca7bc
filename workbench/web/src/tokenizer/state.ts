// What a person has chosen on the Tokenizer tab; it outlives the view.
import { tokenizers } from "../state/lists";
import { computed, signal } from "../ui/reactive";

/** Names of the texts that are ticked; undefined until a person has touched them. */
export const ticked = signal<ReadonlySet<string> | undefined>(undefined);

/** The texts in use: those ticked, or the sample. */
export const chosenTexts = computed(() => [...(ticked() ?? new Set(["sample"]))]);

export function tick(name: string, on: boolean): void {
  const next = new Set(ticked.peek() ?? ["sample"]);
  if (on) next.add(name);
  else next.delete(name);
  ticked.set(next);
}

export const form = {
  name: signal(""),
  vocabSize: signal(8192),
  pattern: signal("llama3"),
  specials: signal(""),
  nfc: signal(false),
};

export const dataForm = {
  name: signal(""),
  split: signal(true),
  dedupe: signal(false),
  skipBad: signal(true),
};

/** The tokenizer that is looked through and that builds token files. */
const picked = signal("");
export const tokenizerName = computed(() => {
  const list = tokenizers();
  return list.some((t) => t.name === picked()) ? picked() : (list[0]?.name ?? "");
});
export const pickTokenizer = (name: string) => picked.set(name);

/** The text of the live view; empty until the view has set its first. */
export const liveText = signal<string | undefined>(undefined);
