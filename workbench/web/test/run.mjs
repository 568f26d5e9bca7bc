// Runs the tests of the page: node test/run.mjs [unit|browser|FILE…]
//
//	unit      pure functions, bundled and run by Node
//	browser   headless Chromium against the mock, the real server and the tab
//
// Browser tests need the built page (make web), Go for the server, and Chromium.
import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const [what = "all"] = process.argv.slice(2);
const list = (folder, end) =>
  readdirSync(join(here, folder))
    .filter((n) => n.endsWith(end))
    .map((n) => join(here, folder, n));

/** Bundles TypeScript tests into a folder that is gone afterwards. */
async function unit() {
  const out = mkdtempSync(join(tmpdir(), "tezgah-web-"));
  try {
    await build({
      entryPoints: list("unit", ".test.ts"),
      outdir: out,
      bundle: true,
      platform: "node",
      format: "esm",
      outExtension: { ".js": ".mjs" },
      logLevel: "warning",
    });
    return run(readdirSync(out).map((n) => join(out, n)));
  } finally {
    rmSync(out, { recursive: true });
  }
}

/** One file after the other: they share two cores with the browser and the engine. */
function run(files) {
  return spawnSync(process.execPath, ["--test", "--test-concurrency=1", ...files], { stdio: "inherit" }).status ?? 1;
}

let status = 0;
if (what === "all" || what === "unit") status ||= await unit();
if (what === "all" || what === "browser") status ||= run(list("browser", ".test.mjs"));
if (!["all", "unit", "browser"].includes(what)) status = run(process.argv.slice(2));
process.exit(status);
