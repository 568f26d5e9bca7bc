#!/usr/bin/env python3
"""Golden values and measurements of Hugging Face tokenizers, for the tests and benchmarks of package bpe.

Pinned: tokenizers 0.23.2 (pip install tokenizers==0.23.2), Python 3.9 or later, nothing else.

  hf_tokenizers.py                    encodes the generated texts with every ../tokenizer_*.json and writes
                                      ../hf_golden.json; `go test ./bpe` compares. Under a minute.
  hf_tokenizers.py --bench FILE [--tokenizer F.json] [--repeat N] [--threads 1,2,16] [--vocab 32768]
                                      trains on and encodes FILE, prints one JSON line per run: seconds, MB/s,
                                      peak memory, hashes. scripts/tokenizer-bench prints the same for Tezgah.

The generator below repeats ../../golden_gen_test.go statement by statement.
"""
import argparse, hashlib, json, os, resource, struct, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.dirname(HERE)
PINNED = "0.23.2"
MASK = (1 << 64) - 1


class LCG:
    def __init__(self, seed):
        self.s = seed

    def below(self, n):
        self.s = (self.s * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.s >> 33) % n

    def word(self):
        w = ""
        for _ in range(1 + self.below(4)):
            w += CONSONANTS[self.below(len(CONSONANTS))]
            w += VOWELS[self.below(len(VOWELS))]
            w += ENDS[self.below(len(ENDS))]
        return w

    def prose(self, n):
        words = [self.word() for _ in range(3000)]
        out = []
        for _ in range(n):
            out.append(words[self.below(self.below(self.below(len(words)) + 1) + 1)])
            out.append(BREAKS[self.below(len(BREAKS))])
        return "".join(out)

    def pick(self, list_, n):
        return "".join([list_[self.below(len(list_))] for _ in range(n)])

    def points(self, n, limit):
        out = []
        for _ in range(n):
            c = self.below(limit)
            if 0xD800 <= c < 0xE000:
                c -= 0x800
            out.append(chr(c))
        return "".join(out)


VOWELS = "a e ı i o ö u ü â".split()
CONSONANTS = "b c ç d f g ğ h j k l m n p r s ş t v y z".split()
ENDS = ["", "", "", "n", "r", "k", "l", "m"]
BREAKS = [" ", " ", " ", " ", " ", " ", ", ", ". ", ".\n", "'da ", "'s ", "'LL ", " 12", " 2024 ", "\n\n", " (", ") ", "-", "?! "]
PIECES = ["a", "b", "s", "S", "t", "re", "RE", "LL", "ve", "d", "m", "'", "'", "ſ", "\u212a", "ı", "İ", "I", "i", "ğ", "ş", "漢", "字", "é",
          "e\u0301", "1", "23", "456", "٣", "²", "Ⅷ", "½", " ", " ", "  ", "   ", "\n", "\r\n", "\r", "\t", "\v", "\f", "\u0085", "\u00a0", "\u2028", "\u3000",
          "\u200b", "\ufeff", "\x00", "\x1b", ".", "!?", "-", "_", "€", "\u0300", "\U00020000"]
EMOJI = ["👩", "👨", "💻", "🏳", "🏽", "❤", "👧", "🚀", "\U0001F1F9", "\U0001F1F7", "#", "1"]
GLUE = ["\u200d", "\ufe0f", "\u20e3", "", " ", "\U0001F3FB"]
BIDI = ["\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "שלום", "سلام",
        "abc", " ", "١٢٣", "12", "-", "(", ")"]


def training():
    r = LCG(1)
    return r.prose(30000) + r.pick(PIECES, 6000) + r.pick(EMOJI, 300) + r.pick(BIDI, 1000)


def emoji(r):
    out = []
    for _ in range(5000):
        out.append(EMOJI[r.below(len(EMOJI))])
        out.append(GLUE[r.below(len(GLUE))])
    return "".join(out)


