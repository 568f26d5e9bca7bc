import assert from "node:assert/strict";
import { test } from "node:test";
import {
  formatAgo,
  formatBytes,
  formatCompact,
  formatDuration,
  formatNumber,
  formatPercent,
  formatRate,
  parseNumber,
} from "../../src/util/format";

// Intl writes narrow and no-break spaces in places; a test should not care which.
const plain = (text: string) => text.replace(/[\u00a0\u202f]/g, " ");

test("numbers follow the language", () => {
  assert.equal(formatNumber("en", 1049728), "1,049,728");
  assert.equal(formatNumber("tr", 1049728), "1.049.728");
  assert.equal(formatNumber("tr", 2.5, 2), "2,5");
  assert.equal(plain(formatPercent("tr", 0.256, 1)), "%25,6");
  for (const none of [undefined, null, NaN, Infinity]) assert.equal(formatNumber("en", none), "–");
});

test("short numbers are short, and Turkish thousands are written out", () => {
  assert.equal(formatCompact("en", 1049728), "1.05M");
  assert.equal(formatCompact("en", 614400), "614K");
  assert.equal(plain(formatCompact("tr", 1049728)), "1,05 Mn");
  assert.equal(formatCompact("tr", 614400), "614.000");
  assert.equal(plain(formatCompact("tr", 999600)), "1 Mn");
});

test("sizes are in powers of 1024", () => {
  const cases: [number, string][] = [
    [0, "0 B"],
    [1023, "1,023 B"],
    [1024, "1 KiB"],
    [1536, "1.5 KiB"],
    [106.3 * 2 ** 20, "106 MiB"],
    [23 * 2 ** 30, "23 GiB"],
    [5000 * 2 ** 40, "5,000 TiB"],
  ];
  for (const [bytes, want] of cases) assert.equal(formatBytes("en", bytes), want);
  assert.equal(formatBytes("tr", 1536), "1,5 KiB");
  assert.equal(formatBytes("en", -1), "–");
});

test("durations have two units at most, and never 60 of one", () => {
  const cases: [number, string][] = [
    [0, "0 s"],
    [0.0421, "42 ms"],
    [0.0001, "1 ms"],
    [2.25, "2.3 s"],
    [59.4, "59 s"],
    [59.6, "1 min"],
    [156, "2 min 36 s"],
    [3599.7, "1 h"],
    [7320, "2 h 2 min"],
    [86399, "1 d"],
    [90000, "1 d 1 h"],
  ];
  for (const [seconds, want] of cases) assert.equal(formatDuration("en", seconds), want);
  assert.equal(formatDuration("tr", 156), "2 dk 36 sn");
  assert.equal(formatDuration("en", NaN), "–");
});

test("learning rates stay readable", () => {
  assert.equal(formatRate("en", 0.003), "0.003");
  assert.equal(formatRate("en", 0.0001234), "1.23e-4");
  assert.equal(formatRate("tr", 0.00015), "1,5e-4");
  assert.equal(formatRate("en", 0), "0");
});

test("ages", () => {
  const now = Date.parse("2026-03-01T12:00:00Z");
  assert.equal(formatAgo("en", "2026-03-01T11:59:40Z", now), "now");
  assert.match(formatAgo("en", "2026-03-01T11:57:00Z", now), /^3 min/);
  assert.equal(formatAgo("tr", "2026-02-28T12:00:00Z", now), "dün");
  assert.match(formatAgo("en", "2025-03-01T12:00:00Z", now), /2025/);
  assert.equal(formatAgo("en", "never", now), "–");
});

test("numbers are read as people write them", () => {
  const cases: [string, boolean, number][] = [
    ["1.5", false, 1.5],
    ["1,5", false, 1.5],
    ["3e-4", false, 3e-4],
    ["1 000", false, 1000],
    ["32K", true, 32768],
    ["2M", true, 2 * 1024 ** 2],
    ["1,000", true, 1000],
    ["1.049.728", true, 1049728],
    ["1,000", false, 1],
    ["-1", true, -1],
    [".5", false, 0.5],
  ];
  for (const [text, whole, want] of cases) assert.equal(parseNumber(text, whole), want, `${text} ${whole}`);
  for (const text of ["", "abc", "1.2.3", "1e", "--1", "0x10", ".", "K"]) assert.ok(Number.isNaN(parseNumber(text)), text);
});

test("what was written is read back", () => {
  for (const language of ["en", "tr"] as const) {
    for (const n of [0, 7, 512, 65536, 1049728, 2 ** 40]) assert.equal(parseNumber(formatNumber(language, n), true), n);
  }
});
