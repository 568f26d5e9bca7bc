// Builds the page into dist/:
//
//	node build.mjs            page and sample, then compressed copies
//	node build.mjs compress   compressed copies alone, after the worker was built
//
// scripts/build-wasm.sh adds the engine and its worker. dist/ is what `tezgah serve` embeds and what `tezgah web build` writes out.
import { build } from "esbuild";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");
const dist = join(here, "dist");
// The placeholder, and what scripts/build-wasm.sh makes: building the page leaves them alone.
const kept = /^(\.gitkeep|tezgah\.wasm\.(gz|br)|worker\.js)$/;

function clean() {
  mkdirSync(dist, { recursive: true });
  for (const name of readdirSync(dist)) {
    if (!kept.test(name)) rmSync(join(dist, name), { recursive: true });
  }
}

async function page() {
  const options = {
    bundle: true,
    minify: true,
    target: ["es2022", "safari16"],
    legalComments: "none",
    outdir: dist,
    absWorkingDir: here,
    metafile: true,
    logLevel: "warning",
  };
  const made = await build({
    ...options,
    format: "esm",
    entryPoints: { app: "src/main.ts", style: "src/style/index.css" },
    entryNames: "[name]-[hash]",
  });
  const files = Object.keys(made.metafile.outputs).map((path) => path.split("/").pop());
  const html = readFileSync(join(here, "public/index.html"), "utf8")
    .replace(
      "{{script}}",
      files.find((f) => /^app.*\.js$/.test(f)),
    )
    .replace(
      "{{style}}",
      files.find((f) => /^style.*\.css$/.test(f)),
    );
  writeFileSync(join(dist, "index.html"), html);
  copyFileSync(join(here, "public/icon.svg"), join(dist, "icon.svg"));
}

/**
 * The sample is this project's own source and documents, with a mark between
 * them. They are mixed by a hash of their names, because training holds out the
 * tail of its data, which should not be of one kind.
 */
function sample() {
  const listed = execFileSync("git", ["ls-files", "*.go", "*.md", "*.wgsl", "*.ts", "*.css"], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 26,
  });
  const names = listed
    .split("\n")
    .filter((name) => name && !/testdata|_amd64\.|package-lock/.test(name) && existsSync(join(root, name)));
  if (names.length === 0) throw new Error("git lists no files to make the sample of; build in a checkout");
  const text = names
    .sort((a, b) => (hash(a) < hash(b) ? -1 : 1))
    .map((name) => readFileSync(join(root, name), "utf8"))
    .join("<|endoftext|>");
  writeFileSync(join(dist, "sample.txt.gz"), gzipSync(text, { level: 9 }));
}

const hash = (name) => createHash("sha256").update(name).digest("hex");

/** Compressed copies for hosts that hand them out, with what a visit costs. */
function compress() {
  let total = 0;
  for (const name of readdirSync(dist).sort()) {
    if (!/\.(js|css|html|svg)$/.test(name)) continue;
    const bytes = readFileSync(join(dist, name));
    writeFileSync(join(dist, name + ".gz"), gzipSync(bytes, { level: 9 }));
    const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length };
    writeFileSync(join(dist, name + ".br"), brotliCompressSync(bytes, { params }));
    const [gz, br] = [".gz", ".br"].map((end) => statSync(join(dist, name + end)).size);
    total += gz;
    console.log(
      `${name.padEnd(24)} ${String(bytes.length).padStart(9)} B   gzip ${String(gz).padStart(8)}   brotli ${String(br).padStart(8)}`,
    );
  }
  console.log(`page without engine: ${(total / 1024).toFixed(1)} KiB gzip`);
}

if (process.argv[2] !== "compress") {
  clean();
  await page();
  sample();
}
compress();
