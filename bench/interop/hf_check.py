#!/usr/bin/env python3
"""Opens an exported Hugging Face folder with transformers and compares it with the .llm it came from.
usage: hf_check.py TEZGAH F.llm HF_FOLDER TEXT      (transformers 5, torch, safetensors)
Compares the ids of TEXT, the mean loss over its windows, a greedy continuation of 200 tokens, and every tensor as the
safetensors package reads it from the .llm. Prints one JSON line; exits 1 when something differs."""
import json, math, subprocess, sys
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

tezgah, llm, folder, path = sys.argv[1:5]
run = lambda *a: subprocess.run([tezgah, *a], check=True, capture_output=True, text=True).stdout
text = open(path, encoding="utf-8").read()
tok = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
out = {"transformers": __import__("transformers").__version__, "params": model.num_parameters()}

ids = tok(text, add_special_tokens=False)["input_ids"]
ours = [int(x) for x in run("tokenizer", "encode", "--tokenizer", llm, path).split()]
out["ids_equal"] = ids == ours
out["tokens"] = len(ids)

T = model.config.max_position_embeddings
seq = ids + [tok.eos_token_id]
total, count = 0.0, 0
with torch.no_grad():
    for i in range(0, len(seq) - 1, T):
        x = torch.tensor([seq[i:i + T]]); y = torch.tensor(seq[i + 1:i + T + 1]); x = x[:, :len(y)]
        total += torch.nn.functional.cross_entropy(model(x).logits[0].double(), y, reduction="sum").item(); count += len(y)
ev = json.loads(run("eval", llm, "--text", path, "--device", "cpu", "--json"))
out["loss_transformers"], out["loss_tezgah"] = total / count, ev["loss"]
out["loss_relative_difference"] = abs(total / count - ev["loss"]) / ev["loss"]

prompt = text[:60]
start = tok(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
new = min(200, T - start.shape[1])
with torch.no_grad():
    g = model.generate(start, do_sample=False, max_new_tokens=new, eos_token_id=None, pad_token_id=tok.eos_token_id)
want = tok.decode(g[0, start.shape[1]:], clean_up_tokenization_spaces=False)
got = json.loads(run("generate", llm, "--prompt", prompt, "--temperature", "0", "--max-tokens", str(new), "--ignore-end", "--device", "cpu", "--json"))["text"]
out["greedy_tokens"], out["greedy_equal"] = new, got == want

with safe_open(llm, "pt") as f:
    names = list(f.keys())
    out["safetensors_opens_llm"] = len(names)
    e = model.get_input_embeddings().weight
    out["embedding_equal"] = bool(torch.equal(f.get_tensor("tok_emb"), e))
    out["wq_equal"] = bool(torch.equal(f.get_tensor("layers.0.wq").T, model.model.layers[0].self_attn.q_proj.weight))
print(json.dumps(out))
ok = out["ids_equal"] and out["greedy_equal"] and out["embedding_equal"] and out["wq_equal"] and out["loss_relative_difference"] < 1e-4
sys.exit(0 if ok else 1)
