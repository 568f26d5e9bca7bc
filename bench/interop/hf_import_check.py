#!/usr/bin/env python3
"""Makes small random models with transformers, imports them with tezgah, and compares; imports models that must be refused.
usage: hf_import_check.py TEZGAH TEXT      (transformers 5, torch, tokenizers, safetensors)

Every model that tezgah should read: ids of TEXT and logits of TEXT's first 512 tokens equal those of transformers (the
largest difference below 1e-4 of the largest logit), an export back is the same weights to the bit (as float32), five steps of
`train --init` with other data run and lower nothing but the loss, and `generate` writes text. Models that compute something
else are refused with a word that names the reason, and no file appears.
Prints one JSON line for each model and one for all; exits 1 when something differs."""
import json, os, subprocess, sys, tempfile
import torch, transformers
from safetensors.torch import load_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          PhiConfig, PhiForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM)

transformers.utils.logging.set_verbosity_error()
tezgah, path = sys.argv[1:3]
text = open(path, encoding="utf-8", newline="").read()
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SIZES = dict(vocab_size=700, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=256,
             initializer_range=0.08)
ROPE3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)


def run(*args, fail=False):
    done = subprocess.run([tezgah, *args], capture_output=True)
    if bool(done.returncode) != fail:
        raise RuntimeError(f"tezgah {' '.join(args)}: exit code {done.returncode}: {done.stderr.decode()}")
    return (done.stderr if fail else done.stdout).decode("utf-8")


