// The engine of the tab in headless Chromium, spoken to as the page does it but
// without the page: for browser/engine.test.mjs and bench-tab.mjs.
import { createReadStream, existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { openProfile } from "./browser.mjs";
import { dist as built } from "./places.mjs";

const types = { ".js": "text/javascript", ".gz": "application/gzip" };

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

/** serve serves the engine's files and an empty page. */
function serve() {
  const dist = process.env.TEZGAH_WEB_DIST ?? built;
  if (!existsSync(join(dist, "worker.js"))) throw new Error(`${dist}/worker.js is missing: run make web`);
  const sample = gzipSync(sampleText(300).join("<|endoftext|>"));
  const server = createServer((request, response) => {
    const { pathname, search } = new URL(request.url, "http://x");
    const name = pathname.slice(1);
    if (name === "") response.writeHead(200, { "Content-Type": "text/html" }).end("<!doctype html><title>engine</title>");
    else if (name === "setup.js") response.writeHead(200, { "Content-Type": types[".js"] }).end(decodeURIComponent(search.slice(1)));
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
    constructor(setup) {
      this.next = 1;
      this.open = new Map();
      this.started = new Map();
      const script = setup && `${setup} importScripts("worker.js");`;
      this.worker = new Worker(script ? "setup.js?" + encodeURIComponent(script) : "worker.js");
      this.worker.onmessage = ({ data }) => this.receive(data);
      this.worker.onerror = (event) => this.open.forEach((o) => o.reject(new Error(event.message)));
    }
    receive({ id, status, headers, chunk, end, error }) {
      const o = this.open.get(id);
      if (!o) return;
      if (status) Object.assign(o, { status, headers });
      if (chunk) o.chunks.push(chunk);
      if (end) {
        this.open.delete(id);
        if (error) o.reject(new Error(error));
        else o.resolve({ status: o.status, headers: o.headers, body: new Blob(o.chunks) });
      }
    }
    /** send starts a request and returns its number. */
    send(method, path, body) {
      const id = this.next++;
      const o = { chunks: [] };
      this.started.set(id, new Promise((resolve, reject) => Object.assign(o, { resolve, reject })));
      this.open.set(id, o);
      this.worker.postMessage({ id, method, path, body });
      return id;
    }
    abort(id) {
      this.worker.postMessage({ id, abort: true });
    }
    /** done waits for the answer to a request. */
    done(id) {
      return this.started.get(id);
    }
    async call(method, path, body) {
      const { status, headers, body: answer } = await this.done(this.send(method, path, body));
      return { status, headers, text: await answer.text() };
    }
  }
  window.startEngine = (setup) => (window.engine = new Engine(setup));
}

/** The pieces of one browser with the engine in it. */
export class Harness {
  static async start() {
    const h = new Harness();
    h.temp = mkdtempSync(join(tmpdir(), "tezgah-engine-"));
    try {
      h.server = await serve();
      h.origin = `http://127.0.0.1:${h.server.address().port}`;
      h.context = await openProfile(join(h.temp, "profile"));
      h.page = await h.open();
    } catch (error) {
      await h.close(); // or the browser keeps the tests from ending
      throw error;
    }
    return h;
  }

  /** open opens a tab with the engine. setup is a function that runs in the worker first. */
  async open(setup) {
    const page = await this.context.newPage();
    page.on("console", (m) => this.log(`console ${m.type()}: ${m.text()}`));
    page.on("pageerror", (e) => this.log("page error: " + e.message));
    await page.addInitScript(client);
    await page.goto(this.origin);
    await page.evaluate((script) => void window.startEngine(script), setup && `(${setup})();`);
    return page;
  }

  /** restart ends the worker, as closing the tab does, and starts another; setup runs in it before the engine does. */
  async restart(setup) {
    await this.page.close();
    this.page = await this.open(setup);
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

  /** weights is a hash of everything in a model file behind its header, which has times in it. */
  weights(model) {
    return this.page.evaluate(async (path) => {
      const { status, body } = await window.engine.done(window.engine.send("GET", path));
      const file = await body.arrayBuffer();
      if (status !== 200) throw new Error(new TextDecoder().decode(file));
      const data = file.slice(8 + Number(new DataView(file).getBigUint64(0, true)));
      const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", data));
      return data.byteLength + ":" + Array.from(hash, (b) => b.toString(16).padStart(2, "0")).join("");
    }, `/api/models/${model}/download?format=llm`);
  }

  /** inWorker runs a function in the worker. */
  async inWorker(f, arg, page = this.page) {
    const worker = page.workers()[0] ?? (await page.waitForEvent("worker"));
    return worker.evaluate(f, arg);
  }

  async close() {
    await this.context?.close().catch(() => {});
    this.server?.closeAllConnections();
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
