// An engine that only pretends, for tests of the page alone: it answers the
// requests of docs/api.md from memory, with runs whose loss falls by a formula.
// It is never part of the page. By hand: node test/mock.mjs [PORT]
import { createReadStream, existsSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join } from "node:path";
import { fileURLToPath } from "node:url";

const dist = join(dirname(fileURLToPath(import.meta.url)), "..", "dist");
const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml" };
const now = () => new Date().toISOString();

const presets = [
  ["nano", 1_049_728, 128, 4, 4, 2, 384, 2048, 256],
  ["micro", 10_000_640, 256, 8, 4, 2, 1024, 8192, 512],
  ["mini", 38_800_896, 512, 8, 8, 2, 2048, 16384, 512],
  ["small", 116_400_384, 768, 12, 12, 4, 3072, 16384, 1024],
  ["medium", 360_800_256, 1024, 24, 16, 4, 3584, 32768, 1024],
  ["large", 1_025_600_512, 2048, 22, 16, 4, 5632, 16384, 2048],
].map(([name, params, d_model, layers, heads, kv_heads, ffn, vocab_size, context]) => ({
  name,
  params,
  model: {
    vocab_size,
    context,
    d_model,
    layers,
    heads,
    kv_heads,
    head_dim: d_model / heads,
    ffn,
    rope_theta: 10000,
    norm_eps: 1e-5,
    tied: true,
    activation: "silu",
    init_std: 0.02,
  },
}));

/** Loss at a step: a falling power with a little noise that is the same each time. */
const lossAt = (step) => 2.4 + 5.2 * (1 + step / 8) ** -0.45 + 0.12 * Math.sin(step * 12.9898) * Math.cos(step * 78.233);

/**
 * Starts the engine. Options: port; tick, the ms between log lines of a run;
 * perTick, the steps in one tick; faults, a map from "METHOD /path" to
 * {status, error} that is answered instead.
 */
