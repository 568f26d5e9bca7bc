#!/usr/bin/env python3
"""Loads exported LoRA adapters with peft and compares with the merged model.
usage: peft_check.py TEZGAH RUN TEXT      (transformers 5, peft, torch, safetensors; RUN: a run of tezgah train --lora)

`tezgah export --to peft RUN` writes adapters and their base; peft loads both. Over TEXT's first 512 tokens its logits must be
those of `tezgah eval RUN` (the largest difference below 1e-4 of the largest logit), must differ from the base's, and the
weights that peft merges must be those of `tezgah export --to hf RUN`. Prints one JSON line; exits 1 when something differs."""
import json, os, subprocess, sys, tempfile
import peft, torch, transformers
from peft import AutoPeftModelForCausalLM, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

transformers.utils.logging.set_verbosity_error()
tezgah, lora_run, path = sys.argv[1:4]


def run(*args):
    done = subprocess.run([tezgah, *args], capture_output=True)
    if done.returncode:
        raise RuntimeError(f"tezgah {' '.join(args)}: {done.stderr.decode()}")
    return done.stdout.decode("utf-8")


def difference(logits, model):
    """The largest difference from the model's logits, relative to the largest of them."""
    worst, largest, T = 0.0, 0.0, model.config.max_position_embeddings
    for i in range(0, len(tokens), T):
        with torch.no_grad():
            want = model(tokens[None, i:i + T]).logits[0]
        worst = max(worst, (logits[i:i + T] - want).abs().max().item())
        largest = max(largest, want.abs().max().item())
    return worst / largest


with tempfile.TemporaryDirectory() as temp:
    out, merged, dump = (os.path.join(temp, n) for n in ("adapter", "merged", "logits.safetensors"))
    run("export", "--to", "peft", lora_run, out)
    run("eval", lora_run, "--text", path, "--device", "cpu", "--dump-logits", dump, "--max-tokens", "512")
    got = load_file(dump)
    tokens, ours = got["tokens"].long(), got["logits"]
    base = AutoModelForCausalLM.from_pretrained(os.path.join(out, "base"), dtype=torch.float32).eval()
    r = {"what": "peft_check.py", "transformers": transformers.__version__, "peft": peft.__version__, "rows": len(tokens)}
    r["difference_from_base"] = difference(ours, base)
    model = PeftModel.from_pretrained(base, out).eval()
    c = model.peft_config["default"]
    r |= {"r": c.r, "alpha": c.lora_alpha, "targets": sorted(c.target_modules), "adapter_tensors": len(load_file(os.path.join(out, "adapter_model.safetensors")))}
    r["relative_difference"] = difference(ours, model)
    r["auto_class_difference"] = difference(ours, AutoPeftModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval())
    run("export", "--to", "hf", lora_run, merged)
    a, b = model.merge_and_unload().state_dict(), AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32).state_dict()
    r["merged_weights_difference"] = max((a[k] - b[k]).abs().max().item() / b[k].abs().max().item() for k in b)
r["ok"] = (r["relative_difference"] < 1e-4 and r["auto_class_difference"] < 1e-4 and r["difference_from_base"] > 1e-3
           and r["merged_weights_difference"] < 1e-6)
print(json.dumps(r))
sys.exit(0 if r["ok"] else 1)
