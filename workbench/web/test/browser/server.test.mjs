// The whole way against a real `tezgah serve`.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openBrowser, openPage } from "../browser.mjs";
import { fillRun, makeData, makeText, makeTokenizer, startRun, stat, watchRun, write } from "../journey.mjs";
import { startServer } from "../places.mjs";

let browser;
let server;
let opened;

before(async () => {
  browser = await openBrowser();
  server = await startServer();
  opened = await openPage(browser, server.url, { language: "en-US" });
});
after(async () => {
  await browser?.close();
  await server?.close();
  assert.deepEqual(opened?.errors ?? [], []);
});

test("from a text to what the model writes", async () => {
  const { page } = opened;
  await makeText(page);
  await makeTokenizer(page);
  await makeData(page);
  await fillRun(page, { name: "first", steps: 120 });
  await page.getByRole("button", { name: "Measure the speed" }).click();
  await page.getByText(/tokens a second:/).waitFor();
  await startRun(page);
  await watchRun(page, "first");
  await write(page);
});

test("a token file and a model are downloaded, and the model comes back by its file", async () => {
  const { page } = opened;
  await page.getByRole("link", { name: "Tezgah, overview" }).click();
  await page.getByRole("button", { name: "Download first" }).click();
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download the model" }).click(),
  ]);
  assert.equal(file.suggestedFilename(), "first.llm");
  const [chooser] = await Promise.all([
    page.waitForEvent("filechooser"),
    page.getByRole("button", { name: "Choose files" }).click(),
  ]);
  const renamed = { name: "again.llm", mimeType: "application/octet-stream", buffer: await read(file) };
  await chooser.setFiles(renamed);
  await page.getByText("again is imported").waitFor();
  await page.getByRole("link", { name: "again", exact: true }).click();
  await page.waitForURL(/generate\/again/);
});

async function read(download) {
  const chunks = [];
  for await (const chunk of await download.createReadStream()) chunks.push(chunk);
  return Buffer.concat(chunks);
}

test("a run goes on while the page is loaded anew, pauses, and is resumed after the server was ended", async () => {
  const { page } = opened;
  await page.getByRole("link", { name: "Train", exact: true }).click();
  await page.getByRole("link", { name: "New run" }).click();
  await fillRun(page, { name: "long", steps: 100000, more: { "Evaluation and checkpoints": { "Checkpoint every": "50" } } });
  await startRun(page);
  const step = async () => Number(/Step ([\d,]+)/.exec(await page.locator(".run-head").textContent())[1].replaceAll(",", ""));
  await page.waitForFunction(() => /Step ([1-9]\d{1,})/.test(document.querySelector(".run-head")?.textContent));
  const before = await step();
  await page.reload();
  await page.locator(".badge.running").waitFor();
  await page.waitForFunction(
    (old) => Number(/Step ([\d,]+)/.exec(document.querySelector(".run-head")?.textContent ?? "")?.[1].replaceAll(",", "")) > old,
    before,
  );
  await page.locator(".chart-host canvas").first().waitFor();

  // The server ends as by Ctrl-C, and a new one finds the run.
  const { port } = new URL(server.url);
  await server.stop();
  await page.getByText("The connection to the server is lost").waitFor();
  server = await startServer({ folder: server.folder, port: Number(port) });
  await page.getByText("The connection to the server is lost").waitFor({ state: "detached" });
  await page.locator(".badge.paused").waitFor();
  const paused = await step();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.waitForFunction(
    (old) => Number(/Step ([\d,]+)/.exec(document.querySelector(".run-head")?.textContent ?? "")?.[1].replaceAll(",", "")) > old,
    paused,
  );
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.locator(".badge.stopped").waitFor();
  assert.ok(Number(await stat(page, "loss")) < 6.3);
});

test("what the engine refuses stands beside its field", async () => {
  const { page } = opened;
  await page.getByRole("link", { name: "New run" }).click();
  await page.getByText("Shape of the model").click();
  await page.getByLabel("Attention heads", { exact: true }).fill("3");
  await page.locator(".problems").waitFor();
  assert.ok(await page.getByRole("button", { name: "Start training" }).isDisabled());
  await page.getByLabel("Attention heads", { exact: true }).fill("2");
  await page.locator(".problems").waitFor({ state: "detached" });
  const name = page.getByRole("textbox", { name: "Name of the run" });
  await name.fill("long");
  await page.getByRole("button", { name: "Start training" }).click();
  await page.waitForFunction(() => document.activeElement?.getAttribute("aria-invalid") === "true");
  assert.equal(await name.getAttribute("aria-invalid"), "true");
});

test("a fork begins at a checkpoint and is compared with its origin", async () => {
  const { page } = opened;
  await page.goto(new URL("#/train/first", server.url).href.replace(/\?token=[^#]*/, ""));
  await page.locator(".run-buttons").getByRole("button", { name: "Fork" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("twig");
  await page.getByRole("dialog").getByLabel("Steps").fill("40");
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await page.waitForURL(/train\/twig/);
  await page.locator(".badge.done").waitFor({ timeout: 120_000 });
  await page.getByText(/^Compare/).click();
  await page.getByRole("checkbox", { name: "first" }).check();
  await page.locator(".readout").first().getByText("first", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Measure every kernel" }).click();
  await page.locator(".numbers-table").waitFor({ timeout: 120_000 });
});

test("the same address runs in the tab when that is chosen, and goes back", async () => {
  const { page } = opened;
  await page.getByRole("button", { name: "Where the engine runs" }).click();
  await page.getByRole("button", { name: "Run in this tab instead" }).click();
  await page.getByRole("button", { name: /Where the engine runs: This tab/ }).waitFor({ timeout: 60_000 });
  await page.getByRole("link", { name: "Tezgah, overview" }).click();
  await page.getByRole("button", { name: "Train the demo" }).waitFor({ timeout: 60_000 });
  await page.getByRole("button", { name: "Where the engine runs" }).click();
  await page.getByRole("button", { name: "Run on the server instead" }).click();
  await page.getByRole("link", { name: "twig" }).first().waitFor();
});
