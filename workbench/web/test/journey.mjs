// The whole way through the page by clicks, the same in both places: a text, a
// tokenizer, a token file, a run whose loss falls, and text that it writes.
import assert from "node:assert/strict";

/** Text by a small grammar: the same for each call, and easy to learn. */
export function simpleText(sentences) {
  let state = 7;
  const pick = (list) => list[(state = (state * 1103515245 + 12345) & 0x7fffffff) % list.length];
  const who = ["Dokumacı", "Çırak", "Usta", "Komşu", "Çocuk"];
  const what = ["ipliği", "kilimi", "mekiği", "tezgâhı", "yünü"];
  const does = ["dokur", "boyar", "çözer", "taşır", "görür"];
  return Array.from({ length: sentences }, () => `${pick(who)} ${pick(what)} ${pick(does)}.`).join("\n");
}

/** A model that is trained in seconds anywhere. */
const tiny = { Layers: "2", Width: "64", "Attention heads": "2", "Key/value heads": "1", "Feed-forward width": "128" };

export async function makeText(page, name = "dokuma") {
  await page.getByRole("link", { name: "Tokenizer", exact: true }).click();
  const [chooser] = await Promise.all([
    page.waitForEvent("filechooser"),
    page.getByRole("button", { name: "Choose files" }).first().click(),
  ]);
  await chooser.setFiles({ name: `${name}.txt`, mimeType: "text/plain", buffer: Buffer.from(simpleText(2500)) });
  await page.getByText(`${name} is there`).waitFor();
  const sample = page.getByRole("checkbox", { name: /^Sample/ });
  if (await sample.count()) await sample.uncheck();
}

export async function makeTokenizer(page) {
  await page.getByRole("textbox", { name: "Vocabulary size" }).fill("512");
  await page.getByRole("textbox", { name: "Vocabulary size" }).press("Tab");
  await page.getByLabel("Pattern", { exact: true }).selectOption("turkish");
  await page.getByRole("button", { name: "Train the tokenizer" }).click();
  await page.getByText(/is ready: \d+ tokens/).waitFor();
  await page.getByRole("textbox", { name: "Your text" }).fill("Usta kilimi dokur.");
  await page.waitForFunction(() => document.querySelector(".tokens").textContent.replace(/·/g, " ") === "Usta kilimi dokur.");
  const tokens = await page.locator(".tok").count();
  assert.ok(tokens >= 2 && tokens < 12, `"Usta kilimi dokur." in ${tokens} tokens`);
}

export async function makeData(page, name = "dokuma-512") {
  await page.getByRole("button", { name: "Build the token file" }).click();
  await page.locator(".choice", { hasText: name }).getByRole("link", { name: "Train on it" }).click();
}

/** Fills the form for a new run; more are labels with values on top. */
export async function fillRun(page, { name, steps, device, more = {} }) {
  await page.getByRole("textbox", { name: "Name of the run" }).fill(name);
  if (device) await page.getByRole("combobox", { name: "Device" }).selectOption(device);
  await page.getByText("Shape of the model").click();
  for (const [label, value] of Object.entries(tiny)) await page.getByLabel(label, { exact: true }).fill(value);
  await page.getByLabel("Context", { exact: true }).fill("64");
  await page.getByLabel("Batch", { exact: true }).fill("4");
  await page.getByLabel("Steps", { exact: true }).fill(String(steps));
  await page.getByLabel("Learning rate", { exact: true }).fill("0.003");
  await page.getByText("Samples on the way").click();
  await page.getByLabel("Sample every").fill("40");
  await page.getByLabel("Sample prompt").fill("Usta ");
  await page.getByLabel("Sample length").fill("12");
  for (const [group, fields] of Object.entries(more)) {
    await page.getByText(group, { exact: true }).click();
    for (const [label, value] of Object.entries(fields)) await page.getByLabel(label, { exact: true }).fill(value);
  }
  await page.getByText("Tokens a step").waitFor();
  await page.waitForFunction(() => document.querySelector(".plan dl")?.textContent.includes("256"));
}

export const startRun = (page) => page.getByRole("button", { name: "Start training" }).click();

/** Waits for a run's end and looks at its curve. */
export async function watchRun(page, name) {
  await page.getByRole("heading", { name, exact: true }).waitFor();
  await page.locator(".badge.done").waitFor({ timeout: 300_000 });
  const loss = Number(await stat(page, "loss"));
  assert.ok(loss > 0 && loss < 4, `the loss has fallen from ln 512 = 6.24 to ${loss}`);
  const seen = await page.locator(".samples blockquote").count();
  assert.ok(seen >= 1, "samples were written on the way");
  const described = await page.locator(".chart-host").first().getAttribute("aria-label");
  assert.match(described, /Loss: a curve, now at \d/);
}

export const stat = (page, name) => page.locator(".run-head .stat", { hasText: name }).first().locator("dd").textContent();

export async function write(page) {
  await page.getByRole("link", { name: "Write with it" }).click();
  await page.getByRole("textbox", { name: "Prompt" }).fill("Usta ");
  await page.getByRole("textbox", { name: "Length" }).fill("24");
  await page.locator("#generate-start").click();
  await page.getByText(/tokens\/s · (length reached|end of the document) · seed/).waitFor({ timeout: 120_000 });
  const text = await page.locator(".tokens").textContent();
  assert.ok(text.replace(/[\u200b\s]/g, "").length > 10, `it wrote ${JSON.stringify(text)}`);
  await page.locator(".tok").first().hover();
  assert.match(await page.locator(".token-box").textContent(), /%/);
}
