// Command tokenizer-bench measures package bpe on a text file and prints one JSON line per run, as
// bpe/testdata/gen/hf_tokenizers.py --bench does for Hugging Face tokenizers, so that the two can be compared on one
// machine. Every run is a process of its own: its peak memory and number of threads are its own.
//
//	go run ./scripts/tokenizer-bench [--repeat N] [--threads 1,2,16] [--vocab 32768] [--pattern llama3] [--save F.json] FILE
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"tezgah/bpe"
)

type options struct {
	repeat, vocab       int
	threads, only       string
	pattern, save, file string
	op                  string // set in the process of one run
}

// result is one line of output. The names of the fields are those of hf_tokenizers.py.
type result struct {
	Library  string  `json:"library"`
	Op       string  `json:"op"`
	Threads  int     `json:"threads"`
	Bytes    int     `json:"bytes"`
	StartMiB float64 `json:"start_mib"` // peak before the run, the text included
	MergesN  int     `json:"merges_n,omitempty"`
	Merges   string  `json:"merges,omitempty"`
	IDsN     int     `json:"ids_n,omitempty"`
	IDs      string  `json:"ids,omitempty"`
	Seconds  float64 `json:"seconds"`
	MBPerS   float64 `json:"mb_per_s"`
	PeakMiB  float64 `json:"peak_mib"` // 0 where the system does not tell
}

func main() {
	var o options
	flag.IntVar(&o.repeat, "repeat", 1, "how often the file is read over")
	flag.IntVar(&o.vocab, "vocab", 32768, "ids")
	flag.StringVar(&o.threads, "threads", "1,2,16", "numbers of threads, one run each")
	flag.StringVar(&o.only, "only", "", "train or encode")
	flag.StringVar(&o.pattern, "pattern", "llama3", "pre-token pattern")
	flag.StringVar(&o.save, "save", "tokenizer-bench.json", "where the tokenizer goes; encoding reads it")
	flag.StringVar(&o.op, "op", "", "used by this program itself")
	flag.Parse()
	o.file = flag.Arg(0)
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	run := all
	if o.op != "" {
		run = one
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// all starts a process for every run.
func all(o options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, op := range []string{"train", "encode"} {
		if o.only != "" && o.only != op {
			continue
		}
		for _, threads := range strings.Split(o.threads, ",") {
			c := exec.Command(self, "--op", op, "--repeat", strconv.Itoa(o.repeat), "--vocab", strconv.Itoa(o.vocab),
				"--threads", threads, "--pattern", o.pattern, "--save", o.save, o.file)
			c.Stdout, c.Stderr = os.Stdout, os.Stderr
			c.Env = append(os.Environ(), "GOMAXPROCS="+threads)
			if err := c.Run(); err != nil {
				return err
			}
		}
	}
	return nil
}

// one does a single run.
func one(o options) error {
	docs, size, err := documents(o.file)
	if err != nil {
		return err
	}
	debug.FreeOSMemory()
	r := result{Library: "tezgah", Op: o.op, Threads: runtime.GOMAXPROCS(0), Bytes: size * o.repeat, StartMiB: peakMiB()}
	if o.op == "train" {
		err = trainRun(o, docs, &r)
	} else {
		err = encodeRun(o, docs, &r)
	}
	if err != nil {
		return err
	}
	r.MBPerS = float64(r.Bytes) / r.Seconds / 1e6
	r.PeakMiB = peakMiB()
	return json.NewEncoder(os.Stdout).Encode(r)
}

func trainRun(o options, docs [][]byte, r *result) error {
	start := time.Now()
	tr, err := bpe.NewTrainer(bpe.TrainOptions{VocabSize: o.vocab, Pattern: o.pattern, Threads: r.Threads})
	if err != nil {
		return err
	}
	for range o.repeat {
		if err := tr.AddBatch(docs); err != nil {
			return err
		}
	}
	tok, err := tr.Train(context.Background())
	if err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	h := sha256.New()
	for _, m := range tok.Merges() {
		fmt.Fprintf(h, "%s %s\n", tok.TokenText(m[0]), tok.TokenText(m[1]))
	}
	r.MergesN, r.Merges = len(tok.Merges()), hex.EncodeToString(h.Sum(nil))
	return os.WriteFile(o.save, tok.JSON(), 0o666)
}

func encodeRun(o options, docs [][]byte, r *result) error {
	tok, err := bpe.Load(o.save)
	if err != nil {
		return err
	}
	rounds := 3
	if o.repeat > 1 {
		rounds = 1
	}
	for round := range rounds {
		h, n := sha256.New(), 0
		var spent time.Duration
		for range o.repeat {
			start := time.Now()
			ids := tok.EncodeBatch(docs, r.Threads)
			spent += time.Since(start)
			for _, doc := range ids {
				n += len(doc)
				var b []byte
				for _, id := range doc {
					b = binary.LittleEndian.AppendUint32(b, uint32(id))
				}
				h.Write(b)
			}
		}
		if s := spent.Seconds(); round == 0 || s < r.Seconds {
			r.Seconds = s
		}
		r.IDsN, r.IDs = n, hex.EncodeToString(h.Sum(nil))
	}
	return nil
}

// documents gathers the lines of a file into documents of at least 8 KiB.
func documents(path string) (docs [][]byte, size int, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	size = len(data)
	for len(data) > 0 {
		n := len(data)
		if n > 8192 {
			if i := bytes.IndexByte(data[8191:], '\n'); i >= 0 {
				n = 8192 + i
			}
		}
		docs = append(docs, data[:n])
		data = data[n:]
	}
	return docs, size, nil
}

// peakMiB is the peak resident size of this process (Linux), else 0.
func peakMiB() float64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024
		}
	}
	return 0
}
