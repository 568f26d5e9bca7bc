// The page alone, against the mock: languages, themes, accessibility, errors,
// lost connections, the keyboard.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { openBrowser, openPage } from "../browser.mjs";
import { startMock } from "../mock.mjs";

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const phone = { width: 390, height: 844 };

let browser;
let mock;
let opened = [];

before(async () => (browser = await openBrowser()));
after(() => browser?.close());
beforeEach(async () => (mock = await startMock({ tick: 20 })));
afterEach(async () => {
  const errors = opened.flatMap((o) => o.errors);
  await Promise.all(opened.map((o) => o.context.close()));
  opened = [];
  mock.close();
  assert.deepEqual(errors, []);
});

async function open(hash = "", options = {}) {
  const o = await openPage(browser, mock.url + hash, options);
  opened.push(o);
  await o.page.waitForFunction(() => document.querySelector("main > *:not(.wait)"));
  return o.page;
}

const post = (path, body) =>
  fetch(mock.url + path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

/** Tokenizer, data, a finished run with a warning and a model that can chat. */
async function furnish() {
  await post("api/tokenizers", { name: "demo", texts: ["sample"], vocab_size: 2048, pattern: "llama3" });
  await post("api/data", { name: "demo", texts: ["sample"], tokenizer: "demo" });
  await until(() => mock.state.data.length > 0);
  await post("api/runs", {
    name: "alpha",
    data: [{ name: "demo" }],
    preset: "nano",
    max_steps: 60,
    schedule: "wsd",
    recompute: true,
  });
  await until(() => mock.state.runs.get("alpha").run.state === "done");
  const { run } = mock.state.runs.get("alpha");
  for (const [code, values] of Object.entries({
    nonfinite: { count: 3 },
    loss_rising: { from: 3, to: 4 },
    overfitting: { best: 2, now: 3, since: 7 },
    diverged: { loss: 11 },
    slow_start: {},
    skipped: { count: 5 },
  }))
    run.warnings.push({ code, step: 9, values });
  await fetch(mock.url + "api/models/talker?label=x.llm", { method: "PUT", body: "x" });
  await until(() => mock.state.models.length === 2);
}

async function until(condition) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 20));
}

const views = {
  home: "#/",
  tokenizer: "#/tokenizer",
  "new run": "#/train",
  run: "#/train/alpha",
  generate: "#/generate/alpha",
  chat: "#/generate/talker",
};

async function unfold(page) {
  await page.waitForTimeout(150);
  await page.evaluate(() => document.querySelectorAll("details").forEach((d) => (d.open = true)));
  await page.waitForTimeout(250);
}

/** What a person reads or hears, but for names, numbers and the engine's words. */
function readTexts() {
  const found = new Set();
  const skip = "body [lang='en'], [translate='no'], code, .place-device, option, script, style, noscript";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.parentElement.closest(skip)) found.add(node.data.trim());
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder], [aria-valuetext]")) {
    if (element.closest(skip)) continue;
    for (const name of ["aria-label", "title", "placeholder", "aria-valuetext"])
      if (element.hasAttribute(name)) found.add(element.getAttribute(name).trim());
  }
  for (const option of document.querySelectorAll("option")) found.add(option.text.trim());
  return [...found].filter((text) => /\p{L}{2}/u.test(text));
}

// Names of things, of formats and of the languages themselves; the same in both.
const international =
  /^(Tezgah|alpha|talker|demo|sample|nano|micro|mini|small|medium|large|llama3|turkish|gpt2|qwen2|chatml|TR|EN|jsonl|Hugging Face|GGUF|\.llm|Model|Beta [12]|Epsilon|silu \(SwiGLU\)|gelu|<\|im_start\|>\s*<\|im_end\|>|(: )?Türkçeye geç|(: )?Switch to English|nano-demo|demo-2|sample-\w+|(cpu|gpu:0) .*|(alpha|talker) · .*|(wsd|nano|cosine)|\d+ (ms|[KMG]?i?B)|alpha-2|\d+)$/;

