// The whole way in the tab: a static host, the engine as wasm in a worker.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openProfile } from "../browser.mjs";
import { fillRun, makeData, makeText, makeTokenizer, startRun, watchRun, write } from "../journey.mjs";
import { startStatic } from "../places.mjs";

let host;
let context;
let page;
const errors = [];
const profile = mkdtempSync(join(tmpdir(), "tezgah-tab-"));

before(async () => {
  host = await startStatic();
  context = await openProfile(profile, { language: "en-US" });
  page = await context.newPage();
  context.on("weberror", (error) => errors.push(error.error()));
  await page.goto(host.url);
});
after(async () => {
  await context?.close();
  host?.close();
  rmSync(profile, { recursive: true, force: true });
  assert.deepEqual(errors, []);
});

test("the page finds no server and starts the engine in the tab", async () => {
  await page.getByRole("button", { name: "Train the demo" }).waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Where the engine runs" }).click();
  await page.getByText("nothing leaves your machine").waitFor();
  await page.keyboard.press("Escape");
});

test("one button trains the demo and ends with generated text", async () => {
  await page.getByText("20 s", { exact: true }).click();
  await page.getByRole("button", { name: "Train the demo" }).click();
  await page.getByRole("link", { name: "Write more with it" }).waitFor({ timeout: 300_000 });
  const written = await page.locator(".thread .output").textContent();
  assert.ok(written.startsWith("func ") && written.length > 60, `it wrote ${JSON.stringify(written)}`);
  const losses = (await page.locator(".thread .readout strong").allTextContents()).map(Number);
  assert.ok(losses[0] < 7.2, `the loss has fallen from ln 2048 = 7.62 to ${losses[0]}`);
});

test("from a text to what the model writes", async () => {
  await makeText(page);
  await makeTokenizer(page);
  await makeData(page);
  await fillRun(page, { name: "first", steps: 80 });
  await startRun(page);
  await watchRun(page, "first");
  await write(page);
});

const stepNow = () =>
  page.evaluate(() => Number(/Step ([\d,]+)/.exec(document.querySelector(".run-head").textContent)[1].replaceAll(",", "")));

test("a run that the page was closed on is paused, and resumed from its checkpoint", async () => {
  await page.getByRole("link", { name: "Train", exact: true }).click();
  await page.getByRole("link", { name: "New run" }).click();
  await fillRun(page, { name: "long", steps: 100000, more: { "Evaluation and checkpoints": { "Checkpoint every": "10" } } });
  await startRun(page);
  await page.locator(".choice strong", { hasText: "Step" }).first().waitFor({ timeout: 120_000 });
  const asked = new Promise((resolve) => page.once("dialog", (dialog) => dialog.accept().then(() => resolve(dialog.type()))));
  await page.locator(".run-head h2").click(); // a browser asks only those who have touched the page
  await page.reload();
  assert.equal(await asked, "beforeunload", "the person is warned, because training would pause");
  await page.locator(".badge.paused").waitFor({ timeout: 60_000 });
  const at = await stepNow();
  assert.ok(at >= 10, `paused at step ${at}`);
  await page.getByRole("button", { name: "Resume" }).click();
  await page.waitForFunction(
    (old) => Number(/Step ([\d,]+)/.exec(document.querySelector(".run-head").textContent)[1].replaceAll(",", "")) > old,
    at,
    { timeout: 120_000 },
  );
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.locator(".badge.stopped").waitFor({ timeout: 60_000 });
});

test("a model goes from the tab into a file", async () => {
  await page.getByRole("link", { name: "Tezgah, overview" }).click();
  await page.getByRole("button", { name: "Download first" }).click();
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download the model" }).click(),
  ]);
  assert.equal(file.suggestedFilename(), "first.llm");
  const chunks = [];
  for await (const chunk of await file.createReadStream()) chunks.push(chunk);
  const bytes = Buffer.concat(chunks);
  const header = JSON.parse(bytes.subarray(8, 8 + Number(bytes.readBigUInt64LE(0))).toString());
  assert.ok(header.__metadata__, "a .llm is a safetensors file");
});

test("a lost device is opened again, training goes on, and the page says so", async () => {
  // The worker's devices are kept where the test can destroy one.
  const keep = `const request = GPUAdapter.prototype.requestDevice;
    GPUAdapter.prototype.requestDevice = async function (...a) { const d = await request.apply(this, a); (globalThis.devices ??= []).push(d); return d; };`;
  await page.route("**/worker.js", async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: keep + (await answer.text()) });
  });
  await page.reload();
  await page.getByRole("link", { name: "Train", exact: true }).click();
  await page.getByRole("link", { name: "New run" }).click();
  await fillRun(page, {
    name: "lost",
    steps: 100000,
    device: "gpu:0",
    more: { "Evaluation and checkpoints": { "Checkpoint every": "3" } },
  });
  await startRun(page);
  await page.locator(".choice strong", { hasText: "Step" }).first().waitFor({ timeout: 240_000 });
  const at = await stepNow();
  await page.workers()[0].evaluate(() => globalThis.devices.at(-1).destroy());
  await page.locator(".warnings .banner").getByText("going on from step").waitFor({ timeout: 240_000 });
  await page.waitForFunction(
    (old) => Number(/Step ([\d,]+)/.exec(document.querySelector(".run-head").textContent)[1].replaceAll(",", "")) > old + 3,
    at,
    { timeout: 240_000 },
  );
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.locator(".badge.stopped").waitFor({ timeout: 120_000 });
  await page.unroute("**/worker.js");
});

test("a second tab is told that the engine is in the first", async () => {
  const second = await context.newPage();
  await second.goto(host.url);
  await second.getByText("open in another tab").waitFor({ timeout: 60_000 });
  await second.close();
});

test("a browser without WebGPU is told what to do, and has the processor", async () => {
  const plain = await context.newPage();
  await plain.addInitScript(() => Object.defineProperty(navigator, "gpu", { value: undefined }));
  await page.close();
  page = plain;
  await page.goto(host.url + "#/train");
  await page.getByText("This browser has no WebGPU").waitFor({ timeout: 60_000 });
  await page.getByText("enable-unsafe-webgpu").waitFor();
  await page.getByRole("button", { name: "Dismiss" }).click();
  await page.getByText("This browser has no WebGPU").waitFor({ state: "detached" });
});

test("full storage is told in words", async () => {
  const devtools = await context.newCDPSession(page);
  await devtools.send("Storage.overrideQuotaForOrigin", { origin: new URL(host.url).origin, quotaSize: 1 });
  await page.getByRole("link", { name: "Tokenizer", exact: true }).click();
  const [chooser] = await Promise.all([
    page.waitForEvent("filechooser"),
    page.getByRole("button", { name: "Choose files" }).first().click(),
  ]);
  await chooser.setFiles({ name: "large.txt", mimeType: "text/plain", buffer: Buffer.alloc(4 << 20, "Bir varmış ") });
  await page.locator(".toast.error").getByText("There is no space left").waitFor({ timeout: 60_000 });
  await devtools.send("Storage.overrideQuotaForOrigin", { origin: new URL(host.url).origin });
});
