// Which token files the next run trains on; the Tokenizer tab chooses too.
import { data } from "../state/lists";
import { computed, signal } from "../ui/reactive";

const ticked = signal<readonly string[] | undefined>(undefined);

/** The chosen names that exist; the newest file until a person has chosen. */
export const chosenData = computed((): string[] => {
  const all = data();
  const names = ticked();
  if (names === undefined) return all.slice(0, 1).map((d) => d.name);
  return names.filter((n) => all.some((d) => d.name === n));
});

/** Chooses one token file alone. */
export function choose(name: string): void {
  ticked.set([name]);
}

export function tickData(name: string, on: boolean): void {
  const rest = chosenData.peek().filter((n) => n !== name);
  ticked.set(on ? [...rest, name] : rest);
}

export function chooseAll(names: string[]): void {
  ticked.set(names);
}
