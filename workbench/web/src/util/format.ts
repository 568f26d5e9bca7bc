// Numbers, sizes and times as people read them, by Intl in the language of the
// page. Every function takes the language, so that they can be tested alone;
// i18n/index.ts has the same with the language of the page.

export type Language = "en" | "tr";

/** Words that Intl does not have in short form. */
const units = {
  en: { d: "d", h: "h", min: "min", s: "s", ms: "ms" },
  tr: { d: "gün", h: "sa", min: "dk", s: "sn", ms: "ms" },
};

const cache = new Map<string, Intl.NumberFormat>();

function numberFormat(language: Language, options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = language + JSON.stringify(options);
  let found = cache.get(key);
  if (!found) cache.set(key, (found = new Intl.NumberFormat(language, options)));
  return found;
}

/** A number with at most so many digits behind the point; "–" if it is none. */
export function formatNumber(language: Language, n: number | null | undefined, digits = 0): string {
  if (n === undefined || n === null || !Number.isFinite(n)) return "–";
  return numberFormat(language, { maximumFractionDigits: digits }).format(n);
}

/** A number with exactly so many digits behind the point, for columns and losses. */
export function formatFixed(language: Language, n: number | null | undefined, digits: number): string {
  if (n === undefined || n === null || !Number.isFinite(n)) return "–";
  return numberFormat(language, { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(n);
}

/**
 * 1,049,728 as 1.05M, in three significant digits. Turkish writes thousands out:
 * their short form, B for bin, reads as bytes.
 */
export function formatCompact(language: Language, n: number | null | undefined): string {
  if (n === undefined || n === null || !Number.isFinite(n)) return "–";
  const out = language === "tr" && Math.abs(n) < 999_500;
  return numberFormat(language, { notation: out ? "standard" : "compact", maximumSignificantDigits: 3 }).format(n);
}

/** A share of one as percent. */
export function formatPercent(language: Language, share: number, digits = 0): string {
  if (!Number.isFinite(share)) return "–";
  return numberFormat(language, { style: "percent", maximumFractionDigits: digits }).format(share);
}

/** A small number such as a learning rate: 0.003, or 3.2e-5 below a thousandth. */
export function formatRate(language: Language, n: number | null | undefined): string {
  if (n === undefined || n === null || !Number.isFinite(n)) return "–";
  if (n === 0 || Math.abs(n) >= 1e-3) return numberFormat(language, { maximumSignificantDigits: 4 }).format(n);
  const [mantissa, exponent] = n.toExponential(2).split("e");
  return `${numberFormat(language, { maximumFractionDigits: 2 }).format(Number(mantissa))}e${exponent}`;
}

const byteUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Bytes in powers of 1024, as the rest of Tezgah writes them. */
export function formatBytes(language: Language, n: number | null | undefined): string {
  if (n === undefined || n === null || !Number.isFinite(n) || n < 0) return "–";
  let unit = 0;
  while (n >= 1024 && unit < byteUnits.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${formatNumber(language, n, unit === 0 || n >= 100 ? 0 : 1)} ${byteUnits[unit]}`;
}

/** Seconds as "2 min 36 s", with two units at most. */
export function formatDuration(language: Language, seconds: number | null | undefined): string {
  if (seconds === undefined || seconds === null || !Number.isFinite(seconds) || seconds < 0) return "–";
  const u = units[language];
  if (seconds > 0 && seconds < 1) return `${formatNumber(language, Math.max(1, seconds * 1000))} ${u.ms}`;
  if (seconds < 10) return `${formatNumber(language, seconds, 1)} ${u.s}`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} ${u.s}`;
  if (whole < 3600) return pair(Math.floor(whole / 60), u.min, whole % 60, u.s);
  const minutes = Math.round(seconds / 60);
  if (minutes < 1440) return pair(Math.floor(minutes / 60), u.h, minutes % 60, u.min);
  const hours = Math.round(seconds / 3600);
  return pair(Math.floor(hours / 24), u.d, hours % 24, u.h);
}

function pair(a: number, unitA: string, b: number, unitB: string): string {
  return b === 0 ? `${a} ${unitA}` : `${a} ${unitA} ${b} ${unitB}`;
}

/** How long ago a moment was, "3 minutes ago". */
export function formatAgo(language: Language, iso: string, now = Date.now()): string {
  const seconds = (Date.parse(iso) - now) / 1000;
  if (!Number.isFinite(seconds)) return "–";
  const format = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
  const size = Math.abs(seconds);
  if (size < 45) return format.format(0, "second");
  if (size < 3570) return format.format(Math.round(seconds / 60), "minute");
  if (size < 86400) return format.format(Math.round(seconds / 3600), "hour");
  if (size < 30 * 86400) return format.format(Math.round(seconds / 86400), "day");
  return new Intl.DateTimeFormat(language, { dateStyle: "medium" }).format(Date.parse(iso));
}

/** A moment in full, for titles. */
export function formatMoment(language: Language, iso: string): string {
  const time = Date.parse(iso);
  return Number.isFinite(time)
    ? new Intl.DateTimeFormat(language, { dateStyle: "medium", timeStyle: "short" }).format(time)
    : "–";
}

/**
 * Reads a number that a person typed: "1,5" and "1.5", "32K", "3e-4", "1 000";
 * with whole also "1,000" and "1.000" as a thousand. NaN if it is none.
 */
export function parseNumber(text: string, whole = false): number {
  let clean = text.trim().replace(/[\s_\u00a0\u202f]/g, "");
  if (whole && /^\d{1,3}([.,]\d{3})+$/.test(clean)) clean = clean.replace(/[.,]/g, "");
  const match = /^([+-]?\d*(?:[.,]\d*)?(?:e[+-]?\d+)?)([kKmMgG]?)$/i.exec(clean);
  if (!match || !/\d/.test(match[1]!)) return NaN;
  const factor = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3 }[match[2]!.toLowerCase()]!;
  return Number(match[1]!.replace(",", ".")) * factor;
}
