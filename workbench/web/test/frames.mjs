// Measures how smooth the page is under load: the times between frames, and the
// tasks of the page that held one up. Prints one JSON object.
//
//	node test/frames.mjs mock   what no engine sends: a thousand steps a second into
//	                            four charts of two runs, text at 160 tokens a second,
//	                            and typing into a long text that is cut into tokens
//	node test/frames.mjs tab    a run that trains in the tab (make web first)
import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { openBrowser, openPage, openProfile } from "./browser.mjs";
import { fillRun, makeData, makeText, makeTokenizer, startRun } from "./journey.mjs";
import { startMock } from "./mock.mjs";
import { startStatic } from "./places.mjs";

const seconds = 6;

/** Runs in the page: the gaps between frames and the long tasks of so many seconds. */
function watch(s) {
  return new Promise((resolve) => {
    const gaps = [];
    const tasks = [];
    const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration)));
    observer.observe({ type: "longtask" });
    const start = performance.now();
    let last = start;
    const frame = (now) => {
      gaps.push(now - last);
      last = now;
      if (now - start < 1000 * s) requestAnimationFrame(frame);
      else resolve({ gaps: gaps.slice(1), tasks });
    };
    requestAnimationFrame(frame);
  });
}

function summary({ gaps, tasks }) {
  const sorted = [...gaps].sort((a, b) => a - b);
  const at = (q) => Number(sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))].toFixed(1));
  return {
    frames: gaps.length,
    median_ms: at(0.5),
    p95_ms: at(0.95),
    p99_ms: at(0.99),
    max_ms: at(1),
    over_50_ms: gaps.filter((g) => g > 50).length,
    long_tasks: tasks.length,
    longest_task_ms: Math.round(Math.max(0, ...tasks)),
  };
}

async function withMock() {
  const mock = await startMock({ tick: 20, perTick: 20 });
  const browser = await openBrowser();
  const headers = { "Content-Type": "application/json" };
  const post = (path, body) => fetch(mock.url + path, { method: "POST", headers, body: JSON.stringify(body) });
  const run = (name) => post("api/runs", { name, data: [{ name: "demo" }], preset: "nano", max_steps: 1_000_000 });
  try {
    await run("one");
    await new Promise((resolve) => setTimeout(resolve, 8000));
    await run("two");
    const { page } = await openPage(browser, mock.url + "#/train/two?compare=one");
    await page.locator(".chart-host canvas").nth(3).waitFor();
    await page.waitForTimeout(1500);
    const charts = summary(await page.evaluate(watch, seconds));
    await page.goto(mock.url + "#/generate");
    await post("api/runs/one/stop", {});
    await page.locator("#generate-start").click();
    const generation = summary(await page.evaluate(watch, 1));
    await page.goto(mock.url + "#/tokenizer");
    await post("api/tokenizers", { name: "demo", texts: ["sample"], vocab_size: 2048, pattern: "llama3" });
    const box = page.getByRole("textbox", { name: "Your text" });
    await box.fill("Tezgâh ipliği iplik iplik dokur, dokudukça uzar kumaş. ".repeat(250));
    await page.waitForTimeout(1000);
    const watching = page.evaluate(watch, 3);
    for (let i = 0; i < 20; i++) await box.press("x");
    return { charts, generation, typing: summary(await watching) };
  } finally {
    await browser.close();
    mock.close();
  }
}

async function inTab() {
  const profile = mkdtempSync(join(tmpdir(), "tezgah-frames-"));
  const host = await startStatic();
  const context = await openProfile(profile, { language: "en-US" });
  try {
    const page = await context.newPage();
    await page.goto(host.url);
    await page.getByRole("button", { name: "Train the demo" }).waitFor({ timeout: 60_000 });
    await makeText(page);
    await makeTokenizer(page);
    await makeData(page);
    await fillRun(page, { name: "long", steps: 100_000 });
    await startRun(page);
    await page.locator(".chart-host canvas").first().waitFor();
    await page.waitForFunction(() => /Step [1-9]\d/.test(document.querySelector(".run-head")?.textContent ?? ""), null, { timeout: 60_000 });
    return { training_in_the_tab: summary(await page.evaluate(watch, seconds)) };
  } finally {
    await context.close();
    host.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

const places = { mock: withMock, tab: inTab };
const place = places[process.argv[2]];
if (!place) throw new Error(`usage: node test/frames.mjs ${Object.keys(places).join("|")}`);
const machine = `${cpus()[0].model}, ${cpus().length} cores, headless Chromium, software drawing`;
console.log(JSON.stringify({ what: "frames of the page under load", command: `node test/frames.mjs ${process.argv[2]}`, machine, results: await place() }, null, 2));
