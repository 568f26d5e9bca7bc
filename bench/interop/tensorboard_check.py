"""Compares the TensorBoard event files of run folders with their log.jsonl.

    pip install tensorboard
    python tensorboard_check.py RUN [RUN ...]

The files are read by TensorBoard's own EventAccumulator, which decides what is
shown after a run was resumed. Every scalar of every step in the log must come
out once, in the order of the steps, with the log's value in float32. Prints one
JSON object and ends with 1 if anything differs.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import tensorboard
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

# TensorBoard's tag: the field of a step's line.
TAGS = {
    "loss/train": "loss",
    "loss/val": "val_loss",
    "lr": "lr",
    "grad/norm": "grad_norm",
    "grad/clip": "clip",
    "grad/nonfinite": "nonfinite",
    "tokens": "tokens",
    "tok_per_s": "tok_per_s",
}


def logged(run):
    """The scalars of log.jsonl: {tag: [(step, value), ...]}."""
    out = {}
    for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines():
        rec = json.loads(line)
        if rec["type"] != "step":
            continue
        for tag, field in TAGS.items():
            if field in rec:  # numbers that JSON lacks are "NaN", "+Inf" and "-Inf"
                out.setdefault(tag, []).append((rec["step"], np.float32(float(rec[field]))))
    return out


def shown(run):
    """The scalars that TensorBoard shows, all of them."""
    acc = EventAccumulator(str(run), size_guidance={"scalars": 0})
    acc.Reload()
    return {tag: [(e.step, np.float32(e.value)) for e in acc.Scalars(tag)] for tag in acc.Tags()["scalars"]}


def same(a, b):
    return a[0] == b[0] and (a[1] == b[1] or math.isnan(a[1]) and math.isnan(b[1]))


def check(run):
    want, got = logged(run), shown(run)
    problems = []
    for tag in sorted(set(want) | set(got)):
        w, g = want.get(tag, []), got.get(tag, [])
        steps = [s for s, _ in g]
        if any(b <= a for a, b in zip(steps, steps[1:])):
            problems.append(f"{tag}: steps go back or come twice")
        if len(w) != len(g):
            problems.append(f"{tag}: {len(g)} values, the log has {len(w)}")
        for a, b in zip(w, g):
            if not same(a, b):
                problems.append(f"{tag}: shows {b}, the log has {a}")
                break
    restarts = sum(1 for _ in run.glob("events.out.tfevents.*")) - 1
    return {
        "run": str(run),
        "tags": len(got),
        "values": sum(len(v) for v in got.values()),
        "steps": len(want.get("loss/train", [])),
        "resumed": restarts,
        "problems": problems,
        "ok": not problems and bool(want),
    }


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    runs = [check(Path(p)) for p in sys.argv[1:]]
    print(json.dumps({"tensorboard": tensorboard.__version__, "runs": runs, "ok": all(r["ok"] for r in runs)}, indent=1))
    sys.exit(0 if all(r["ok"] for r in runs) else 1)


if __name__ == "__main__":
    main()