test("every text of every view is in the language of the page", async () => {
  await furnish();
  const english = await open("", { language: "en-US" });
  const turkish = await open("", { language: "tr-TR" });
  assert.equal(await turkish.evaluate(() => document.documentElement.lang), "tr");
  for (const [view, hash] of Object.entries(views)) {
    const texts = [];
    for (const page of [english, turkish]) {
      await page.goto(mock.url + hash);
      await unfold(page);
      texts.push(await page.evaluate(readTexts));
    }
    assert.ok(texts[0].length > 15 && texts[1].length > 15, `${view} shows texts`);
    const both = texts[1].filter((text) => texts[0].includes(text) && !international.test(text));
    assert.deepEqual(both, [], `untranslated in ${view}`);
  }
});

test("the language is chosen from the browser, switched, and remembered", async () => {
  const page = await open("#/tokenizer", { language: "tr-TR" });
  await page.getByRole("heading", { name: "Belirteçleyici", exact: true }).waitFor();
  await page.getByRole("button", { name: /Switch to English/ }).press("Enter");
  await page.getByRole("heading", { name: "Tokenizer", exact: true }).waitFor();
  await page.waitForFunction(() => document.activeElement?.id === "language");
  await page.reload();
  await page.getByRole("heading", { name: "Tokenizer", exact: true }).waitFor();
  assert.equal(await page.evaluate(() => document.documentElement.lang), "en");
});

test("what was entered survives a change of language", async () => {
  await furnish();
  const page = await open("#/train");
  await page.getByLabel("Batch", { exact: true }).fill("12");
  await page.locator("#language").click();
  assert.equal(await page.getByLabel("Yığın", { exact: true }).inputValue(), "12");
});

test("axe finds nothing serious in any view, in both themes", async () => {
  await furnish();
  for (const theme of ["light", "dark"]) {
    const page = await open("", { theme });
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), theme);
    for (const [view, hash] of Object.entries(views)) {
      await page.goto(mock.url + hash);
      await unfold(page);
      await check(page, `${view}, ${theme}`);
    }
    await page.goto(mock.url + "#/generate/alpha");
    await page.locator("#generate-start").click();
    await page.locator(".tok").nth(5).hover();
    await check(page, `generated text, ${theme}`);
    await page.getByRole("button", { name: "Where the engine runs" }).click();
    await check(page, `place dialog, ${theme}`);
  }
});

async function check(page, where) {
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations.filter((v) => v.impact === "serious" || v.impact === "critical");
  assert.deepEqual(
    serious.map((v) => `${v.id}: ${v.nodes[0].html} ${v.nodes[0].failureSummary}`),
    [],
    where,
  );
}

test("the first visit is accessible and fits a phone in both languages", async () => {
  for (const language of ["en-US", "tr-TR"]) {
    const page = await open("", { language, ...phone });
    await check(page, `first visit, ${language}`);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= phone.width);
  }
});

test("no view is wider than a phone", async () => {
  await furnish();
  for (const language of ["en-US", "tr-TR"]) {
    const page = await open("", { language, ...phone });
    for (const [view, hash] of Object.entries(views)) {
      await page.goto(mock.url + hash);
      await unfold(page);
      assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= phone.width, `${view}, ${language}`);
    }
  }
});

test("the demo runs from text to text, through a page that is loaded anew, and lands in the tabs", async () => {
  const page = await open();
  await page.getByText("20 s", { exact: true }).click();
  await page.getByRole("button", { name: "Train the demo" }).click();
  await page.getByText("2,048 pieces found.").waitFor();
  await page.locator(".thread > .now", { hasText: "Train" }).getByText(/Step [1-9]/).waitFor();
  await page.reload();
  await page.locator(".thread > .now", { hasText: "Train" }).getByText(/Step [1-9]/).waitFor();
  await page.getByRole("link", { name: "Write more with it" }).waitFor();
  const written = await page.locator(".thread .output").textContent();
  assert.ok(written.startsWith("func  return nil"), written);
  await check(page, "the demo at its end");
  assert.deepEqual([...mock.state.runs.keys()], ["demo"], "one run, not two");
  await page.getByRole("link", { name: "Write more with it" }).click();
  assert.equal(await page.getByRole("textbox", { name: "Prompt" }).inputValue(), "func ");
  assert.equal("func " + (await page.locator(".tokens").textContent()), written);
  await page.getByRole("link", { name: "Tokenizer", exact: true }).click();
  await page.getByRole("radio", { name: /^demo/ }).waitFor();
});

