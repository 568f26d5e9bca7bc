// The engine in headless Chromium, spoken to as the page does it but without the
// page: for engine.spec.mjs and engine-bench.mjs. Builds the worker and the wasm
// program unless TEZGAH_WEB_DIST names a folder that has them.
import { execFileSync } from "node:child_process";
import { createReadStream, existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { delimiter, dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { chromium } from "playwright-core";

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const types = { ".js": "text/javascript", ".html": "text/html", ".gz": "application/gzip" };

function findBrowser() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ["chromium", "chromium-browser", "google-chrome", "chrome"]) {
    for (const folder of (process.env.PATH ?? "").split(delimiter)) {
      if (existsSync(join(folder, name))) return join(folder, name);
    }
  }
  throw new Error("no Chromium in PATH; install it or set CHROMIUM");
}

/** sampleText is English-like text by a small grammar: the same for each seed, and easy to learn. */
export function sampleText(documents, seed = 1) {
  let state = seed;
  const pick = (list) => list[((state = (state * 1103515245 + 12345) & 0x7fffffff) >> 8) % list.length];
  const noun = ["weaver", "loom", "thread", "carpet", "child", "river", "village", "lamp"];
  const verb = ["makes", "sees", "carries", "finds", "loves", "breaks"];
  const how = ["slowly", "again", "at night", "in the morning", "with care"];
  const sentence = () => `The ${pick(noun)} ${pick(verb)} the ${pick(noun)} ${pick(how)}. `;
  return Array.from({ length: documents }, () => Array.from({ length: 12 }, sentence).join("").trim());
}

function build(folder) {
  execFileSync(join(web, "scripts", "build-wasm.sh"), [folder], { stdio: ["ignore", "ignore", "inherit"] });
}

/** serveDist serves the engine's files and an empty page. */
function serveDist(dist) {
  const sample = gzipSync(sampleText(300).join("<|endoftext|>"));
  const server = createServer((request, response) => {
    const name = new URL(request.url, "http://x").pathname.slice(1);
    if (name === "") response.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>engine</title>");
    else if (name === "sample.txt.gz") response.writeHead(200, { "Content-Type": "application/gzip" }).end(sample);
    else if (/^[a-z.]+$/.test(name) && existsSync(join(dist, name))) {
      response.writeHead(200, { "Content-Type": types[extname(name)] ?? "application/octet-stream" });
      createReadStream(join(dist, name)).pipe(response);
    } else response.writeHead(404).end();
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

/** client runs in the page: window.engine is what a test speaks to. */
function client() {
  class Engine {
    constructor() {
      this.next = 1;
      this.open = new Map();
      this.streams = new Map();
      this.worker = new Worker("worker.js");
      this.worker.onmessage = ({ data }) => this.receive(data);
      this.worker.onerror = (event) => this.open.forEach((o) => o.reject(new Error(event.message)));
    }
    receive({ id, status, headers, chunk, end, error }) {
      const o = this.open.get(id);
      if (!o) return;
      if (status) Object.assign(o, { status, headers });
      if (chunk) {
        o.text += o.decoder.decode(chunk, { stream: true });
        o.bytes += chunk.length;
      }
      if (end) {
        this.open.delete(id);
        if (error) o.reject(new Error(error));
        else o.resolve({ status: o.status, headers: o.headers, text: o.text, bytes: o.bytes });
      }
    }
    /** send starts a request and returns its number. */
    send(method, path, body) {
      const id = this.next++;
      const o = { text: "", bytes: 0, decoder: new TextDecoder() };
      o.done = new Promise((resolve, reject) => Object.assign(o, { resolve, reject }));
      this.open.set(id, o);
      this.streams.set(id, o);
      this.worker.postMessage({ id, method, path, body });
      return id;
    }
    abort(id) {
      this.worker.postMessage({ id, abort: true });
    }
    call(method, path, body) {
      return this.streams.get(this.send(method, path, body)).done;
    }
  }
  window.startEngine = () => (window.engine = new Engine());
}

/** The pieces of one browser with the engine in it. */
export class Harness {
  static async start({ args = [], memory = false } = {}) {
    const h = new Harness();
    h.temp = mkdtempSync(join(tmpdir(), "tezgah-engine-"));
    h.dist = process.env.TEZGAH_WEB_DIST ?? join(h.temp, "dist");
    if (!process.env.TEZGAH_WEB_DIST) build(h.dist);
    h.server = await serveDist(h.dist);
    h.origin = `http://127.0.0.1:${h.server.address().port}`;
    const flags = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"];
    const options = { executablePath: findBrowser(), headless: true, args: [...flags, ...args] };
    h.context = await chromium.launchPersistentContext(join(h.temp, "profile"), options);
    h.page = await h.open();
    return h;
  }

  /** open opens a tab with the engine. */
  async open() {
    const page = await this.context.newPage();
    page.on("console", (m) => this.log(`console ${m.type()}: ${m.text()}`));
    page.on("pageerror", (e) => this.log("page error: " + e.message));
    await page.addInitScript(client);
    await page.goto(this.origin);
    await page.evaluate(() => void window.startEngine());
    return page;
  }

  log(line) {
    if (process.env.TEZGAH_WEB_VERBOSE) console.error(line);
  }

  /** call makes a request and fails unless it is answered with 2xx. */
  async call(method, path, body, page = this.page) {
    const answer = await this.try(method, path, body, page);
    if (answer.status < 200 || answer.status > 299) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.headers?.["Content-Type"]?.includes("application/json") ? JSON.parse(answer.text) : answer;
  }

  try(method, path, body, page = this.page) {
    const content = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
    return page.evaluate(([m, p, b]) => window.engine.call(m, p, b), [method, path, content]);
  }

  /** upload puts text as a file, as a dropped file would arrive. */
  async upload(path, text) {
    const answer = await this.page.evaluate(([p, t]) => window.engine.call("PUT", p, new Blob([t])), [path, text]);
    if (answer.status !== 200) throw new Error(`PUT ${path}: ${answer.status} ${answer.text}`);
    return JSON.parse(answer.text);
  }

  /** job waits for a job's end and returns it. */
  async job(started) {
    return until(async () => {
      const job = (await this.call("GET", "/api/jobs")).find((j) => j.id === started.id);
      return job.state !== "running" && job;
    }, "job " + started.kind);
  }

  /** run waits until a run is as wanted. */
  run(name, wanted) {
    return until(async () => {
      const run = await this.call("GET", "/api/runs/" + name);
      if (run.state === "failed") throw new Error("run failed: " + run.error);
      return wanted(run) && run;
    }, "run " + name);
  }

  /** evaluate runs a function in the worker. */
  async inWorker(f, arg, page = this.page) {
    const worker = page.workers()[0] ?? (await page.waitForEvent("worker"));
    return worker.evaluate(f, arg);
  }

  async close() {
    await this.context?.close().catch(() => {});
    this.server?.close();
    rmSync(this.temp, { recursive: true, force: true });
  }
}

/** until asks again and again; tests have no time limit but the runner's. */
export async function until(ask, what) {
  for (let n = 0; n < 20_000; n++) {
    const answer = await ask();
    if (answer) return answer;
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(what + " does not come to an end");
}
