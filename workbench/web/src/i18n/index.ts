// The language of the page. `m` is the catalogue in use; a change of language
// builds the page anew (main.ts), so nothing needs to follow it.
import { signal } from "../ui/reactive";
import * as format from "../util/format";
import { en } from "./en";
import { tr } from "./tr";

export type Language = format.Language;
export type Catalogue = typeof en;

const catalogues: Record<Language, Catalogue> = { en, tr };
const storageKey = "tezgah.language";

/** The language a person chose, or the first of the browser's that we have. */
function initialLanguage(): Language {
  const wanted = [localStorage.getItem(storageKey), ...navigator.languages];
  for (const w of wanted) {
    const short = w?.slice(0, 2).toLowerCase();
    if (short === "en" || short === "tr") return short;
  }
  return "en";
}

export const language = signal<Language>(initialLanguage());
export let m: Catalogue = catalogues[language.peek()];
document.documentElement.lang = language.peek();

export function setLanguage(next: Language): void {
  localStorage.setItem(storageKey, next);
  document.documentElement.lang = next;
  m = catalogues[next];
  language.set(next);
}

const now = () => language.peek();

/** The functions of util/format.ts in the language of the page. */
export const fmt = {
  number: (n: number | null | undefined, digits?: number) => format.formatNumber(now(), n, digits),
  fixed: (n: number | null | undefined, digits: number) => format.formatFixed(now(), n, digits),
  compact: (n: number | null | undefined) => format.formatCompact(now(), n),
  percent: (share: number, digits?: number) => format.formatPercent(now(), share, digits),
  rate: (n: number | null | undefined) => format.formatRate(now(), n),
  bytes: (n: number | null | undefined) => format.formatBytes(now(), n),
  duration: (s: number | null | undefined) => format.formatDuration(now(), s),
  ago: (iso: string) => format.formatAgo(now(), iso),
  moment: (iso: string) => format.formatMoment(now(), iso),
  list: (items: string[]) => new Intl.ListFormat(now(), { type: "conjunction" }).format(items),
};

/** A number as it was entered or preset, with the point of the language. */
export function localNumber(text: string): string {
  return now() === "tr" ? text.replace(".", ",") : text;
}
