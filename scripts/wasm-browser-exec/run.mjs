// Runs a js/wasm program of Go in headless Chromium with WebGPU, and takes on
// its output and exit code:
//
//	GOOS=js GOARCH=wasm go test -exec "node $PWD/scripts/wasm-browser-exec/run.mjs" ./gpu/
//
// or, with this folder in PATH (Go looks for go_js_wasm_exec there):
//
//	GOOS=js GOARCH=wasm go test ./gpu/
//
// Environment: CHROMIUM is the browser (default: chromium in PATH),
// WEBGPU_ADAPTER "swiftshader" (default, needs no GPU) or "" for the real GPU,
// WASM_TIMEOUT_S the most seconds a run may take (default 600). Variables that
// begin with TEZGAH_ reach the program. Files do not: embed what a test needs.
// But with WASM_FS=opfs the program runs in a worker with the file system of the
// workbench's tab, and the package's testdata in it; WASM_FS=memory is the same
// in memory, and WASM_FS=nomove as in a browser that cannot move files. These
// need esbuild (npm ci in workbench/web).
import { execFileSync } from "node:child_process";
import { createReadStream, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const [wasm, ...argv] = process.argv.slice(2);
if (!wasm) {
  console.error("usage: node run.mjs PROGRAM.wasm [ARGUMENT...]");
  process.exit(2);
}

const files = process.env.WASM_FS ?? "";
if (!["", "opfs", "memory", "nomove"].includes(files)) {
  console.error(`WASM_FS is "${files}", want opfs, memory, nomove or nothing`);
  process.exit(2);
}

const adapter = process.env.WEBGPU_ADAPTER ?? "swiftshader";
const flags = [
  "--no-sandbox",
  "--enable-unsafe-webgpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
if (adapter) flags.push(`--use-webgpu-adapter=${adapter}`);

// findBrowser returns the path of Chromium.
function findBrowser() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ["chromium", "chromium-browser", "google-chrome", "chrome"]) {
    for (const folder of (process.env.PATH ?? "").split(delimiter)) {
      if (existsSync(join(folder, name))) return join(folder, name);
    }
  }
  throw new Error("no Chromium in PATH; install it or set CHROMIUM");
}

// wasmExec is Go's own loader, from the toolchain that built the program.
function wasmExec() {
  const root = execFileSync("go", ["env", "GOROOT"], { encoding: "utf8" }).trim();
  return readFileSync(join(root, "lib", "wasm", "wasm_exec.js"));
}

// bundleWorker makes one script of opfs-worker.ts and the workbench's file system.
async function bundleWorker() {
  const web = fileURLToPath(new URL("../../workbench/web/package.json", import.meta.url));
  const { build } = createRequire(web)("esbuild");
  const entry = fileURLToPath(new URL("opfs-worker.ts", import.meta.url));
  const { outputFiles } = await build({ entryPoints: [entry], bundle: true, write: false, format: "iife", target: "es2022" });
  return outputFiles[0].text;
}

// testdata returns the files of the package under test, by path, in base64.
function testdata() {
  if (!existsSync("testdata")) return {};
  const paths = readdirSync("testdata", { recursive: true }).map((path) => join("testdata", path));
  return Object.fromEntries(paths.filter((path) => statSync(path).isFile()).map((path) => [path, readFileSync(path, "base64")]));
}

// serve answers the page, the loader and the program on a port of this machine.
async function serve() {
  const loader = wasmExec();
  const worker = files && (await bundleWorker());
  const server = createServer((request, response) => {
    if (request.url === "/program.wasm") {
      response.writeHead(200, { "Content-Type": "application/wasm", "Content-Length": statSync(wasm).size });
      createReadStream(wasm).pipe(response);
    } else if (request.url === "/wasm_exec.js") {
      response.writeHead(200, { "Content-Type": "text/javascript" }).end(loader);
    } else if (worker && request.url === "/worker.js") {
      response.writeHead(200, { "Content-Type": "text/javascript" }).end(worker);
    } else if (worker && request.url === "/files.json") {
      response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(testdata()));
    } else if (request.url === "/") {
      response.writeHead(200, { "Content-Type": "text/html" }).end('<!doctype html><script src="/wasm_exec.js"></script>');
    } else {
      response.writeHead(404).end();
    }
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

// runInPage is executed by the browser: it starts the program and returns its
// exit code once all output has been handed over.
async function runInPage({ argv, env }) {
  const sent = [];
  globalThis.fs.writeSync = (fd, bytes) => {
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
    sent.push(globalThis.emitOutput(fd, text));
    return bytes.length;
  };
  const go = new globalThis.Go();
  go.argv = argv;
  go.env = env;
  let code = 0;
  go.exit = (n) => { code = n; };
  const { instance } = await WebAssembly.instantiateStreaming(fetch("/program.wasm"), go.importObject);
  await go.run(instance);
  await Promise.all(sent);
  return code;
}

// runInWorker is the same in a worker with files.
function runInWorker({ argv, env, files }) {
  return new Promise((resolve, reject) => {
    const sent = [];
    const worker = new Worker("/worker.js");
    worker.onerror = (event) => reject(new Error(event.message || "the worker did not load"));
    worker.onmessage = ({ data }) => {
      if (data.error) reject(new Error(data.error));
      else if (data.text !== undefined) sent.push(globalThis.emitOutput(data.fd, data.text));
      else Promise.all(sent).then(() => resolve(data.code));
    };
    worker.postMessage({ argv, env, memory: files === "memory", noMove: files === "nomove" });
  });
}

// programArguments drops what the browser has no files for.
function programArguments() {
  return ["program", ...argv.filter((a) => !/^-test\.(testlogfile|outputdir|gocoverdir|coverprofile)=/.test(a))];
}

const profile = mkdtempSync(join(tmpdir(), "wasm-browser-"));
const server = await serve();
let browser;
let code = 1;
try {
  browser = await chromium.launchPersistentContext(profile, { executablePath: findBrowser(), headless: true, args: flags });
  const page = await browser.newPage();
  const ended = new Promise((_, reject) => {
    page.on("crash", () => reject(new Error("the page crashed")));
    setTimeout(() => reject(new Error("timed out")), 1000 * Number(process.env.WASM_TIMEOUT_S ?? 600)).unref();
  });
  page.on("pageerror", (error) => {
    // Go's loader says this of timers that are still set when a program ends.
    if (!/Go program has already exited/.test(error)) console.error("page: " + error);
  });
  await page.exposeFunction("emitOutput", (fd, text) => {
    (fd === 2 ? process.stderr : process.stdout).write(Buffer.from(text, "latin1"));
  });
  await page.goto(`http://127.0.0.1:${server.address().port}/`);
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("TEZGAH_")));
  code = await Promise.race([page.evaluate(files ? runInWorker : runInPage, { argv: programArguments(), env, files }), ended]);
} catch (error) {
  console.error("wasm-browser-exec: " + error.message);
} finally {
  await browser?.close().catch(() => {});
  server.close();
  rmSync(profile, { recursive: true, force: true });
}
process.exit(code);
