#!/usr/bin/env python3
"""Golden values of the tiny models in model/golden_test.go, computed by PyTorch.

usage: golden.py OUTDIR        (needs torch 2.11.0, pinned; CPU only; seconds)

Writes one JSON file per case. Each holds the configuration, the batch, and for float64 and float32 the logits, the
summed loss, every gradient, and the losses and gradient norms of ten AdamW steps on the same batch.

Nothing is stored that both sides can compute: weights come from a 32-bit linear congruential generator, one stream per
tensor, whose values are short binary fractions and so exact in float32. Every constant that the Go side holds in
float32 (scale, eps, the RoPE table, the optimizer's numbers) is rounded to float32 here as well, so that the float64
columns can be compared to almost full precision.
"""
import json
import math
import os
import struct
import sys

import torch

EXPECTED_TORCH = "2.11"
IGNORE = -1
STEPS = 10
LR, BETA1, BETA2, EPS, WEIGHT_DECAY, CLIP = 0.01, 0.9, 0.95, 1e-8, 0.1, 0.5

CASES = {
    "tied_gqa": dict(
        config=dict(vocab_size=23, context=9, d_model=16, layers=2, heads=4, kv_heads=2, head_dim=6, ffn=20,
                    rope_theta=10000.0, norm_eps=1e-5, tied=True, activation="silu", init_std=0.02),
        batch=2, label_smoothing=0.0, z_loss=0.0, doc_mask=False, ignore=[]),
    "untied_smooth": dict(
        config=dict(vocab_size=19, context=7, d_model=12, layers=2, heads=3, kv_heads=3, head_dim=4, ffn=20,
                    rope_theta=500.0, norm_eps=1e-6, tied=False, activation="silu", init_std=0.02),
        batch=2, label_smoothing=0.1, z_loss=0.001, doc_mask=False, ignore=[0, 5, 13]),
    "gelu_docmask": dict(
        config=dict(vocab_size=19, context=11, d_model=12, layers=2, heads=4, kv_heads=1, head_dim=4, ffn=17,
                    rope_theta=10000.0, norm_eps=1e-5, tied=True, activation="gelu_tanh", init_std=0.02),
        batch=2, label_smoothing=0.05, z_loss=0.01, doc_mask=True, ignore=[3, 20]),
    "untied_gelu": dict(
        config=dict(vocab_size=19, context=6, d_model=12, layers=1, heads=4, kv_heads=2, head_dim=4, ffn=17,
                    rope_theta=10000.0, norm_eps=1e-5, tied=False, activation="gelu_tanh", init_std=0.02),
        batch=3, label_smoothing=0.0, z_loss=0.0, doc_mask=True, ignore=[17]),
}


def f32(x):
    """x rounded to float32, as a Python float."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def lcg(seed, n):
    """n values of x <- 1664525 x + 1013904223 mod 2^32 (Numerical Recipes), starting from seed."""
    out = []
    for _ in range(n):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(seed)
    return out


def table(c):
    """(name, shape, decayed) of every tensor in the Go model's order."""
    C, V, F, D = c["d_model"], c["vocab_size"], c["ffn"], c["head_dim"]
    q, kv = c["heads"] * D, c["kv_heads"] * D
    rows = [("tok_emb", (V, C), True)]
    for i in range(c["layers"]):
        rows += [(f"layers.{i}.{n}", s, True) for n, s in [
            ("wq", (C, q)), ("wk", (C, kv)), ("wv", (C, kv)), ("wo", (q, C)),
            ("w_gate", (C, F)), ("w_up", (C, F)), ("w_down", (F, C))]]
    if not c["tied"]:
        rows.append(("lm_head", (C, V), True))
    for i in range(c["layers"]):
        rows += [(f"layers.{i}.attn_norm", (C,), False), (f"layers.{i}.ffn_norm", (C,), False)]
    rows.append(("final_norm", (C,), False))
    return rows


def weights(c, dtype):
    w = {}
    for i, (name, shape, decayed) in enumerate(table(c)):
        u = [((x >> 16) - 32768) / 131072 for x in lcg(1000 + 7919 * i, math.prod(shape))]  # [-1/4, 1/4)
        base = 0.0 if decayed else 1.0
        w[name] = torch.tensor([base + x for x in u], dtype=dtype).reshape(shape).requires_grad_()
    return w


