// The engine in the tab by its requests alone: what training, files and devices
// do when workers, GPUs and storage fail. The page has its own tests.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Harness, sampleText, until } from "../engine.mjs";

let h;

before(async () => {
  h = await Harness.start();
  await h.upload("/api/texts/weaver?label=weaver.txt", sampleText(400).join("\n\n"));
  await h.job(await h.call("POST", "/api/tokenizers", { name: "weaver", texts: ["weaver"], vocab_size: 300, pattern: "llama3" }));
  await h.job(await h.call("POST", "/api/data", { name: "weaver", texts: ["weaver"], tokenizer: "weaver" }));
});
after(() => h?.close());

/** A model that takes a few milliseconds a step. */
const small = { d_model: 32, layers: 2, heads: 2, kv_heads: 1, head_dim: 16, ffn: 64, context: 32 };
const settings = (name, more) => ({
  name,
  data: [{ name: "weaver" }],
  preset: "nano",
  model: small,
  batch: 4,
  seed: 5,
  device: "cpu",
  eval_every: -1,
  ...more,
});

/** losses are those of the log, by step. */
async function losses(name) {
  const { records } = await h.call("GET", `/api/runs/${name}/log`);
  return records.filter((r) => r.type === "step").map((r) => [r.step, r.loss]);
}

test("the tab says where it is", async () => {
  const status = await h.call("GET", "/api/status");
  assert.equal(status.place, "tab");
  assert.match(status.device, /simd128/, "without a real GPU the processor computes, with vectors");
  assert.ok(status.storage.free > 1 << 20, `${status.storage.free} bytes free`);
  assert.deepEqual(status.notices, []);
});

test("from text to generated text, with answers while it trains", async () => {
  await h.call("POST", "/api/runs", settings("first", { max_steps: 1500 }));
  const running = await h.run("first", (r) => r.step > 20);
  for (let i = 0; i < 5; i++) await h.call("GET", "/api/jobs"); // answered between steps
  const asked = await h.call("GET", "/api/runs/first");
  assert.equal(asked.state, "running", `training ended before five requests were answered, at step ${asked.step}`);
  const done = await h.run("first", (r) => r.state === "done");
  assert.ok(done.loss < running.loss && done.loss < 3, `loss ${running.loss} at step ${running.step}, ${done.loss} at the end`);
  const answer = await h.call("POST", "/api/generate", {
    model: "first",
    prompt: "The weaver",
    max_tokens: 40,
    temperature: 0.5,
    seed: 3,
    device: "cpu",
  });
  const messages = answer.text
    .split("\n\n")
    .filter(Boolean)
    .map((m) => JSON.parse(m.replace(/^data: /, "")));
  const text = messages
    .filter((m) => m.type === "piece")
    .map((m) => m.text)
    .join("");
  assert.match(text, /\b(the|weaver|loom|thread|carpet|child|river|village|lamp)\b/, `it wrote ${JSON.stringify(text)}`);
  assert.equal(messages.at(-1).type, "end");
});

test("generation is broken off", async () => {
  const reason = await h.page.evaluate(async () => {
    const body = JSON.stringify({ model: "first", prompt: "The", max_tokens: 100000, ignore_end: true, device: "cpu" });
    const id = window.engine.send("POST", "/api/generate", body);
    await new Promise((done) => setTimeout(done, 300));
    window.engine.abort(id);
    const { body: all } = await window.engine.done(id);
    return (await all.text()).length;
  });
  assert.ok(reason > 0 && reason < 5e6, `${reason} characters after the abort`);
});

test("a run whose worker died is paused, and goes on to the bit", async () => {
  const wanted = { max_steps: 120, checkpoint_every: 20, keep: 2 };
  await h.call("POST", "/api/runs", settings("unbroken", wanted));
  await h.run("unbroken", (r) => r.state === "done");
  await h.call("POST", "/api/runs", settings("broken", wanted));
  await h.run("broken", (r) => r.step >= 45 && r.step < 115);
  await h.restart();
  const found = await h.call("GET", "/api/runs/broken");
  assert.equal(found.state, "paused");
  assert.ok(found.step > 0 && found.step < 120, `found at step ${found.step}`);
  await h.call("POST", "/api/runs/broken/resume", {});
  await h.run("broken", (r) => r.state === "done");
  assert.deepEqual(await losses("broken"), await losses("unbroken"));
  assert.equal(await h.weights("broken"), await h.weights("unbroken"));
});