test("the theme follows the system until it is switched, and is remembered", async () => {
  const page = await open("", { theme: "dark" });
  const shown = () => page.evaluate(() => document.documentElement.dataset.theme);
  await page.emulateMedia({ colorScheme: "light" });
  await page.waitForFunction(() => document.documentElement.dataset.theme === "light");
  await page.getByRole("button", { name: "Dark theme" }).click();
  assert.equal(await shown(), "dark");
  await page.reload();
  assert.equal(await shown(), "dark");
});

test("the token goes from the address into the session, and out of sight", async () => {
  const page = await open("?token=abc#/tokenizer");
  assert.equal(page.url(), mock.url + "#/tokenizer");
  assert.equal(await page.evaluate(() => sessionStorage.getItem("tezgah.token")), "abc");
});

test("a server that wants its token says so, and takes it", async () => {
  mock.state.faults["GET /api/status"] = { status: 401, error: { code: "unauthorized", message: "no token" } };
  const page = await open();
  await page.getByRole("heading", { name: "This workbench asks for its token" }).waitFor();
  await check(page, "locked");
  delete mock.state.faults["GET /api/status"];
  await page.getByLabel("The address, or the token in it").fill("http://127.0.0.1:7777/?token=x%2Fy");
  await page.getByRole("button", { name: "Open" }).click();
  await page.getByRole("button", { name: "Train the demo" }).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem("tezgah.token")), "x/y");
});

test("an error with a field stands next to the field", async () => {
  await furnish();
  const page = await open("#/train");
  mock.state.faults["POST /api/runs"] = {
    status: 400,
    error: { code: "bad_request", message: "lr is 9, want at most 1", field: "lr" },
  };
  const field = page.getByLabel("Learning rate", { exact: true });
  await field.fill("9");
  await page.getByRole("button", { name: "Start training" }).click();
  await page.getByText("lr is 9, want at most 1").waitFor();
  assert.equal(await field.getAttribute("aria-invalid"), "true");
  const described = await field.getAttribute("aria-describedby");
  const texts = await page.evaluate((ids) => ids.split(" ").map((id) => document.getElementById(id).textContent), described);
  assert.ok(
    texts.some((t) => t.includes("lr is 9")),
    "the field is described by its error",
  );
  await page.waitForFunction(() => document.activeElement?.getAttribute("aria-invalid") === "true");
});

test("a full disk is told in words and stays until it is read", async () => {
  await furnish();
  const page = await open("#/train", { language: "tr-TR" });
  mock.state.faults["POST /api/runs"] = {
    status: 507,
    error: { code: "no_space", message: "the folder needs 40 MiB, 3 MiB are free" },
  };
  await page.getByRole("button", { name: "Eğitimi başlat" }).click();
  const alert = page.locator(".toast.error");
  await alert.getByText("Yer kalmadı").waitFor();
  await alert.getByText("3 MiB are free").waitFor();
  await page.waitForTimeout(8000);
  assert.ok(await alert.isVisible(), "an error does not go by itself");
  await alert.getByRole("button", { name: "Kapat" }).click();
  await alert.waitFor({ state: "detached" });
});

test("a lost connection is shown, retried, and forgotten when it is back", async () => {
  const page = await open("#/tokenizer");
  const { port } = new URL(mock.url);
  mock.close();
  await page.getByText("The connection to the server is lost").waitFor();
  mock = await startMock({ port: Number(port) });
  await page.getByText("The connection to the server is lost").waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Train the tokenizer" }).click();
  await page.getByText(/is ready: 8,192 tokens/).waitFor();
});