def batch(case):
    """tokens, targets, doc_start, each a list of B lists of T."""
    c, B = case["config"], case["batch"]
    T, V = c["context"], c["vocab_size"]
    ids = [(x >> 8) % V for x in lcg(77, B * (T + 1))]
    rows = [ids[b * (T + 1):(b + 1) * (T + 1)] for b in range(B)]
    tokens, targets = [r[:-1] for r in rows], [r[1:] for r in rows]
    for i in case["ignore"]:
        targets[i // T][i % T] = IGNORE
    starts = [[0] * T for _ in range(B)]
    if case["doc_mask"]:
        for b in range(B):
            begin = 0
            for t in range(T):
                if t > 0 and (t + b) % 4 == 0:  # a new document at every fourth position, shifted by the row
                    begin = t
                starts[b][t] = begin
    return tokens, targets, starts


def rope_table(c, T, dtype):
    D = c["head_dim"]
    ang = [[t * c["rope_theta"] ** (-2 * i / D) for i in range(D // 2)] for t in range(T)]
    cos = torch.tensor([[f32(math.cos(a)) for a in row] for row in ang], dtype=dtype)
    sin = torch.tensor([[f32(math.sin(a)) for a in row] for row in ang], dtype=dtype)
    return cos, sin


def norm(x, w, eps):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def rope(x, cos, sin):
    """x (B, T, H, D): rotate pairs (i, i + D/2)."""
    a, b = x.chunk(2, -1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def forward(case, w, tokens, starts, dtype):
    """Logits (B·T, V)."""
    c = case["config"]
    B, T = tokens.shape
    H, KVH, D = c["heads"], c["kv_heads"], c["head_dim"]
    eps, scale = f32(c["norm_eps"]), f32(1 / math.sqrt(D))
    cos, sin = rope_table(c, T, dtype)
    t = torch.arange(T)
    seen = (t[None, None, :] <= t[None, :, None]) & (t[None, None, :] >= starts[:, :, None])  # (B, query, key)
    x = w["tok_emb"][tokens]
    for i in range(c["layers"]):
        p = f"layers.{i}."
        y = norm(x, w[p + "attn_norm"], eps)
        q = rope((y @ w[p + "wq"]).view(B, T, H, D), cos, sin)
        k = rope((y @ w[p + "wk"]).view(B, T, KVH, D), cos, sin)
        v = (y @ w[p + "wv"]).view(B, T, KVH, D)
        k = k.repeat_interleave(H // KVH, dim=2)
        v = v.repeat_interleave(H // KVH, dim=2)
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
        s = s.masked_fill(~seen[:, None], float("-inf"))
        o = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(s, -1), v).reshape(B, T, H * D)
        x = x + o @ w[p + "wo"]
        y = norm(x, w[p + "ffn_norm"], eps)
        gate = y @ w[p + "w_gate"]
        if c["activation"] == "silu":
            act = torch.nn.functional.silu(gate)
        else:
            act = torch.nn.functional.gelu(gate, approximate="tanh")
        x = x + (act * (y @ w[p + "w_up"])) @ w[p + "w_down"]
    x = norm(x, w["final_norm"], eps).reshape(B * T, -1)
    return x @ (w["tok_emb"].T if c["tied"] else w["lm_head"])


def loss_sum(case, logits, targets):
    """Σ over counted rows of lse − (1−α)·l_t − α·mean(l) + β·lse², and their number."""
    a, b = f32(case["label_smoothing"]), f32(case["z_loss"])
    flat = targets.reshape(-1)
    counted = flat != IGNORE
    lse = torch.logsumexp(logits, -1)
    lt = logits.gather(1, flat.clamp(min=0)[:, None])[:, 0]
    rows = lse - (1 - a) * lt - a * logits.mean(-1) + b * lse * lse
    return rows[counted].sum(), int(counted.sum())


def numbers(t, dtype):
    digits = "%.17g" if dtype == torch.float64 else "%.9g"
    return [float(digits % v) for v in t.detach().reshape(-1).tolist()]


def run(case, dtype):
    tokens, targets, starts = (torch.tensor(v) for v in batch(case))
    w = weights(case["config"], dtype)

    def evaluate():
        for t in w.values():
            t.grad = None
        logits = forward(case, w, tokens, starts, dtype)
        total, count = loss_sum(case, logits, targets)
        (total * f32(1 / count)).backward()
        return logits, total, count

    logits, total, count = evaluate()
    out = dict(logits=numbers(logits, dtype), loss_sum=float(total), counted=count,
               grads={n: numbers(t.grad, dtype) for n, t in w.items()})
    decayed = [w[n] for n, _, d in table(case["config"]) if d]
    rest = [w[n] for n, _, d in table(case["config"]) if not d]
    opt = torch.optim.AdamW([dict(params=decayed, weight_decay=f32(WEIGHT_DECAY)), dict(params=rest, weight_decay=0.0)],
                            lr=f32(LR), betas=(f32(BETA1), f32(BETA2)), eps=f32(EPS), foreach=False)
    losses, norms = [], []
    for _ in range(STEPS):
        _, total, count = evaluate()
        losses.append(float(total) / count)
        n = math.sqrt(sum(float((t.grad.double() ** 2).sum()) for t in w.values()))
        norms.append(n)
        clip = min(1.0, f32(CLIP) / max(n, 1e-6))
        for t in w.values():
            t.grad.mul_(clip)
        opt.step()
    _, total, count = evaluate()
    losses.append(float(total) / count)
    out.update(adamw_losses=losses, adamw_norms=norms)
    return out


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not torch.__version__.startswith(EXPECTED_TORCH):
        print(f"warning: torch is {torch.__version__}, these values are pinned to {EXPECTED_TORCH}", file=sys.stderr)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.makedirs(sys.argv[1], exist_ok=True)
    for name, case in CASES.items():
        tokens, targets, starts = batch(case)
        doc = dict(case=name, torch=torch.__version__, config=case["config"], batch=case["batch"],
                   label_smoothing=case["label_smoothing"], z_loss=case["z_loss"], doc_mask=case["doc_mask"],
                   adamw=dict(lr=LR, beta1=BETA1, beta2=BETA2, eps=EPS, weight_decay=WEIGHT_DECAY, clip=CLIP),
                   tokens=sum(tokens, []), targets=sum(targets, []), doc_start=sum(starts, []),
                   float64=run(case, torch.float64), float32=run(case, torch.float32))
        path = os.path.join(sys.argv[1], name + ".json")
        with open(path, "w") as f:
            json.dump(doc, f, separators=(",", ":"), allow_nan=False)
            f.write("\n")
        print(f"{path}: {os.path.getsize(path)} bytes, loss {doc['float64']['adamw_losses'][0]:.6f} -> "
              f"{doc['float64']['adamw_losses'][-1]:.6f}, norms {doc['float64']['adamw_norms'][0]:.3f} .. "
              f"{doc['float64']['adamw_norms'][-1]:.3f}")


if __name__ == "__main__":
    main()