export function startMock({ port = 0, tick = 50, perTick = 1, faults = {} } = {}) {
  const state = { texts: [], tokenizers: [], data: [], runs: new Map(), models: [], jobs: [], faults, requests: [] };
  state.texts.push({
    name: "sample",
    label: "sample",
    bytes: 3_100_000,
    files: 1,
    documents: 412,
    created: now(),
    format: "jsonl",
    sample: true,
  });
  const listeners = new Set();
  const timers = new Set();
  const publish = (event) => listeners.forEach((send) => send(event));
  const every = (ms, f) => {
    const timer = setInterval(() => f(() => (clearInterval(timer), timers.delete(timer))), ms);
    timers.add(timer);
  };

  function startJob(kind, name, unit, total, result) {
    const job = {
      id: String(state.jobs.length + 1),
      kind,
      name,
      state: "running",
      stage: kind === "tokenizer" ? "merge" : "encode",
      done: 0,
      total,
      rate: 0,
      unit,
      eta_s: 0,
    };
    state.jobs.push(job);
    every(60, (stop) => {
      if (job.state === "running") {
        job.done = Math.min(total, job.done + total / 12);
        job.rate = total / 0.72;
        job.eta_s = (total - job.done) / job.rate;
        if (job.done >= total) Object.assign(job, { state: "done", result: result() });
      }
      publish({ type: "job", job });
      if (job.state !== "running") stop();
    });
    return job;
  }

  const add = (list, what, item) => {
    state[list] = [item, ...state[list].filter((o) => o.name !== item.name)];
    publish({ type: "list", what });
    return item;
  };

  function plan(s) {
    const model = { ...(presets.find((p) => p.name === (s.preset || "nano")) ?? presets[0]).model, ...s.model };
    const params = model.layers * model.d_model * (2.5 * model.d_model + 3 * model.ffn) + model.vocab_size * model.d_model;
    const [batch, context, accum] = [s.batch || 8, s.context || model.context, s.accum || 1];
    const data = state.data.find((d) => d.name === s.data?.[0]?.name);
    const steps = s.max_steps || Math.ceil(((s.epochs || 1) * (data?.tokens ?? 1e6)) / (batch * context * accum));
    const activations = batch * context * model.d_model * model.layers * (s.recompute ? 8 : 34);
    const memory = [
      { label: "weights", bytes: 4 * params },
      { label: "gradients", bytes: 4 * params },
      { label: s.moments8 ? "moments (8-bit)" : "moments", bytes: (s.moments8 ? 2 : 8) * params },
      { label: "activations", bytes: activations },
      { label: "logits chunk", bytes: 16 << 20 },
    ];
    const total = memory.reduce((sum, r) => sum + r.bytes, 0);
    const problems =
      model.d_model % model.heads !== 0
        ? [{ field: "heads", message: `heads is ${model.heads}, want a divisor of d_model ${model.d_model}` }]
        : [];
    const speed = state.probed ? 21000 : 0;
    const perStep = batch * context * accum;
    return {
      params,
      model,
      memory,
      total,
      free: 23 * 2 ** 30,
      fits: total < 23 * 2 ** 30,
      tokens_per_step: perStep,
      steps,
      epochs: (steps * perStep) / (data?.tokens ?? 1e6),
      flops_per_token: 6 * params,
      lr: s.lr || 0.002,
      min_lr: 0.0002,
      warmup: Math.ceil(steps / 50),
      tok_per_s: speed,
      seconds: speed ? (steps * perStep) / speed : 0,
      notices: [],
      problems,
    };
  }

  function startRun(settings, from = 0) {
    const p = plan(settings);
    const run = {
      name: settings.name,
      state: "running",
      step: from,
      last_step: p.steps,
      loss: 7.6,
      val_loss: 0,
      lr: 0,
      grad_norm: 0,
      tokens: 0,
      tok_per_s: 0,
      elapsed_s: 0,
      eta_s: 0,
      params: p.params,
      context: p.model.context,
      bytes: 0,
      created: now(),
      updated: now(),
      device: "Mock processor, 2 threads, f32",
      settings,
      warnings: [],
      notices: [],
      checkpoints: [],
    };
    const entry = { run, log: [], followers: new Set(), perStep: p.tokens_per_step, rate: p.lr };
    state.runs.set(run.name, entry);
    publish({ type: "list", what: "runs" });
    train(entry);
    return run;
  }

  function write(entry, record) {
    entry.log.push(record);
    entry.followers.forEach((send) => send({ record, line: entry.log.length }));
  }

  function train(entry) {
    const { run } = entry;
    let sent = 0;
    every(tick, (stop) => {
      for (let i = 0; i < perTick && run.state === "running"; i++) step(entry);
      if (run.state !== "running" || Date.now() - sent > 500) {
        sent = Date.now();
        publish({ type: "run", run });
        entry.followers.forEach((send) => send({ run }));
      }
      if (run.state !== "running") stop();
    });
  }

  function step(entry) {
    const { run } = entry;
    const s = ++run.step;
    run.loss = lossAt(s);
    run.lr = entry.rate * Math.min(1, s / 20) * (0.1 + 0.9 * 0.5 * (1 + Math.cos((Math.PI * s) / run.last_step)));
    run.grad_norm = 0.6 + 3 / Math.sqrt(s) + 0.1 * Math.sin(s);
    run.tokens = s * entry.perStep;
    run.tok_per_s = 21000 + 900 * Math.sin(s / 7);
    run.elapsed_s = run.tokens / run.tok_per_s;
    run.eta_s = ((run.last_step - s) * entry.perStep) / run.tok_per_s;
    run.updated = now();
    const measured = s % Math.max(1, Math.round(run.last_step / 10)) === 0 || s === run.last_step;
    if (measured) run.val_loss = run.loss + 0.08;
    write(entry, {
      type: "step",
      step: s,
      loss: run.loss,
      ...(measured ? { val_loss: run.val_loss } : {}),
      lr: run.lr,
      grad_norm: run.grad_norm,
      clip: 1,
      tokens: run.tokens,
      tok_per_s: run.tok_per_s,
      nonfinite: 0,
      time: now(),
    });
    if (measured) {
      run.checkpoints = [...run.checkpoints, { step: s, bytes: 12 * run.params, created: now() }].slice(-3);
      run.bytes = 36 * run.params;
      run.sample = { step: s, text: `func (s *Store) read(name string) error {\n\treturn s.open(name, ${s})\n}` };
      write(entry, { type: "sample", step: s, time: now(), message: run.sample.text });
    }
    if (s >= run.last_step) finish(run, "done");
  }

  function finish(run, to) {
    run.state = to;
    run.eta_s = 0;
    add("models", "models", {
      name: run.name,
      run: run.name,
      step: run.step,
      params: run.params,
      loss: run.loss,
      val_loss: run.val_loss,
      bytes: 4 * run.params,
      created: now(),
      context: run.context,
      vocab_size: 2048,
      chat_template: run.settings.template ?? "",
      trained_tokens: run.tokens,
      tokenizer: true,
      adapters: false,
    });
  }

  async function generate(body, send, closed) {
    const words =
      " return nil\n}\n\n// The next token is drawn from what is likely.\nfunc (t *Tokenizer) Encode(text string) []int32 {\n\tif len(text) == 0 {\n\t\treturn nil\n\t}\n".match(
        /\s*\S+|\s+/g,
      );
    send({ type: "start", prompt_tokens: (body.prompt ?? "").length, seed: body.seed ?? 1 });
    const count = Math.min(body.max_tokens || 256, 120);
    for (let i = 0; i < count && !closed(); i++) {
      const prob = 0.15 + 0.8 * Math.abs(Math.sin(i * 7.3 + (body.seed ?? 0)));
      const alternatives = [
        { id: 300 + i, text: words[i % words.length], prob },
        { id: 12, text: " if", prob: (1 - prob) / 2 },
        { id: 40, text: " the", prob: (1 - prob) / 3 },
      ];
      send({ type: "piece", id: 300 + i, text: words[i % words.length], prob, alternatives });
      await new Promise((resolve) => setTimeout(resolve, 6));
    }
    send({ type: "end", reason: "length", new_tokens: count, tok_per_s: 160.2, notes: [] });
  }

  function encode(text) {
    const tokens = [];
    let at = 0;
    for (const part of text.match(/\s*[\p{L}]{1,4}|\s*\p{N}{1,3}|\s*[^\s\p{L}\p{N}]+|\s+/gu) ?? []) {
      const size = Buffer.byteLength(part);
      tokens.push({
        id: [...part].reduce((h, c) => (h * 31 + c.codePointAt(0)) % 2048, 7),
        text: part,
        start: at,
        end: (at += size),
        special: false,
      });
    }
    const words = text.split(/\s+/).filter(Boolean).length;
    return {
      tokens,
      bytes: at,
      words,
      bytes_per_token: at / (tokens.length || 1),
      tokens_per_word: tokens.length / (words || 1),
      vocab_used: new Set(tokens.map((t) => t.id)).size,
    };
  }

  const kernels = ["MatMul", "Attention", "AttentionBackward", "AdamW", "RMSNorm", "GateUp", "CrossEntropy", "RoPE"];
  const profile = () => ({
    method: "each call timed alone: start, wait, less the cost of an empty call",
    step_ms: 97.3,
    device: "Mock",
    peak_tflops: 0.2,
    peak_gb_per_s: 20,
    rows: kernels.map((name, i) => ({
      name,
      calls: 40 - 4 * i,
      ms: 40 / (i + 1),
      share: 0.42 / (i + 1),
      gb_per_s: 8 / (i + 1),
      tflops: 0.11 / (i + 1),
      of_peak: 0.6 / (i + 1),
      of_copy: i % 2 ? 0.8 / i : 0,
      bound_by_memory: i > 2,
    })),
  });

  // Requests by "METHOD pattern"; name stands for one part of the path.
  const routes = {
    "GET /api/status": () => ({
      version: "mock",
      place: "server",
      device: "Mock processor, 2 threads, f32",
      devices: [
        { id: "cpu", name: "Mock processor", kind: "cpu", software: false },
        { id: "gpu:0", name: "llvmpipe (LLVM 15)", kind: "gpu", software: true },
      ],
      f16: false,
      threads: 2,
      free_memory: 23 * 2 ** 30,
      presets,
      storage: { used: 41e6, free: 180e9, persistent: true },
      notices: [],
      dir: "/mock",
      default_device: "auto",
      sample: true,
    }),
    "GET /api/jobs": () => state.jobs,
    "DELETE /api/jobs/:id": ({ name }) =>
      void Object.assign(
        state.jobs.find((j) => j.id === name),
        { state: "canceled" },
      ),
    "GET /api/texts": () => state.texts,
    "PUT /api/texts/:name": ({ name, query, raw }) =>
      add("texts", "texts", {
        name,
        label: query.get("label"),
        bytes: raw.length,
        files: 1,
        documents: 1,
        created: now(),
        format: /jsonl/.test(query.get("label")) ? "jsonl" : "text",
        sample: false,
      }),
    "GET /api/texts/:name": () => "package tezgah\n\n// A loom weaves thread by thread.\n",
    "DELETE /api/texts/:name": ({ name }) => remove("texts", name),
    "GET /api/tokenizers": () => state.tokenizers,
    "POST /api/tokenizers": ({ body }) =>
      startJob("tokenizer", body.name, "merges/s", body.vocab_size, () =>
        add("tokenizers", "tokenizers", {
          name: body.name,
          vocab_size: body.vocab_size,
          pattern: body.pattern,
          specials: body.specials ?? [],
          nfc: false,
          bytes: 81000,
          created: now(),
          sha256: "0",
        }),
      ),
    "PUT /api/tokenizers/:name": ({ name }) =>
      add("tokenizers", "tokenizers", {
        name,
        vocab_size: 4096,
        pattern: "llama3",
        specials: [],
        nfc: false,
        bytes: 81000,
        created: now(),
        sha256: "0",
      }),
    "GET /api/tokenizers/:name": () => ({ model: { type: "BPE" } }),
    "DELETE /api/tokenizers/:name": ({ name }) => remove("tokenizers", name),
    "POST /api/tokenizers/:name/encode": ({ body }) => encode(body.text),
    "GET /api/data": () => state.data,
    "POST /api/data": ({ body }) =>
      startJob("data", body.name, "MB/s", 3.1, () =>
        add("data", "data", {
          name: body.name,
          tokens: 1_200_000,
          documents: 412,
          bytes: 2_400_000,
          text_bytes: 3_100_000,
          vocab_size: 2048,
          tokenizer_sha256: "0",
          created: now(),
        }),
      ),
    "DELETE /api/data/:name": ({ name }) => remove("data", name),
    "GET /api/runs": () => [...state.runs.values()].map((e) => e.run).reverse(),
    "POST /api/runs": ({ body }) => startRun(body),
    "POST /api/runs/plan": ({ body }) => plan(body),
    "POST /api/runs/probe": ({ body }) =>
      startJob("probe", body.name, "steps/s", 4, () => ((state.probed = true), { tok_per_s: 21000, step_ms: 97, total_s: 60 })),
    "GET /api/runs/:name": ({ name }) => state.runs.get(name).run,
    "POST /api/runs/:name/pause": ({ name }) => change(name, "paused"),
    "POST /api/runs/:name/stop": ({ name }) => (finish(state.runs.get(name).run, "stopped"), state.runs.get(name).run),
    "POST /api/runs/:name/resume": ({ name, body }) => {
      const entry = state.runs.get(name);
      entry.run.last_step = body.max_steps || entry.run.last_step;
      change(name, "running");
      train(entry);
      return entry.run;
    },
    "POST /api/runs/:name/fork": ({ name, body }) =>
      startRun({ ...state.runs.get(name).run.settings, ...body }, body.step ?? state.runs.get(name).run.step),
    "POST /api/runs/:name/profile": ({ name }) => startJob("profile", name, "", 8, profile),
    "GET /api/runs/:name/log": ({ name, query }) => {
      const { log, run } = state.runs.get(name);
      const after = Number(query.get("after") ?? 0);
      const records = log.slice(after, after + 20000);
      return { records, next: after + records.length, total: log.length, version: 0, state: run.state };
    },
    "DELETE /api/runs/:name": ({ name }) => (
      state.runs.delete(name),
      remove("models", name),
      publish({ type: "list", what: "runs" })
    ),
    "GET /api/models": () => state.models,
    "PUT /api/models/:name": ({ name }) =>
      startJob("import", name, "MB/s", 4, () =>
        add("models", "models", {
          name,
          params: 1_049_728,
          loss: 0,
          val_loss: 0,
          bytes: 4e6,
          created: now(),
          context: 256,
          vocab_size: 2048,
          chat_template: "chatml",
          trained_tokens: 0,
          tokenizer: true,
          adapters: false,
        }),
      ),
    "GET /api/models/:name/download": () => "weights",
    "DELETE /api/models/:name": ({ name }) => remove("models", name),
  };
  const streams = {
    "GET /api/events": (_, send) => (listeners.add(send), () => listeners.delete(send)),
    "GET /api/runs/:name/events": ({ name, query }, send) => {
      const { log, followers } = state.runs.get(name);
      log
        .slice(Number(query.get("after") ?? 0))
        .forEach((record, i) => send({ record, line: Number(query.get("after")) + i + 1 }));
      followers.add(send);
      return () => followers.delete(send);
    },
  };
  const remove = (list, name) => (
    (state[list] = state[list].filter((o) => o.name !== name)),
    publish({ type: "list", what: list }),
    null
  );
  const change = (name, to) => (Object.assign(state.runs.get(name).run, { state: to }), state.runs.get(name).run);

  function find(table, method, path) {
    for (const [key, handle] of Object.entries(table)) {
      const [m, pattern] = key.split(" ");
      const match = m === method && new RegExp("^" + pattern.replace(/:\w+/, "([^/]+)") + "$").exec(path);
      if (match) return { handle, name: match[1] && decodeURIComponent(match[1]) };
    }
    return null;
  }

  function openStream(response) {
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write(": open\n\n");
    return (message) => response.write(`data: ${JSON.stringify(message)}\n\n`);
  }

  function serveFile(response, path) {
    const file = join(dist, path === "/" ? "index.html" : path);
    if (!file.startsWith(dist) || !existsSync(file) || !statSync(file).isFile()) return response.writeHead(404).end("not found");
    response.writeHead(200, { "Content-Type": types[extname(file)] ?? "application/octet-stream", "Cache-Control": "no-store" });
    createReadStream(file).pipe(response);
  }

  async function answer(request, response) {
    const url = new URL(request.url, "http://localhost");
    if (!url.pathname.startsWith("/api/")) return serveFile(response, url.pathname);
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const raw = Buffer.concat(chunks);
    state.requests.push(`${request.method} ${url.pathname}`);
    const json = request.headers["content-type"]?.includes("json") && raw.length > 0 ? JSON.parse(raw) : {};
    const fault = state.faults[`${request.method} ${url.pathname}`];
    if (fault)
      return response.writeHead(fault.status, { "Content-Type": "application/json" }).end(JSON.stringify({ error: fault.error }));
    if (url.pathname === "/api/generate" || url.pathname === "/api/chat") {
      let closed = false;
      response.on("close", () => (closed = true));
      await generate(json, openStream(response), () => closed);
      return response.end();
    }
    const context = { query: url.searchParams, body: json, raw };
    const stream = find(streams, request.method, url.pathname);
    if (stream) {
      const end = stream.handle({ ...context, name: stream.name }, openStream(response));
      return response.on("close", end);
    }
    const route = find(routes, request.method, url.pathname);
    if (!route)
      return response
        .writeHead(404, { "Content-Type": "application/json" })
        .end(JSON.stringify({ error: { code: "not_found", message: request.url } }));
    const result = route.handle({ ...context, name: route.name });
    if (result === null || result === undefined) return response.writeHead(204).end();
    if (typeof result === "string") return response.writeHead(200, { "Content-Type": "text/plain" }).end(result);
    response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(result));
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error) => {
      console.error("mock:", error);
      response
        .writeHead(500, { "Content-Type": "application/json" })
        .end(JSON.stringify({ error: { code: "internal", message: String(error) } }));
    });
  });
  return new Promise((resolve) =>
    server.listen(port, "127.0.0.1", () =>
      resolve({
        url: `http://127.0.0.1:${server.address().port}/`,
        state,
        publish,
        close: () => {
          timers.forEach(clearInterval);
          server.closeAllConnections();
          server.close();
        },
      }),
    ),
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  console.log((await startMock({ port: Number(process.argv[2] ?? 7788) })).url);
