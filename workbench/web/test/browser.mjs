// Opens headless Chromium as the tests of the page want it.
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

// As scripts/wasm-browser-exec/run.mjs has them, for a machine without a GPU.
const flags = [
  "--no-sandbox",
  "--enable-unsafe-webgpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

// The milliseconds after which something that should appear counts as missing: far
// more than it takes, as another program may have the machine.
const patience = 120_000;

function findBrowser() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ["chromium", "chromium-browser", "google-chrome", "chrome"]) {
    for (const folder of (process.env.PATH ?? "").split(delimiter)) if (existsSync(join(folder, name))) return join(folder, name);
  }
  throw new Error("no Chromium in PATH; install it or set CHROMIUM");
}

function options() {
  const adapter = process.env.WEBGPU_ADAPTER ?? "swiftshader";
  return { executablePath: findBrowser(), headless: true, args: adapter ? [...flags, `--use-webgpu-adapter=${adapter}`] : flags };
}

/** One browser; WEBGPU_ADAPTER is "swiftshader" unless it is set. */
export const openBrowser = () => chromium.launch(options());

/** A browser with a profile on the disk, whose files outlive a page. */
export async function openProfile(folder, { language = "en-GB", width = 1280, height = 900 } = {}) {
  const context = await chromium.launchPersistentContext(folder, {
    ...options(),
    locale: language,
    viewport: { width, height },
    reducedMotion: "reduce",
  });
  context.setDefaultTimeout(patience);
  return context;
}

/** A page in a context of its own, which fails the test when a script of the page does. */
export async function openPage(browser, url, { language = "en-GB", theme = "light", width = 1280, height = 900 } = {}) {
  const context = await browser.newContext({
    locale: language,
    colorScheme: theme,
    viewport: { width, height },
    reducedMotion: "reduce",
    permissions: ["clipboard-read", "clipboard-write"],
  });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(error));
  page.setDefaultTimeout(patience);
  await page.goto(url);
  return { page, context, errors };
}
