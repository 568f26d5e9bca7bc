#!/usr/bin/env python3
"""Opens exported Hugging Face folders with transformers and compares them with the .llm files they came from.
usage: hf_check.py TEZGAH TEXT F.llm…      (transformers 5, torch, safetensors; make_models.sh makes TEXT and models)

For every model:
  ids        of TEXT, special tokens in it included, equal those of AutoTokenizer, and come back as the text
  logits     of every position of TEXT's windows: the largest difference, relative to the largest logit, is below 1e-4
  greedy     200 tokens after each of three prompts are the same ids
  tensors    of the .llm, read by the safetensors package, are those of the loaded model
  chat       of a model with a chat template: two answers of a conversation, greedy, are those of `tezgah chat`, and end where they do
  others     f16, bf16 and sharded folders load; their weights are the float32 ones rounded, to the bit
Prints one JSON line for each model and one for all; exits 1 when something differs."""
import json, os, subprocess, sys, tempfile
import torch, transformers
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

transformers.utils.logging.set_verbosity_error()
tezgah, path, models = sys.argv[1], sys.argv[2], sys.argv[3:]
text = open(path, encoding="utf-8", newline="").read()
NEW = 200
PROMPTS = ["// Search uses", "Ayşe'nin gemisi", "<|im_start|>user\nfunc"]


def run(*args):
    done = subprocess.run([tezgah, *args], capture_output=True)
    if done.returncode:
        raise RuntimeError(f"tezgah {' '.join(args)}: {done.stderr.decode()}")
    return done.stdout.decode("utf-8")


def load(folder, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def check_ids(tok, llm):
    ids = tok(text, add_special_tokens=False)["input_ids"]
    ours = json.loads(run("tokenizer", "encode", "--specials", "--json", "--tokenizer", llm, path))
    return {"tokens": len(ids), "ids_equal": ids == ours, "special_tokens_in_text": sum(i in tok.all_special_ids for i in ids),
            "text_comes_back": tok.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False) == text}


def check_logits(model, llm, temp):
    file = os.path.join(temp, "logits.safetensors")
    run("eval", llm, "--text", path, "--device", "cpu", "--dump-logits", file, "--max-tokens", "1024")
    got = load_file(file)
    tokens, ours = got["tokens"].long(), got["logits"]
    T, worst, largest, argmax = model.config.max_position_embeddings, 0.0, 0.0, 0
    for i in range(0, len(tokens), T):
        with torch.no_grad():
            want = model(tokens[None, i:i + T]).logits[0]
        mine = ours[i:i + T]
        worst = max(worst, (mine - want).abs().max().item())
        largest = max(largest, want.abs().max().item())
        argmax += (mine.argmax(-1) == want.argmax(-1)).sum().item()
    return {"logit_rows": len(tokens), "largest_logit": largest, "largest_difference": worst,
            "relative_difference": worst / largest, "same_argmax": argmax}


def check_greedy(tok, model, llm):
    equal, distinct = [], []
    model.generation_config.eos_token_id = model.config.eos_token_id = None  # go on past the end, as --ignore-end does
    for prompt in PROMPTS:
        start = tok(prompt, add_special_tokens=False, return_tensors="pt")["input_ids"]
        n = min(NEW, model.config.max_position_embeddings - start.shape[1])
        with torch.no_grad():
            out = model.generate(start, attention_mask=torch.ones_like(start), do_sample=False, max_new_tokens=n,
                                 pad_token_id=0)[0, start.shape[1]:].tolist()
        ours = json.loads(run("generate", llm, "--prompt", prompt, "--temperature", "0", "--max-tokens", str(n), "--ignore-end",
                              "--device", "cpu", "--json"))["tokens"]
        same = next((i for i, (a, b) in enumerate(zip(out, ours)) if a != b), min(len(out), len(ours)))
        equal.append([same, n])
        distinct.append(len(set(ours)))
    return {"greedy_equal_of": equal, "greedy_distinct_tokens": distinct}