test("what a setting costs is told while it is typed", async () => {
  await furnish();
  const page = await open("#/train");
  const batch = page.getByLabel("Batch", { exact: true });
  await page.getByText("Parameters").waitFor();
  await batch.fill("16");
  await page
    .locator(".effect")
    .getByText(/\+.* MiB/)
    .waitFor();
  await batch.fill("abc");
  await page.getByText("This is no number that fits here.").waitFor();
  assert.ok(await page.getByRole("button", { name: "Start training" }).isDisabled());
  await batch.fill("");
  await page.getByText("Shape of the model").click();
  await page.getByLabel("Attention heads", { exact: true }).fill("3");
  await page.locator(".problems").getByText("want a divisor").waitFor();
  assert.ok(await page.getByRole("button", { name: "Start training" }).isDisabled());
});

test("the whole way works with the keyboard alone", async () => {
  const page = await open();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to content");
  await page.getByRole("button", { name: "Train the demo" }).focus();
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  await page.keyboard.press("Tab");
  const focused = await page.evaluate(
    () => getComputedStyle(document.activeElement.nextElementSibling ?? document.activeElement).outlineStyle,
  );
  assert.ok([outline, focused].includes("solid"), "focus is visible");
  await page.goto(mock.url + "#/tokenizer");
  await page.getByRole("button", { name: "Train the tokenizer" }).press("Enter");
  await page.getByText(/is ready: 8,192 tokens/).waitFor();
  await page.locator(".tok").first().focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.evaluate(() => document.activeElement.dataset.i), "2");
  assert.match(await page.locator(".token-box").textContent(), /Id/);
  await page.keyboard.press("Escape");
  assert.ok(await page.locator(".token-box").isHidden());
});

test("runs are compared, zoomed and smoothed, and the address says so", async () => {
  await furnish();
  await post("api/runs", { name: "beta", data: [{ name: "demo" }], preset: "nano", max_steps: 80 });
  await until(() => mock.state.runs.get("beta").run.state === "done");
  const page = await open("#/train/beta");
  await page.getByText(/^Compare/).click();
  await page.getByRole("checkbox", { name: "alpha" }).check();
  await page.locator(".readout").first().getByText("alpha", { exact: true }).waitFor();
  assert.match(page.url(), /compare=alpha$/);
  const ticks = () => page.evaluate(() => document.querySelector(".chart-host canvas").toDataURL());
  const whole = await ticks();
  await page.getByRole("button", { name: "Last half" }).click();
  await page.waitForTimeout(100);
  assert.notEqual(await ticks(), whole);
  await page.getByRole("button", { name: "All", exact: true }).click();
  await page.getByText(/^Compare/).click();
  const box = await page.locator(".chart-host").first().boundingBox();
  await page.mouse.move(box.x + 120, box.y + 80);
  await page.mouse.down();
  await page.mouse.move(box.x + 300, box.y + 90, { steps: 5 });
  await page.mouse.up();
  assert.ok(await page.getByRole("button", { name: "All", exact: true }).isEnabled(), "dragging zooms");
  await page.getByLabel("Smoothing").fill("0");
  await page.getByRole("checkbox", { name: "Log scale" }).check();
  await page.reload();
  await page.locator(".readout").first().getByText("alpha", { exact: true }).waitFor();
});

test("a run is paused, resumed, forked and stopped from the page", async () => {
  await furnish();
  await post("api/runs", { name: "long", data: [{ name: "demo" }], preset: "nano", max_steps: 100000 });
  const page = await open("#/train/long");
  await page.getByRole("button", { name: "Pause" }).click();
  await page.locator(".badge.paused").waitFor();
  await page.getByRole("button", { name: "Resume" }).click();
  await page.locator(".badge.running").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Stop" }).click();
  await page.locator(".badge.stopped").waitFor();
  await page.locator(".run-buttons").getByRole("button", { name: "Fork" }).click();
  await page.getByRole("dialog").getByLabel("Name").fill("twig");
  await page.getByRole("dialog").getByLabel("Learning rate").fill("0,0005");
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await page.waitForURL(/train\/twig/);
  assert.equal(mock.state.runs.get("twig").run.settings.lr, 0.0005);
  await page.goto(mock.url + "#/train/alpha");
  await page.getByRole("button", { name: "Measure every kernel" }).click();
  await page
    .getByRole("cell", { name: "AttentionBackward" })
    .or(page.getByRole("rowheader", { name: "AttentionBackward" }))
    .waitFor();
});

