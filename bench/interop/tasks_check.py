#!/usr/bin/env python3
"""Compares `tezgah eval` with transformers on the same model: multiple-choice tasks, perplexity with a stride, logits.
usage: tasks_check.py TEZGAH F.llm HF_FOLDER TASKS.jsonl TEXT      (transformers 5, torch, safetensors; HF_FOLDER: tezgah export --to hf)

Tasks: each choice is scored alone, without batches or padding, by the rules of EleutherAI's harness (white space at the
context's end goes to the choice; context+choice is encoded as one text and cut behind the context's own tokens), with
the two additions of docs/eval.md. A log-likelihood may differ by 1e-4 of itself, at least of 1 nat: it is a sum of float32
numbers whose rounding depends on the order in which an engine adds. Picks and accuracies must be equal; where two choices
are closer than that bound either pick is right, which is counted.
Perplexity: the loop of transformers' documentation for max_length T+1 and strides T, T/2 and T/4; the mean loss may differ
by 1e-5 of itself. Logits of the first window: by 1e-4 of the largest. In TEXT special tokens are ordinary text, as they are
for `tezgah eval --text`; in tasks they are tokens. The ids of both must be ours.
Prints one JSON line; exits 1 when something differs. make_tasks.py makes a task file."""
import json, os, subprocess, sys, tempfile
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

tezgah, llm, folder, tasks, path = sys.argv[1:6]
run = lambda *a: subprocess.run([tezgah, *a], check=True, stdout=subprocess.PIPE).stdout.decode("utf-8")
tok = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
T = model.config.max_position_embeddings
encode = lambda s: tok(s, add_special_tokens=False)["input_ids"]
encode_plain = lambda s: tok(s, add_special_tokens=False, split_special_tokens=True)["input_ids"]  # special tokens are text
start = tok.bos_token_id if tok.bos_token_id is not None else tok.eos_token_id


def encode_pair(context, choice):
    head = context.rstrip()
    tail = context[len(head):] + choice
    if not head:
        return [start], encode(tail)
    first, whole = encode(head), encode(head + tail)
    return first, whole[len(first):] or encode(tail)


def log_likelihood(context, choice):
    """Σ log p of the choice, how many tokens it has, and how many of the context were cut off."""
    first, second = encode_pair(context, choice)
    seq = first + second
    cut = max(0, len(seq) - (T + 1))
    seq = seq[cut:]
    with torch.no_grad():
        logp = model(torch.tensor([seq[:-1]])).logits[0].double().log_softmax(-1)
    n = len(second)
    return sum(logp[len(seq) - 1 - n + i, second[i]].item() for i in range(n)), n, cut


def first_best(values):
    return max(range(len(values)), key=lambda i: values[i])  # the first of equals


BOUND = 1e-4
near = lambda a, b: abs(a - b) <= BOUND * max(1.0, abs(a))
items = [json.loads(l) for l in open(tasks, encoding="utf-8-sig") if l.strip()]
lines = [json.loads(l) for l in run("eval", llm, "--tasks", tasks, "--device", "cpu", "--json", "--per-item").split("\n") if l]
ours, result = lines[:-1], lines[-1]
problems, worst, scored, cuts = [], 0.0, 0, 0
PICKS = {"pick": lambda ll, n, b: ll, "pick_norm": lambda ll, n, b: ll / n, "pick_norm_bytes": lambda ll, n, b: ll / b}
right, close = dict.fromkeys(PICKS, 0), dict.fromkeys(PICKS, 0)
if len(ours) != len(items):
    problems.append(f"{len(ours)} items from tezgah, {len(items)} in the file")
