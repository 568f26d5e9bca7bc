import assert from "node:assert/strict";
import { test } from "node:test";
import { en } from "../../src/i18n/en";
import { tr } from "../../src/i18n/tr";

type Leaf = string | ((...args: never[]) => string);

/** Every text of a catalogue by its path. */
function leaves(node: unknown, path = ""): [string, Leaf][] {
  if (typeof node === "string" || typeof node === "function") return [[path, node as Leaf]];
  return Object.entries(node as object).flatMap(([key, value]) => leaves(value, path ? `${path}.${key}` : key));
}

const english = new Map(leaves(en).filter(([path]) => path !== "pair"));
const turkish = new Map(leaves(tr).filter(([path]) => path !== "pair"));

/** A text with signs in place of its numbers and names. */
function filled(leaf: Leaf): string {
  if (typeof leaf === "string") return leaf;
  return (leaf as (...args: string[]) => string)("⟦1⟧", "⟦2⟧", "⟦3⟧");
}

test("both languages have the same texts", () => {
  assert.deepEqual([...turkish.keys()], [...english.keys()]);
});

test("no text is empty or has blanks at its ends", () => {
  for (const [path, leaf] of [...english, ...turkish]) {
    const text = filled(leaf);
    assert.ok(text.trim() !== "" && text === text.trim(), path);
  }
});

// Names of formats and formulas, units that are the same in both.
const same =
  /^(shell\.title|settings\.(beta[12]|eps)\.0|choices\.(silu|gelu_tanh)|tokenizer\.patterns\.\w+\.0|models\.formats\.\w+\.0|generate\.model|profile\.ms|units\..*|train\.presets.*)$/;

test("every text is translated", () => {
  const untranslated = [...english].filter(
    ([path, leaf]) => filled(leaf) === filled(turkish.get(path)!) && !same.test(path) && /\p{L}{3}/u.test(filled(leaf)),
  );
  // A text that only puts its parts together has no words of its own.
  assert.deepEqual(
    untranslated.map(([path]) => path).filter((path) => !/^(common\.of|models\.title|generate\.modelSays)$/.test(path)),
    [],
  );
});

test("a translation tells the same numbers and names", () => {
  for (const [path, leaf] of english) {
    if (typeof leaf === "string") continue;
    // Some texts take a number twice: for the plural and as it is written.
    if (leaf.length === 2 && /documents$/.test(path)) continue;
    const told = (text: string) => [...new Set(text.match(/⟦\d⟧/g) ?? [])].sort();
    assert.deepEqual(told(filled(turkish.get(path)!)), told(filled(leaf)), path);
  }
});

test("Turkish has Turkish letters and no English words", () => {
  const all = [...turkish.values()].map(filled).join(" ");
  for (const letter of "çğıöşüİ") assert.ok(all.includes(letter), letter);
  for (const word of ["the", "and", "training", "loss", "token file", "please"])
    assert.ok(!new RegExp(`(?<!\\p{L})${word}(?!\\p{L})`, "iu").test(all), word);
});