def make_tokenizer(llama3, bos, chat):
    t = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not llama3)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), level]) if llama3 else level
    t.decoder = decoders.ByteLevel()
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"]
    t.train_from_iterator([text], trainers.BpeTrainer(vocab_size=690, special_tokens=specials, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.add_tokens([AddedToken("<|pad|>", normalized=False), AddedToken("İstanbul", normalized=False)])
    if bos:
        t.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")
    if chat:
        fast.chat_template = CHATML
    return fast


def save(folder, model, tok, dtype=torch.float32, shard="5GB", ends=None):
    model = model.to(dtype)
    model.generation_config.eos_token_id = ends or tok.eos_token_id
    model.save_pretrained(folder, max_shard_size=shard)
    tok.save_pretrained(folder)


def old_spelling(folder):
    """Writes the rotary settings as transformers 4 did."""
    file = os.path.join(folder, "config.json")
    c = json.load(open(file))
    rope = c.pop("rope_parameters")
    c["rope_theta"] = rope.pop("rope_theta")
    c["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    c["torch_dtype"] = c.pop("dtype", c.get("torch_dtype"))
    json.dump(c, open(file, "w"))


def llama(**more):
    return LlamaForCausalLM(LlamaConfig(**SIZES | more))


def mistral(**more):
    return MistralForCausalLM(MistralConfig(**SIZES | more))


half = dict(rope_theta=500000.0, rope_type="default")
GOOD = {  # name: (model, dtype, shard size, spelled as by transformers 4, llama3 pattern, BOS, chat template, end tokens)
    "llama3 rope, head_dim 24, untied": lambda: (llama(num_key_value_heads=2, head_dim=24, rope_parameters=ROPE3), torch.float32, "5GB", False, True, True, True, [1, 3]),
    "llama3 rope in transformers 4's spelling": lambda: (llama(num_key_value_heads=2, rope_parameters=ROPE3), torch.float32, "5GB", True, True, False, False, None),
    "tied, one kv head": lambda: (llama(num_key_value_heads=1, tie_word_embeddings=True, rms_norm_eps=1e-5), torch.float32, "5GB", False, False, False, False, None),
    "bf16, sharded": lambda: (llama(rope_parameters=half), torch.bfloat16, "100KB", False, True, False, True, None),
    "f16, tied, theta in transformers 4's spelling": lambda: (llama(tie_word_embeddings=True, rope_parameters=half), torch.float16, "5GB", True, False, False, False, None),
    "gelu_pytorch_tanh": lambda: (llama(hidden_act="gelu_pytorch_tanh"), torch.float32, "5GB", False, True, False, False, None),
    "mistral": lambda: (mistral(num_key_value_heads=2, sliding_window=None), torch.float32, "5GB", False, False, True, False, None),
    "mistral, head_dim 8, a window as wide as the context, bf16, sharded": lambda: (mistral(num_key_value_heads=4, head_dim=8, sliding_window=256), torch.bfloat16, "80KB", False, True, False, False, None),
}
QWEN = {k: v for k, v in SIZES.items()} | dict(num_key_value_heads=2)
BAD = {  # name: (model, word of the refusal)
    "qwen2 with biases": (lambda: Qwen2ForCausalLM(Qwen2Config(**QWEN)), "Qwen2ForCausalLM"),
    "mistral with a sliding window": (lambda: mistral(num_key_value_heads=2, sliding_window=64), "sliding_window is 64"),
    "phi": (lambda: PhiForCausalLM(PhiConfig(**SIZES)), "PhiForCausalLM"),
    "gpt-2": (lambda: GPT2LMHeadModel(GPT2Config(vocab_size=700, n_embd=64, n_layer=2, n_head=4, n_positions=256)), "GPT2LMHeadModel"),
    "llama with attention biases": (lambda: llama(attention_bias=True), "attention_bias"),
    "llama with biases in the feed-forward part": (lambda: llama(mlp_bias=True), "mlp_bias"),
    "llama with yarn": (lambda: llama(rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=2.0, original_max_position_embeddings=128)), "yarn"),
    "llama with relu": (lambda: llama(hidden_act="relu"), "relu"),
}


def check_logits(model, llm, temp):
    file = os.path.join(temp, "logits.safetensors")
    run("eval", llm, "--text", path, "--device", "cpu", "--dump-logits", file, "--max-tokens", "512")
    got = load_file(file)
    worst, largest = 0.0, 0.0
    for i in range(0, len(got["tokens"]), 256):
        with torch.no_grad():
            want = model(got["tokens"][None, i:i + 256].long()).logits[0]
        worst = max(worst, (got["logits"][i:i + 256] - want).abs().max().item())
        largest = max(largest, want.abs().max().item())
    return {"logit_rows": len(got["tokens"]), "largest_logit": largest, "relative_difference": worst / largest}


def check_training(llm, folder, temp):
    """Goes on training the imported model, and talks with it."""
    data, out = os.path.join(temp, "d.bin"), os.path.join(temp, "run")
    run("data", "build", "--tokenizer", os.path.join(folder, "tokenizer.json"), "--out", data, path)
    run("train", "--init", llm, "--data", data, "--out", out, "--device", "cpu", "--context", "64", "--batch", "4", "--max-steps", "20", "--lr", "3e-3")
    before = json.loads(run("eval", llm, "--data", data, "--device", "cpu", "--context", "64", "--json"))["loss"]
    after = json.loads(run("eval", out, "--data", data, "--device", "cpu", "--context", "64", "--json"))["loss"]
    words = json.loads(run("generate", out, "--prompt", "Ayşe", "--max-tokens", "20", "--device", "cpu", "--seed", "1", "--ignore-end", "--json"))
    return {"loss_before": before, "loss_after_20_steps": after, "generated_tokens": words["new_tokens"]}


def check_good(name, temp):
    model, dtype, shard, old, llama3, bos, chat, ends = GOOD[name]()
    folder, llm, back = (os.path.join(temp, n) for n in ("hf", "m.llm", "back"))
    tok = make_tokenizer(llama3, bos, chat)
    save(folder, model, tok, dtype, shard, ends)
    if old:
        old_spelling(folder)
    notes = run("import", folder, "--out", llm)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = tok(text, add_special_tokens=False)["input_ids"]
    r = {"model": name, "files": sum(f.endswith(".safetensors") for f in os.listdir(folder)), "tokens": len(ids),
         "ids_equal": ids == json.loads(run("tokenizer", "encode", "--specials", "--json", "--tokenizer", llm, path))}
    r |= check_logits(model, llm, temp)
    run("export", "--to", "hf", llm, back)
    a, b = model.state_dict(), AutoModelForCausalLM.from_pretrained(back).state_dict()
    r["weights_back"] = a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    other = transformers.AutoTokenizer.from_pretrained(back)
    r["tokenizer_back"] = other(text, add_special_tokens=False)["input_ids"] == ids
    r["chat_template_back"] = (other.chat_template is not None) == chat
    if chat:
        talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        r["chat_template_back"] &= other.apply_chat_template(talk, tokenize=False) == tok.apply_chat_template(talk, tokenize=False)
    r |= check_training(llm, folder, temp)
    r["ok"] = (r["ids_equal"] and r["relative_difference"] < 1e-4 and r["weights_back"] and r["tokenizer_back"] and r["chat_template_back"]
               and r["loss_after_20_steps"] < r["loss_before"] and r["generated_tokens"] == 20)
    return r


def check_bad(name, temp):
    make, word = BAD[name]
    folder, llm = os.path.join(temp, "hf"), os.path.join(temp, "m.llm")
    save(folder, make(), make_tokenizer(True, False, False))
    said = run("import", folder, "--out", llm, fail=True).strip()
    return {"model": name, "refused": said.replace(temp, "…"), "ok": word in said and not os.path.exists(llm)}


torch.manual_seed(5)
results = []
for names, check in ((GOOD, check_good), (BAD, check_bad)):
    for name in names:
        with tempfile.TemporaryDirectory() as temp:
            try:
                results.append(check(name, temp))
            except Exception as e:  # one model's failure must not hide the others' results
                results.append({"model": name, "ok": False, "error": f"{type(e).__name__}: {e}"[:2000]})
        print(json.dumps(results[-1], ensure_ascii=False), flush=True)
good = [r for r in results if r["ok"]]
print(json.dumps({"what": "hf_import_check.py", "transformers": transformers.__version__, "torch": torch.__version__, "models": len(results), "ok": len(good),
                  "worst_relative_difference": max((r["relative_difference"] for r in results if "relative_difference" in r), default=None)}))
sys.exit(0 if len(good) == len(results) else 1)
