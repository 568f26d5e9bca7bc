// Measures the engine in the tab, in headless Chromium: node test/bench-tab.mjs [DEVICE]
//
// Prints one JSON line: how long the program takes to start, and the speed of
// training by the engine's own probe, for the preset nano and for the model that
// the demo takes on a slow device. DEVICE is cpu unless given (see WEBGPU_ADAPTER
// in browser.mjs for GPUs). Needs the built page (make web), and a quiet machine.
import { Harness, sampleText } from "./engine.mjs";

/** As in src/home/demo.ts. */
const slowModel = { d_model: 64, layers: 3, heads: 2, kv_heads: 1, head_dim: 32, ffn: 192, context: 128 };
const device = process.argv[2] ?? "cpu";
const begin = performance.now();
const h = await Harness.start();
try {
  const status = await h.call("GET", "/api/status");
  const startMs = performance.now() - begin;
  await h.upload("/api/texts/weaver?label=weaver.txt", sampleText(1500).join("\n\n"));
  await h.job(await h.call("POST", "/api/tokenizers", { name: "weaver", texts: ["weaver"], vocab_size: 512, pattern: "llama3" }));
  await h.job(await h.call("POST", "/api/data", { name: "weaver", texts: ["weaver"], tokenizer: "weaver" }));
  const probe = async (more) => {
    const job = await h.job(await h.call("POST", "/api/runs/probe", { name: "probe", data: [{ name: "weaver" }], preset: "nano", device, ...more }));
    if (job.state !== "done") throw new Error(job.error);
    return { tokens_per_s: Math.round(job.result.tok_per_s), step_ms: job.result.step_ms };
  };
  const rows = { nano: await probe({}), "slow demo": await probe({ model: slowModel, batch: 4, context: 128 }) };
  console.log(JSON.stringify({ version: status.version, device: status.device, asked: device, start_ms: Math.round(startMs), ...rows }));
} finally {
  await h.close();
}
