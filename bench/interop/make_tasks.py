#!/usr/bin/env python3
"""Makes a multiple-choice task file out of a text, for tasks_check.py and for trying `tezgah eval --tasks`.
usage: make_tasks.py TEXT [N] > TASKS.jsonl      (nothing but Python; the same text gives the same file)

A task is a sentence cut in two: which of four endings belongs to its beginning? The wrong ones end other sentences of the
text. The group "cloze" has the sentence before it as context, "next-word" asks for one word, and "edges" is a handful of
contexts that are hard to cut into tokens: empty, white space only, a space at the end, cut inside a word, longer than any
small model's context, and scripts without spaces."""
import json, re, sys

text = open(sys.argv[1], encoding="utf-8").read()
n = int(sys.argv[2]) if len(sys.argv) > 2 else 100
state = 1


def below(k):
    """The next number of a small generator (Knuth's MMIX constants), 0 to k-1."""
    global state
    state = (6364136223846793005 * state + 1442695040888963407) % 2**64
    return (state >> 33) % k


def choose(right, others):
    """Four different choices in a drawn order, and where the right one is."""
    wrong = []
    while len(wrong) < 3:
        w = others[below(len(others))]
        if w != right and w not in wrong:
            wrong.append(w)
    label = below(4)
    return wrong[:label] + [right] + wrong[label:], label


sentences = [" ".join(s.split()) for s in re.split(r"(?<=[.!?])\s+|\n\s*\n", text)]
sentences = [s for s in sentences if 8 <= len(s.split()) <= 60]
if len({" ".join(s.split()[-4:]) for s in sentences}) < 8:
    sys.exit(f"{sys.argv[1]}: {len(sentences)} sentences of 8 to 60 words are too few to choose from: give more prose")


def cut(s):
    words = s.split()
    half = len(words) // 2
    return " ".join(words[:half]), " " + " ".join(words[half:])


tasks = []
endings = [cut(s)[1] for s in sentences]
words = sorted({" " + w for s in sentences for w in s.split()})
for i in range(n):
    at = below(len(sentences))
    before = sentences[at - 1] + " " if at > 0 else ""
    if i % 2 == 0:
        head, tail = cut(sentences[at])
        choices, label = choose(tail, endings)
        tasks.append({"id": i, "task": "cloze", "context": before + head, "choices": choices, "label": label})
    else:
        head, tail = sentences[at].rsplit(" ", 1)
        choices, label = choose(" " + tail, words)
        tasks.append({"id": i, "task": "next-word", "context": before + head, "choices": choices, "label": label})

some = sentences[0]
long = " ".join(sentences[i % len(sentences)] for i in range(200))
edges = [
    ("", [some, "a", "İyi günler."], 0),
    (" \n", [some, "a"], 0),
    (some + " ", [cut(sentences[1])[1].strip(), "a"], 0),
    (some + "\n\n\t", ["x", " y", "\nz"], 1),
    (some[: len(some) // 2], [some[len(some) // 2 :], "s", "\u00a0"], 0),
    (long, [" " + some, " and", "."], 0),
    (long + " ", ["the", "of"], 1),
    ("Ankara'da hava", [" güzel", " yağmurlu ve soğuk", "'"], 0),
    ("你好", ["，世界", "吗", "😀😀", "\r\n"], 1),
    ("e\u0301", ["\u0301", "é", " e"], 2),
    ("1 + 1 =", [" 2", " 11", "\x1f"], 0),
]
for i, (context, choices, label) in enumerate(edges):
    tasks.append({"id": f"edge-{i}", "task": "edges", "context": context, "choices": choices, "label": label})

for t in tasks:
    print(json.dumps(t, ensure_ascii=False))
