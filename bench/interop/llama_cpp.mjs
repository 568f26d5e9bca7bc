// Exports models as GGUF, reads them with llama.cpp and with another reader of the format, and compares.
//
//   npm install --ignore-scripts node-llama-cpp@3.22.1 @huggingface/gguf@0.4.6      (beside this file or above it)
//   node llama_cpp.mjs TEZGAH TEXT F.llm…
//
// For every model, with f32, f16 and q8_0:
//   ids         of TEXT, with special tokens recognised and taken as text, are ours
//   greedy      200 tokens after each of four prompts are ours: those of the .llm for f32, and for f16 those of the .llm
//               with its weights rounded (an f16 export to a Hugging Face folder, imported again). llama.cpp rounds what
//               it multiplies with f16 weights to f16 too, so there the likeliest token may be another where two are
//               closer than 2⁻¹⁰ of the largest logit: each such place is listed, with how close they were, and
//               generation goes on behind it with our token.
//   perplexity  over TEXT's first 1024 tokens in windows of the context; q8_0 may differ from f32 by 0.5 %,
//               for a model that does better on TEXT than guessing among all tokens
//   stride      f32: the loss of all of TEXT in windows that begin every half context is that of `tezgah eval --stride` to 5e-4:
//               llama.cpp computes less exactly than transformers, whose logits agree with ours to 3e-6
//   reader      @huggingface/gguf finds as many tensors, their types, and the keys of a model with a chat template
// A pattern that llama.cpp does not know must be refused, and be written with --force.
// Prints one JSON line for each model and one for all; exits 1 when something differs.
import {execFileSync, spawnSync} from "node:child_process";
import {createRequire} from "node:module";
import {mkdtempSync, readFileSync, rmSync, statSync} from "node:fs";
import {tmpdir} from "node:os";
import {basename, join} from "node:path";
import {pathToFileURL} from "node:url";

// The packages are looked for where the command is run, so that they need not lie in this repository.
const require = createRequire(join(process.cwd(), "x.js"));
const load = async (name, file) => import(pathToFileURL(join(process.cwd(), "node_modules", name, file)));
const {getLlama} = await load("node-llama-cpp", "dist/index.js");
const {gguf} = await import(pathToFileURL(require.resolve("@huggingface/gguf")));

const [, , tezgah, path, ...models] = process.argv;
const NEW = 200, ROWS = 1024;
const PROMPTS = ["// Search uses", "Ayşe'nin gemisi", "func (h *IntHeap) Push(x any) {\n", "The 12345 elements, naïvely,"];
const run = (...args) => execFileSync(tezgah, args, {encoding: "utf8", maxBuffer: 1 << 28, stdio: ["ignore", "pipe", "ignore"]});
const text = readFileSync(path, "utf8");
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: 1});