for got, item in zip(ours, items):
    where = f"{tasks}:{got['line']}"
    theirs = [log_likelihood(item["context"], c) for c in item["choices"]]
    sizes = [len(c.encode("utf-8")) for c in item["choices"]]
    scored += len(theirs)
    cut = max(c for _, _, c in theirs)
    cuts += cut > 0
    if cut != got["cut"]:
        problems.append(f"{where}: {got['cut']} tokens cut, want {cut}")
    for i, ((ll, n, _), size, ch) in enumerate(zip(theirs, sizes, got["choices"])):
        worst = max(worst, abs(ll - ch["loglikelihood"]) / max(1.0, abs(ll)))
        if ch["tokens"] != n or ch["bytes"] != size:
            problems.append(f"{where}: choice {i} has {ch['tokens']} tokens and {ch['bytes']} bytes, want {n} and {size}")
        elif not near(ll, ch["loglikelihood"]):
            problems.append(f"{where}: choice {i} has {ch['loglikelihood']}, want {ll}")
    for name, value in PICKS.items():
        want = [value(ll, n, size) for (ll, n, _), size in zip(theirs, sizes)]
        pick, best = got[name], first_best(want)
        right[name] += best == item["label"]
        if pick != best and near(want[best], want[pick]):
            close[name] += 1
        elif pick != best:
            problems.append(f"{where}: {name} is {pick}, want {best} of {want}")
out = {
    "transformers": __import__("transformers").__version__, "items": len(items), "choices": scored, "items_cut": cuts,
    "loglikelihood_relative_difference": worst, "picks_within_the_bound": sum(close.values()),
}
for name, key in (("pick", "acc"), ("pick_norm", "acc_norm"), ("pick_norm_bytes", "acc_norm_bytes")):
    out[key] = result["all"][key]["value"]
    if abs(out[key] - right[name] / len(items)) > close[name] / len(items) + 1e-12:
        problems.append(f"{key} is {out[key]}, want {right[name] / len(items)}")


def perplexity(ids, stride):
    """Mean loss in windows of T+1 tokens, as transformers' documentation has it, each counted token weighed once."""
    total, count, previous_end = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = min(begin + T + 1, len(ids))
        new = end - previous_end  # tokens that no window before has predicted
        window = torch.tensor([ids[begin:end]])
        labels = window.clone()
        labels[:, :-new] = -100
        valid = int((labels[:, 1:] != -100).sum())  # the first token of a window is never predicted
        with torch.no_grad():
            logits = model(window).logits[0, :-1].double()
        total += torch.nn.functional.cross_entropy(logits, labels[0, 1:], ignore_index=-100, reduction="sum").item()
        count += valid
        previous_end = end
        if end == len(ids):
            break
    return total / count, count


text = open(path, encoding="utf-8", newline="").read()
ids = encode_plain(text) + [tok.eos_token_id]
for name, theirs, flags in (("plain", ids[:-1], []), ("special", encode(text), ["--specials"])):
    ours_ids = json.loads(run("tokenizer", "encode", *flags, "--json", "--tokenizer", llm, path))
    out[name + "_ids"] = len(theirs)
    if ours_ids != theirs:
        problems.append(f"{name} ids of the text: {len(ours_ids)} from tezgah, {len(theirs)} from transformers, which are not the same")
out["perplexity"] = []
for stride in sorted({T, max(1, T // 2), max(1, T // 4)}, reverse=True):
    want, count = perplexity(ids, stride)
    got = json.loads(run("eval", llm, "--text", path, "--device", "cpu", "--stride", str(stride), "--json"))
    difference = abs(got["loss"] - want) / want
    out["perplexity"].append({"stride": stride, "tokens": count, "loss_transformers": want, "loss_tezgah": got["loss"],
                              "relative_difference": difference})
    if got["tokens"] != count or not difference < 1e-5:
        problems.append(f"stride {stride}: loss {got['loss']} of {got['tokens']} tokens, want {want} of {count}")

with tempfile.TemporaryDirectory() as tmp:
    file = os.path.join(tmp, "logits.safetensors")
    run("eval", llm, "--text", path, "--device", "cpu", "--dump-logits", file)
    dump = load_file(file)
with torch.no_grad():
    want = model(torch.tensor([ids[:T]])).logits[0]
if dump["tokens"].tolist() != ids[:T] or dump["logits"].shape != want.shape:
    problems.append(f"the logits are {tuple(dump['logits'].shape)} or of other tokens, want {tuple(want.shape)}")
else:
    out["logits_relative_difference"] = ((dump["logits"] - want).abs().max() / want.abs().max()).item()
    if not out["logits_relative_difference"] < 1e-4:
        problems.append("the logits of the first window differ")

out["problems"] = problems[:20]
print(json.dumps(out, ensure_ascii=False))
sys.exit(1 if problems else 0)
