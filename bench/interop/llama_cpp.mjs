// Generates greedily with llama.cpp, for comparison with `tezgah generate
// --temperature 0 --ignore-end`. Prints ids of the prompt and of the answer.
//
//   npm install --ignore-scripts node-llama-cpp@3.22.1
//   node llama_cpp.mjs MODEL.gguf "PROMPT" TOKENS
import {getLlama} from "node-llama-cpp";

const [, , file, prompt, count] = process.argv;
const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: 1});
const model = await llama.loadModel({modelPath: file, gpuLayers: 0});
const context = await model.createContext({contextSize: 256, threads: 1});
const ids = model.tokenize(prompt, false);
const out = [];
for await (const token of context.getSequence().evaluate(ids, {temperature: 0, yieldEogToken: true})) {
  out.push(token);
  if (out.length >= Number(count)) break;
}
console.log(JSON.stringify({ids, out, text: model.detokenize(out)}));
process.exit(0);