def marks(r):
    out = []
    for _ in range(5000):
        out.append(VOWELS[r.below(len(VOWELS))])
        for _ in range(r.below(4)):
            out.append(chr(0x300 + r.below(0x70)))
        if r.below(5) == 0:
            out.append(" ")
    return "".join(out)


def hangul(r):
    out = []
    for _ in range(3000):
        out.append(chr(0x1100 + r.below(0x13)))
        out.append(chr(0x1161 + r.below(0x15)))
        if r.below(2) == 0:
            out.append(chr(0x11A8 + r.below(0x1B)))
    return "".join(out)


def runs(r):
    return "".join([p * (1 + r.below(700)) for p in PIECES])


def long_word(r):
    out, n = [], 0
    while n < 300_000:
        w = r.word()
        out.append(w)
        n += len(w.encode())
    return "".join(out)


def code_points():
    keep = lambda c: c < 0xD800 or 0xE000 <= c < 0x33500 or c >= 0x33500 and c % 64 == 0
    return "".join([chr(c) + "1 "[c % 2] for c in range(0x110000) if keep(c)])


def cases():
    r = LCG(2)
    yield "empty", ""
    yield "prose", r.prose(20000)
    yield "pieces", r.pick(PIECES, 40000)
    yield "planes", r.points(30000, 0x110000)
    yield "bmp", r.points(30000, 0x10000)
    yield "latin", r.points(30000, 0x250)
    yield "emoji", emoji(r)
    yield "bidi", r.pick(BIDI, 10000)
    yield "marks", marks(r)
    yield "zalgo", "e" + "\u0301\u0323" * 100 + " x" + "\u0316" * 31 + "\u0302"
    yield "hangul", hangul(r)
    yield "nul", "\x00" * 1000 + r.pick(["\x00", "a", " ", "\n"], 3000)
    yield "runs", runs(r)
    yield "specials", r.pick(["<|endoftext|>", "<|endoftext", "|>", " ", "a", "\n", "<pad>", "<mask>", "[W]", "[é]", "[e\u0301]", "[É]", "[E\u0301]"], 4000)
    yield "spaces", " " * 1_000_000
    yield "newlines", "\n" * 100_000 + "x" + " \n" * 50_000
    yield "one-letter", "a" * 300_000
    yield "long-word", long_word(r)
    yield "code-points", code_points()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def hash_ids(ids):
    return sha(struct.pack("<%dI" % len(ids), *ids))


def hash_merges(tokenizer):
    lines = []
    for m in json.loads(tokenizer.to_str())["model"]["merges"]:
        lines.append((m if isinstance(m, str) else " ".join(m)) + "\n")
    return len(lines), sha("".join(lines).encode())


