// Measures how smooth the page is under load: the times between frames while
// runs stream into the charts and text streams into the page, and how long the
// page's own work held a frame up. Prints one JSON object.
//
//	node test/frames.mjs [SECONDS]
//
// The mock sends what no engine does: a thousand steps a second, and 160 tokens.
import { cpus } from "node:os";
import { openBrowser, openPage } from "./browser.mjs";
import { startMock } from "./mock.mjs";

const seconds = Number(process.argv[2] ?? 6);
const mock = await startMock({ tick: 20, perTick: 20 });
const browser = await openBrowser();
const post = (path, body) => fetch(mock.url + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
const run = (name) => post("api/runs", { name, data: [{ name: "demo" }], preset: "nano", max_steps: 1_000_000 });

/** Runs in the page: the gaps between frames and the long tasks of so many seconds. */
function watch(s) {
  return new Promise((resolve) => {
    const gaps = [];
    const tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask" });
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
  return { frames: gaps.length, median_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99), max_ms: at(1), over_50_ms: gaps.filter((g) => g > 50).length, long_tasks: tasks.length, longest_task_ms: Math.round(Math.max(0, ...tasks)) };
}

const results = {};
try {
  await run("one");
  await new Promise((resolve) => setTimeout(resolve, 8000));
  await run("two");
  const { page } = await openPage(browser, mock.url + "#/train/two?compare=one");
  await page.locator(".chart-host canvas").nth(3).waitFor();
  await page.waitForTimeout(1500);
  results.charts = { steps_per_s: 1000, runs: 2, points: mock.state.runs.get("one").log.length, ...summary(await page.evaluate(watch, seconds)) };
  await page.goto(mock.url + "#/generate");
  await post("api/runs/one/stop", {});
  await page.locator("#generate-start").click();
  results.generation = { tokens_per_s: 160, ...summary(await page.evaluate(watch, Math.min(seconds, 1))) };
  await page.goto(mock.url + "#/tokenizer");
  await post("api/tokenizers", { name: "demo", texts: ["sample"], vocab_size: 2048, pattern: "llama3" });
  await page.getByRole("textbox", { name: "Your text" }).waitFor();
  const text = "Tezgâh ipliği iplik iplik dokur, dokudukça uzar kumaş. ".repeat(250);
  await page.getByRole("textbox", { name: "Your text" }).fill(text);
  const watching = page.evaluate(watch, 3);
  for (let i = 0; i < 20; i++) await page.getByRole("textbox", { name: "Your text" }).press("x");
  results.typing = { characters: text.length, ...summary(await watching) };
} finally {
  await browser.close();
  mock.close();
}
console.log(JSON.stringify({ what: "page under load", machine: `${cpus()[0].model}, ${cpus().length} cores, headless Chromium, software drawing`, results }, null, 2));