test("a second tab is told where the workbench is, and gets it when the first is closed", async () => {
  const second = await h.open();
  const refused = await h.try("GET", "/api/status", undefined, second);
  assert.equal(refused.status, 409);
  assert.equal(JSON.parse(refused.text).error.code, "busy");
  assert.match(JSON.parse(refused.text).error.message, /open in another tab/);
  await h.page.close();
  h.page = second;
  await until(async () => (await h.try("GET", "/api/status")).status === 200, "the second tab");
  assert.ok((await h.call("GET", "/api/runs")).some((r) => r.name === "unbroken"));
});

test("full storage pauses or fails a run with an error that says so, and loses nothing", async () => {
  const devtools = await h.context.newCDPSession(h.page);
  const quota = (quotaSize) => devtools.send("Storage.overrideQuotaForOrigin", { origin: h.origin, quotaSize });
  await h.call("POST", "/api/runs", settings("full", { max_steps: 4000, checkpoint_every: 40, keep: -1 }));
  await h.run("full", (r) => r.checkpoints.length >= 2);
  const used = await h.page.evaluate(async () => (await navigator.storage.estimate()).usage);
  await quota(used + 300_000);
  const failed = await until(async () => {
    const run = await h.call("GET", "/api/runs/full");
    return !["running", "starting", "pausing"].includes(run.state) && run;
  }, "the full run");
  assert.match(failed.error ?? "", /the disk is full.*earlier checkpoints are untouched/, JSON.stringify(failed));
  const upload = await h.page.evaluate(() =>
    window.engine.call("PUT", "/api/texts/large", new Blob([new Uint8Array(4 << 20).fill(65)])),
  );
  assert.equal(upload.status, 507, upload.text);
  assert.ok(
    (await h.call("GET", "/api/texts")).every((t) => t.name !== "large"),
    "the half text is gone",
  );
  assert.match(await h.weights("unbroken"), /^\d+:[0-9a-f]{64}$/, "what was there can still be read");

  await devtools.send("Storage.overrideQuotaForOrigin", { origin: h.origin });
  await h.restart();
  const kept = await h.call("GET", "/api/runs/full");
  assert.ok(kept.checkpoints.length >= 2, "checkpoints were lost");
  await h.call("POST", "/api/runs/full/resume", { max_steps: kept.step + 400 });
  await h.run("full", (r) => r.step > kept.step);
  await h.call("POST", "/api/runs/full/pause", {});
  await h.run("full", (r) => r.state === "paused");
});

test("a lost GPU is opened again, and training goes on from the checkpoint to the bit", async () => {
  await h.restart(() => {
    const ask = GPUAdapter.prototype.requestDevice;
    globalThis.gpuDevices = [];
    GPUAdapter.prototype.requestDevice = async function (...args) {
      const device = await ask.apply(this, args);
      globalThis.gpuDevices.push(device);
      return device;
    };
  });
  const gpu = (await h.call("GET", "/api/status")).devices.find((d) => d.kind === "gpu");
  assert.ok(gpu, "this Chromium has no WebGPU, not even SwiftShader");
  const tiny = { d_model: 16, layers: 1, heads: 1, kv_heads: 1, head_dim: 16, ffn: 32, context: 16 };
  const wanted = { model: tiny, batch: 2, max_steps: 14, checkpoint_every: 4, val_fraction: 0.002, device: gpu.id };
  await h.call("POST", "/api/runs", settings("kept", wanted));
  await h.run("kept", (r) => r.state === "done");
  await h.call("POST", "/api/runs", settings("lost", wanted));
  await h.run("lost", (r) => r.step >= 6 && r.step < 13);
  await h.inWorker(() => globalThis.gpuDevices.at(-1).destroy());
  const done = await h.run("lost", (r) => r.state === "done");
  assert.match(
    done.notices.join("\n"),
    /the device failed after step \d+ .* going on from step 4|going on from step 8/,
    "the person is told",
  );
  assert.deepEqual(await losses("lost"), await losses("kept"));
  assert.equal(await h.weights("lost"), await h.weights("kept"));
});