def trainer_of(vocab, min_frequency=2):
    from tokenizers import pre_tokenizers, trainers
    return trainers.BpeTrainer(vocab_size=vocab, min_frequency=min_frequency, special_tokens=["<|endoftext|>"], show_progress=False,
                               initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def untrained(like):
    """A tokenizer with the normalizer and pre-tokenizer of `like` and an empty model."""
    from tokenizers import Tokenizer, models
    t = Tokenizer(models.BPE())
    if like.normalizer is not None:
        t.normalizer = like.normalizer
    t.pre_tokenizer = like.pre_tokenizer
    return t


def golden():
    import tokenizers
    if tokenizers.__version__ != PINNED:
        sys.exit(f"tokenizers is {tokenizers.__version__}, want {PINNED}")
    texts = list(cases())
    out = {"tokenizers": PINNED, "texts": {n: sha(t.encode()) for n, t in texts}, "files": {}, "training": {}}
    out["training_text"] = sha(training().encode())
    for name in sorted(os.listdir(DATA)):
        if not (name.startswith("tokenizer_") and name.endswith(".json")):
            continue
        t = tokenizers.Tokenizer.from_file(os.path.join(DATA, name))
        entry = {}
        for case, text in texts:
            ids = t.encode(text, add_special_tokens=False).ids
            decoded = t.decode(ids, skip_special_tokens=False)
            entry[case] = {"n": len(ids), "ids": hash_ids(ids), "decoded": sha(decoded.encode())}
        out["files"][name] = entry
        if name.startswith("tokenizer_own_"):
            u = untrained(t)
            u.train_from_iterator(list(split_lines(training())), trainer_of(t.get_vocab_size()))
            n, digest = hash_merges(u)
            out["training"][name] = {"n": n, "merges": digest}
        print(f"{name}: {len(entry)} texts", file=sys.stderr)
    with open(os.path.join(DATA, "hf_golden.json"), "w") as f:
        json.dump(out, f, indent=1, sort_keys=True)
        f.write("\n")


def documents(path):
    """The lines of a file gathered into documents of at least 8 KiB, as scripts/tokenizer-bench does."""
    docs, cur, size = [], [], 0
    with open(path, "rb") as f:
        data = f.read()
    for line in split_lines(data.decode("utf-8")):
        cur.append(line)
        size += len(line.encode())
        if size >= 8192:
            docs.append("".join(cur))
            cur, size = [], 0
    if cur:
        docs.append("".join(cur))
    return docs, len(data)


def split_lines(text):
    """Splits after each newline (and at nothing else, unlike str.splitlines)."""
    parts = text.split("\n")
    for p in parts[:-1]:
        yield p + "\n"
    if parts[-1]:
        yield parts[-1]


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def bench_one(args):
    import tokenizers
    docs, size = documents(args.bench)
    size *= args.repeat
    out = {"library": "tokenizers " + tokenizers.__version__, "op": args.op, "threads": int(os.environ["RAYON_NUM_THREADS"]),
           "bytes": size, "start_mib": round(peak_mib(), 1)}
    like = tokenizers.Tokenizer.from_file(args.tokenizer)
    if args.op == "train":
        t = untrained(like)
        start = time.perf_counter()
        t.train_from_iterator((d for _ in range(args.repeat) for d in docs), trainer_of(args.vocab), length=len(docs) * args.repeat)
        seconds = time.perf_counter() - start
        out["merges_n"], out["merges"] = hash_merges(t)
    else:
        seconds = float("inf")
        for _ in range(1 if args.repeat > 1 else 3):
            h, n, spent = hashlib.sha256(), 0, 0.0
            for _ in range(args.repeat):
                start = time.perf_counter()
                encoded = like.encode_batch_fast(docs, add_special_tokens=False)
                spent += time.perf_counter() - start
                for e in encoded:
                    ids = e.ids
                    n += len(ids)
                    h.update(struct.pack("<%dI" % len(ids), *ids))
                del encoded
            seconds = min(seconds, spent)
        out["ids_n"], out["ids"] = n, h.hexdigest()
    out.update(seconds=round(seconds, 4), mb_per_s=round(size / seconds / 1e6, 3), peak_mib=round(peak_mib(), 1))
    print(json.dumps(out), flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--bench", metavar="FILE")
    p.add_argument("--tokenizer", default=os.path.join(DATA, "tokenizer_own_llama3.json"))
    p.add_argument("--repeat", type=int, default=1)
    p.add_argument("--threads", default="1,2,16")
    p.add_argument("--vocab", type=int, default=32768)
    p.add_argument("--op", choices=["train", "encode"], help=argparse.SUPPRESS)
    p.add_argument("--only", choices=["train", "encode"])
    args = p.parse_args()
    if not args.bench:
        golden()
    elif args.op:
        bench_one(args)
    else:  # one process per run, so that each has its own peak memory and its own number of threads
        for op in [args.only] if args.only else ["train", "encode"]:
            for threads in args.threads.split(","):
                env = dict(os.environ, RAYON_NUM_THREADS=threads, TOKENIZERS_PARALLELISM="true" if int(threads) > 1 else "false")
                subprocess.run([sys.executable, os.path.abspath(__file__), "--op", op, "--bench", args.bench, "--tokenizer", args.tokenizer,
                                "--repeat", str(args.repeat), "--vocab", str(args.vocab)], env=env, check=True)


main()