def check_chat(folder, llm):
    """A conversation as transformers holds it: its own template, its own end tokens."""
    tok, model = AutoTokenizer.from_pretrained(folder), load(folder)
    if tok.chat_template is None:
        return {}
    asked, talk, answers = ["3 + 4?", "7 + 11?"], [], []
    for question in asked:
        talk.append({"role": "user", "content": question})
        ids = tok.apply_chat_template(talk, add_generation_prompt=True, return_tensors="pt", return_dict=True)["input_ids"]
        with torch.no_grad():
            new = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=40, pad_token_id=0)[0, ids.shape[1]:].tolist()
        ended = new[-1] in model.generation_config.eos_token_id
        answers.append([tok.decode(new[:-1] if ended else new), ended])
        talk.append({"role": "assistant", "content": answers[-1][0]})
    done = subprocess.run([tezgah, "chat", llm, "--device", "cpu", "--temperature", "0", "--max-tokens", "40", "--json"],
                          input="\n".join(asked) + "\n", capture_output=True, text=True)
    ours = [json.loads(l) for l in done.stdout.splitlines()]
    return {"chat_ends": model.generation_config.eos_token_id, "chat_answers": answers,
            "chat_equal": answers == [[o["content"], o["reason"] == "end"] for o in ours]}


def check_tensors(model, llm):
    theirs = model.state_dict()
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "wq": "self_attn.q_proj", "wk": "self_attn.k_proj",
             "wv": "self_attn.v_proj", "wo": "self_attn.o_proj", "w_gate": "mlp.gate_proj", "w_up": "mlp.up_proj", "w_down": "mlp.down_proj"}
    equal = 0
    with safe_open(llm, "pt") as f:
        for name in f.keys():
            _, layer, part = (name.split(".") + ["", ""])[:3]
            other = {"tok_emb": "model.embed_tokens", "final_norm": "model.norm", "lm_head": "lm_head"}.get(name) or f"model.layers.{layer}.{names[part]}"
            mine = f.get_tensor(name)
            mine = mine if mine.dim() == 1 or name == "tok_emb" else mine.T
            equal += torch.equal(mine, theirs[other + ".weight"])
        return {"tensors": len(list(f.keys())), "tensors_equal": equal}


def check_others(model, llm, temp):
    base, out = model.state_dict(), {}
    for name, dtype, flags in [("f16", torch.float16, ["--type", "f16"]), ("bf16", torch.bfloat16, ["--type", "bf16"]),
                               ("sharded", torch.float32, ["--shard-size", "100KB"])]:
        folder = os.path.join(temp, name)
        run("export", "--to", "hf", *flags, llm, folder)
        other = load(folder, "auto")
        got = other.state_dict()
        with torch.no_grad():
            finite = bool(other(torch.tensor([[1, 2, 3]])).logits.isfinite().all())
        out[name] = finite and other.dtype == dtype and got.keys() == base.keys() and all(torch.equal(got[k], base[k].to(dtype)) for k in base)
        out[name + "_files"] = sum(f.endswith(".safetensors") for f in os.listdir(folder))
    return {"others": out}


def check(llm):
    with tempfile.TemporaryDirectory() as temp:
        folder = os.path.join(temp, "hf")
        run("export", "--to", "hf", llm, folder)
        tok, model = AutoTokenizer.from_pretrained(folder), load(folder)
        c = model.config
        r = {"model": os.path.basename(llm), "tied": c.tie_word_embeddings, "heads": c.num_attention_heads, "kv_heads": c.num_key_value_heads,
             "head_dim": c.head_dim, "rope": c.rope_parameters["rope_type"], "params": model.num_parameters()}
        r |= check_ids(tok, llm) | check_logits(model, llm, temp) | check_greedy(tok, model, llm) | check_tensors(model, llm)
        r |= check_others(model, llm, temp) | check_chat(folder, llm)
    r["ok"] = (r.get("chat_equal", True) and r["ids_equal"] and r["text_comes_back"] and r["special_tokens_in_text"] > 0 and r["relative_difference"] < 1e-4
               and all(a == b for a, b in r["greedy_equal_of"]) and r["tensors"] == r["tensors_equal"]
               and r["others"]["f16"] and r["others"]["bf16"] and r["others"]["sharded"] and r["others"]["sharded_files"] > 1)
    return r


results = []
for llm in models:
    try:
        results.append(check(llm))
    except Exception as e:  # one model's failure must not hide the others' results
        results.append({"model": os.path.basename(llm), "ok": False, "error": f"{type(e).__name__}: {e}"[:2000]})
    print(json.dumps(results[-1]), flush=True)
ok = [r for r in results if r["ok"]]
print(json.dumps({"what": "hf_check.py", "transformers": transformers.__version__, "torch": torch.__version__, "models": len(results), "ok": len(ok),
                  "worst_relative_difference": max((r["relative_difference"] for r in results if "relative_difference" in r), default=None)}))
sys.exit(0 if len(ok) == len(results) > 0 else 1)
