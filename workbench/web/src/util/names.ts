// Names of texts, runs and models by the rule of docs/api.md: 1 to 64 letters,
// digits, -, _ and ., not beginning with a point.

const allowed = /^[\p{L}\p{N}_-][\p{L}\p{M}\p{N}_.-]{0,63}$/u;

export function isName(name: string): boolean {
  return allowed.test(name);
}

/** Makes a name of whatever a file is called; "text" if nothing is left. */
export function toName(label: string, fallback = "text"): string {
  const name = label
    .normalize("NFC")
    .replace(/\.(txt|md|jsonl|json|parquet|bin|llm|zip|gz|zst)(\.(gz|zst))?$/i, "")
    .replace(/[^\p{L}\p{N}_.-]+/gu, "-")
    .replace(/^[.-]+|[.-]+$/g, "");
  return [...name].slice(0, 48).join("") || fallback;
}

/** The name itself, or with -2, -3 … behind it if it is taken; names that differ in case alone are one. */
export function freeName(name: string, taken: Iterable<string>): string {
  const used = new Set([...taken].map((t) => t.toLowerCase()));
  if (!used.has(name.toLowerCase())) return name;
  for (let n = 2; ; n++) if (!used.has(`${name}-${n}`.toLowerCase())) return `${name}-${n}`;
}