// llama.cpp stores keys and values as float16 by default, and its flash attention rounds to it too. Here everything but
// the weights is to be float32, as it is with us.
const context = (model) => model.createContext({contextSize: model.trainContextSize, batchSize: model.trainContextSize, threads: 1,
  flashAttention: false, experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32"});

const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);

/** Ids of the prompt that llama.cpp continues greedily, n at most. */
async function greedy(model, ids, n) {
  const c = await context(model);
  const out = [];
  for await (const token of c.getSequence().evaluate(ids, {temperature: 0, yieldEogToken: true})) {
    out.push(token);
    if (out.length >= n) break;
  }
  await c.dispose();
  return out;
}

/** How far behind llama.cpp's likeliest next token this one is, relative to the largest magnitude of a logit. */
async function gap(model, ids, token) {
  const c = await context(model);
  const rows = await c.getSequence().controlledEvaluate(ids.map((id, i) => (i + 1 < ids.length ? id : [id, {generateNext: {logits: true}}])));
  const logits = [...rows[ids.length - 1].next.logits.values()];
  const behind = Math.max(...logits) - rows[ids.length - 1].next.logits.get(token);
  await c.dispose();
  return behind / Math.max(...logits.map(Math.abs));
}

/** Where llama.cpp would have chosen another token than want, and how close the two were. */
async function differences(model, prompt, want) {
  const list = [];
  for (let at = 0; at < want.length;) {
    const out = await greedy(model, [...prompt, ...want.slice(0, at)], want.length - at);
    let i = 0;
    while (i < out.length && out[i] === want[at + i]) i++;
    at += i;
    if (at < want.length) list.push({token: at, gap: await gap(model, [...prompt, ...want.slice(0, at)], want[at])});
    at++;
  }
  return list;
}

/** Mean loss in nats: row k reads the T tokens from k·stride on; the first row counts all, the others their last stride. */
async function loss(model, T, stride, ids) {
  let nats = 0, count = 0;
  for (let begin = 0; begin + 1 < ids.length; begin += stride) {
    const end = Math.min(begin + T, ids.length - 1);
    const first = begin === 0 ? 0 : begin + T - stride; // the first position that counts
    if (first >= end) break;
    const c = await context(model);
    const rows = await c.getSequence().controlledEvaluate(ids.slice(begin, end).map((id, i) =>
      begin + i < first ? id : [id, {generateNext: {logits: true}}]));
    for (let i = first; i < end; i++) {
      const {logits} = rows[i - begin].next;
      let max = -Infinity, sum = 0;
      for (const x of logits.values()) max = Math.max(max, x);
      for (const x of logits.values()) sum += Math.exp(x - max);
      nats += Math.log(sum) + max - logits.get(ids[i + 1]);
      count++;
    }
    await c.dispose();
  }
  return {loss: nats / count, tokens: count};
}

/** What a reader that is neither ours nor llama.cpp's finds. */
async function otherReader(file) {
  const {metadata, tensorInfos} = await gguf(file, {allowLocalFile: true});
  const types = {};
  for (const t of tensorInfos) types[t.dtype] = (types[t.dtype] ?? 0) + 1;
  return {tensors: tensorInfos.length, types, architecture: metadata["general.architecture"], pre: metadata["tokenizer.ggml.pre"],
    eot: metadata["tokenizer.ggml.eot_token_id"] ?? null, chat_template: metadata["tokenizer.chat_template"]?.length ?? 0};
}

async function checkType(r, llm, type, ours, temp) {
  const file = join(temp, type + ".gguf");
  run("export", "--to", "gguf", "--type", type, ...(r.forced ? ["--force"] : []), llm, file);
  const model = await llama.loadModel({modelPath: file, gpuLayers: 0});
  const T = model.trainContextSize;
  const plain = model.tokenize(text, false), special = model.tokenize(text, true);
  const wantPlain = JSON.parse(run("tokenizer", "encode", "--json", "--tokenizer", llm, path));
  const wantSpecial = JSON.parse(run("tokenizer", "encode", "--specials", "--json", "--tokenizer", llm, path));
  const t = {bytes: statSync(file).size, ids_equal: same(plain, wantPlain), special_ids_equal: same(special, wantSpecial), greedy_tokens: 0, greedy_differs: []};
  for (const prompt of type === "q8_0" ? [] : PROMPTS) {
    const ids = model.tokenize(prompt, true), n = Math.min(NEW, T - ids.length);
    const want = JSON.parse(run("generate", ours, "--prompt", prompt, "--temperature", "0", "--max-tokens", String(n), "--ignore-end", "--device", "cpu", "--json")).tokens;
    t.greedy_tokens += want.length;
    for (const d of await differences(model, ids, want)) t.greedy_differs.push({prompt, ...d});
  }
  t.perplexity = Math.exp((await loss(model, T, T, special.slice(0, ROWS))).loss);
  if (type === "f32") {
    const ours = JSON.parse(run("eval", llm, "--text", path, "--stride", String(T / 2), "--device", "cpu", "--json"));
    const theirs = await loss(model, T, T / 2, [...wantPlain, model.tokens.eos]);
    t.stride = {stride: T / 2, tokens: theirs.tokens, loss_llama_cpp: theirs.loss, loss_tezgah: ours.loss, same_tokens: theirs.tokens === ours.tokens, relative_difference: Math.abs(theirs.loss / ours.loss - 1)};
  }
  t.reader = await otherReader(file);
  r.vocabulary = model.fileInfo.metadata.llama.vocab_size;
  t.llama_cpp = {chat_template: model.fileInfo.metadata.tokenizer?.chat_template?.length ?? 0, eos: model.tokens.eos, eot: model.tokens.eot};
  await model.dispose();
  return t;
}

async function check(llm) {
  const temp = mkdtempSync(join(tmpdir(), "gguf-"));
  const r = {model: basename(llm), forced: false};
  try {
    const refused = spawnSync(tezgah, ["export", "--to", "gguf", llm, join(temp, "x.gguf")], {encoding: "utf8"});
    if (refused.status !== 0) {
      if (!/pattern "turkish"/.test(refused.stderr)) throw new Error(refused.stderr);
      r.forced = true;
      r.refused = refused.stderr.trim();
    }
    const rounded = join(temp, "f16.llm");
    run("export", "--to", "hf", "--type", "f16", llm, join(temp, "hf"));
    run("import", "--out", rounded, join(temp, "hf"));
    for (const type of ["f32", "f16", "q8_0"]) r[type] = await checkType(r, llm, type, type === "f16" ? rounded : llm, temp);
    r.f16_perplexity_ratio = r.f16.perplexity / r.f32.perplexity - 1;
    r.q8_0_perplexity_ratio = r.q8_0.perplexity / r.f32.perplexity - 1;
    const ids = [r.f32, r.f16, r.q8_0].every((t) => t.ids_equal && t.special_ids_equal);
    r.ok = (ids || r.forced) && r.f32.greedy_differs.length === 0 && r.f16.greedy_differs.every((d) => d.gap < 2 ** -10)
      && (Math.abs(r.q8_0_perplexity_ratio) < 0.005 || r.f32.perplexity > r.vocabulary)
      && r.f32.stride.same_tokens && r.f32.stride.relative_difference < 5e-4;
  } catch (e) {
    Object.assign(r, {ok: false, error: String(e?.stderr || e).slice(0, 2000)});
  } finally {
    rmSync(temp, {recursive: true});
  }
  return r;
}

const results = [];
for (const llm of models) {
  results.push(await check(llm));
  console.log(JSON.stringify(results.at(-1)));
}
const version = (name) => JSON.parse(readFileSync(join(process.cwd(), "node_modules", name, "package.json"))).version;
const ok = results.filter((r) => r.ok).length;
console.log(JSON.stringify({what: "llama_cpp.mjs", node_llama_cpp: version("node-llama-cpp"), llama_cpp: llama.llamaCppRelease, "@huggingface/gguf": version("@huggingface/gguf"), models: results.length, ok,
  f32_greedy_tokens: results.reduce((n, r) => n + (r.f32?.greedy_tokens ?? 0), 0), f32_differ: results.reduce((n, r) => n + (r.f32?.greedy_differs.length ?? 0), 0),
  f16_greedy_tokens: results.reduce((n, r) => n + (r.f16?.greedy_tokens ?? 0), 0), f16_differ: results.reduce((n, r) => n + (r.f16?.greedy_differs.length ?? 0), 0),
  worst_f16_gap: Math.max(0, ...results.flatMap((r) => r.f16?.greedy_differs.map((d) => d.gap) ?? [])),
  worst_q8_0_ratio: Math.max(...results.filter((r) => r.f32?.perplexity < r.vocabulary).map((r) => Math.abs(r.q8_0_perplexity_ratio)))}));
process.exit(ok === results.length && ok > 0 ? 0 : 1);