test("generation streams, shows what else could have come, stops, and repeats", async () => {
  await furnish();
  const page = await open("#/generate/alpha");
  await page.getByRole("textbox", { name: "Prompt" }).fill("func ");
  await page.getByRole("textbox", { name: "Prompt" }).press("Control+Enter");
  await page.locator(".tok").nth(8).hover();
  assert.match(await page.locator(".token-box").textContent(), / the/);
  await page.getByText(/120 tokens · 160.2 tokens\/s · length reached/).waitFor();
  const first = await page.locator(".tokens").textContent();
  const seed = /seed (\d+)/.exec(await page.locator("main").textContent())[1];
  await page.getByRole("button", { name: "Again, same seed" }).click();
  await page.getByText(/length reached/).waitFor();
  assert.equal(await page.locator(".tokens").textContent(), first);
  assert.ok((await page.locator("main").textContent()).includes(`seed ${seed}`));
  await page.getByRole("button", { name: "Copy" }).click();
  await page.getByText("Copied").waitFor();
  assert.ok((await page.evaluate(() => navigator.clipboard.readText())).startsWith("func  return nil"));
  await page.locator("#generate-start").click();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await page.getByText(/stopped · seed/).waitFor();
  await page.getByLabel("Temperature").last().fill("99");
  await page.getByText("From 0 to 10, please.").waitFor();
  assert.ok(await page.locator("#generate-start").isDisabled());
});

test("files, folders and pasted text become texts", async () => {
  const page = await open("#/tokenizer");
  const [chooser] = await Promise.all([
    page.waitForEvent("filechooser"),
    page.getByRole("button", { name: "Choose files" }).first().click(),
  ]);
  await chooser.setFiles([
    { name: "şiir bir.txt", mimeType: "text/plain", buffer: Buffer.from("Bir varmış") },
    { name: "şiir iki.txt", mimeType: "text/plain", buffer: Buffer.from("bir yokmuş") },
  ]);
  await page.getByText("şiir-bir is there (files: 2)").waitFor();
  assert.deepEqual(
    mock.state.requests.filter((r) => r.startsWith("PUT")),
    ["PUT /api/texts/%C5%9Fiir-bir", "PUT /api/texts/%C5%9Fiir-bir"],
  );
  await page.getByRole("button", { name: "Paste text" }).click();
  await page.getByRole("dialog").getByLabel("Text").fill("Elma dersem çık");
  await page.getByRole("dialog").getByRole("button", { name: "Add text" }).click();
  await page.getByText("pasted is there").waitFor();
  assert.ok(await page.getByRole("checkbox", { name: /^pasted/ }).isChecked());
});

test("dropped files go where their ending says", async () => {
  const page = await open();
  const drop = async (name) => {
    const data = await page.evaluateHandle((n) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File(["{}"], n));
      return transfer;
    }, name);
    await page.locator(".drop").dispatchEvent("drop", { dataTransfer: data });
  };
  await drop("mine.json");
  await page.getByText("mine is loaded").waitFor();
  await drop("model.llm");
  await page.getByText("model is imported").waitFor();
  await page.getByRole("link", { name: "model" }).first().waitFor();
});

test("a model is downloaded in the format that is asked for", async () => {
  await furnish();
  const page = await open("#/");
  await page.getByRole("button", { name: "Download alpha" }).click();
  await page.getByText("GGUF").click();
  await page.getByRole("dialog").getByLabel("Number format").selectOption("q8_0");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: "Download the model" }).click(),
  ]);
  assert.equal(download.suggestedFilename(), "alpha.gguf");
});
