package main

import (
	"context"
	"fmt"
	"go/build"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tezgah/bpe"
	"tezgah/corpus"
	"tezgah/generate"
	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/train"
)

// demoFlags are the settings of tezgah demo.
type demoFlags struct {
	deviceFlags
	data    string
	preset  string
	vocab   int
	pattern string
	out     string
	minutes float64
	steps   int64
	textMiB int64
	batch   int
	prompt  string
	seed    uint64
	json    bool
}

func newDemo() *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Everything from raw text to a talking model, in about three minutes",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context()) },
	}
	f.deviceFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "file or folder of text (default: the source of the Go installation)")
	fl.StringVar(&f.preset, "preset", "nano", "size of the model")
	fl.IntVar(&f.vocab, "vocab-size", 2048, "ids of the tokenizer")
	fl.StringVar(&f.pattern, "pattern", "llama3", "how text is cut: gpt2, llama3, qwen2 or turkish")
	fl.StringVar(&f.out, "out", "", "folder for everything it makes (default: a new tezgah-demo folder)")
	fl.Float64Var(&f.minutes, "minutes", 2.25, "time to train")
	fl.Int64Var(&f.steps, "max-steps", 0, "train so many steps instead of --minutes")
	fl.Int64Var(&f.textMiB, "text-mib", 24, "read at most so much text")
	fl.IntVar(&f.batch, "batch", 8, "rows of a training step")
	fl.StringVar(&f.prompt, "prompt", "", "text to continue (default: by the data)")
	fl.Uint64Var(&f.seed, "seed", 1, "decides weights, order and sample")
	fl.BoolVar(&f.json, "json", false, "print one JSON line at the end")
	return cmd
}

// demoResult is the line that --json ends with.
type demoResult struct {
	FinalValBitsPerByte float64 `json:"final_val_bits_per_byte"`
	UnigramBitsPerByte  float64 `json:"unigram_bits_per_byte"`
	TokensPerSecond     float64 `json:"tokens_per_second"`
	Steps               int64   `json:"steps"`
	Seconds             float64 `json:"seconds"`
	ModelPath           string  `json:"model_path"`
	ValLoss             float64 `json:"val_loss"`
	Perplexity          float64 `json:"perplexity"`
	Parameters          int     `json:"parameters"`
	Device              string  `json:"device"`
	Sample              string  `json:"sample"`
}

func (f *demoFlags) run(ctx context.Context) error {
	begin := time.Now()
	if err := f.checkAll(); err != nil {
		return err
	}
	dir, err := f.folder()
	if err != nil {
		return err
	}
	status := newStatusLine(f.json)
	text, err := f.prepare(ctx, dir, status)
	if err != nil {
		return err
	}
	cfg, err := f.config(text)
	if err != nil {
		return err
	}
	res, device, err := f.train(ctx, filepath.Join(dir, "run"), cfg, status)
	if err != nil {
		return err
	}
	unigram, err := unigramBits(ctx, cfg, text)
	if err != nil {
		return err
	}
	out := demoResult{
		FinalValBitsPerByte: res.Val.BitsPerByte, UnigramBitsPerByte: unigram, TokensPerSecond: res.TokPerSec, Steps: res.Steps,
		ModelPath: res.ModelPath, ValLoss: res.Val.LossNats, Perplexity: res.Val.Perplexity, Device: device,
	}
	out.Parameters = cfg.Model.NumParams()
	if !f.json {
		printDemoNumbers(out)
	}
	if out.Sample, err = f.sample(ctx, res.ModelPath); err != nil {
		return err
	}
	out.Seconds = time.Since(begin).Seconds()
	if f.json {
		return printJSON(out)
	}
	printNext(dir, out)
	return nil
}

func (f *demoFlags) checkAll() error {
	if err := f.check(); err != nil {
		return err
	}
	if err := checkWord("pattern", f.pattern, bpe.Patterns()); err != nil {
		return err
	}
	switch {
	case f.vocab < 300 || f.vocab > bpe.MaxVocabSize:
		return usagef("--vocab-size is %d, want 300 to %d", f.vocab, bpe.MaxVocabSize)
	case !(f.minutes > 0) || math.IsInf(f.minutes, 0):
		return usagef("--minutes is %v, want a positive number", f.minutes)
	case f.steps < 0:
		return usagef("--max-steps is %d, want a positive number", f.steps)
	case f.batch < 1:
		return usagef("--batch is %d, want a positive number", f.batch)
	case f.textMiB < 1:
		return usagef("--text-mib is %d, want a positive number", f.textMiB)
	}
	if _, err := model.Preset(f.preset); err != nil {
		return usageError{err}
	}
	if f.data == "" {
		f.data = filepath.Join(build.Default.GOROOT, "src")
		if fi, err := os.Stat(f.data); build.Default.GOROOT == "" || err != nil || !fi.IsDir() {
			return usagef("no Go source was found to train on: give --data PATH, a file or folder of text")
		}
		if f.prompt == "" {
			f.prompt = "func (b *Buffer) "
		}
	}
	return nil
}

// folder makes the folder for the demo's files; without --out a new one.
func (f *demoFlags) folder() (string, error) {
	if f.out != "" {
		return f.out, os.MkdirAll(f.out, 0o777)
	}
	for i := 1; ; i++ {
		dir := "tezgah-demo"
		if i > 1 {
			dir = fmt.Sprintf("tezgah-demo-%d", i)
		}
		err := os.Mkdir(dir, 0o777)
		if err == nil || !os.IsExist(err) {
			return dir, err
		}
	}
}

// demoText is what the demo trains and measures on.
type demoText struct {
	tokenizer   *bpe.Tokenizer
	bin, valBin string // valBin "" when the tail of bin is held out
}

// heldOut is the share of the text that only measures. It is drawn by document
// from a corpus of manyDocuments, so that it looks like the rest; a corpus of a
// few long texts gives its tail.
const (
	heldOut       = 0.03
	manyDocuments = 100
)

// prepare trains the tokenizer and builds the token file.
func (f *demoFlags) prepare(ctx context.Context, dir string, status *statusLine) (*demoText, error) {
	status.print("text       %s", f.data)
	paths, err := limitText(ctx, f.data, f.textMiB<<20)
	if err != nil {
		return nil, err
	}
	in := corpus.InputOptions{Paths: paths}
	begin := time.Now()
	t, stats, err := trainTokenizer(ctx, bpe.TrainOptions{VocabSize: f.vocab, Pattern: f.pattern, Threads: f.threads}, in, status)
	if err != nil {
		return nil, err
	}
	if err := saveTokenizer(filepath.Join(dir, "tokenizer.json"), t); err != nil {
		return nil, err
	}
	status.print("tokenizer  %s ids from %s in %s documents, %s", count(t.VocabSize()), formatBytes(stats.Bytes), count(stats.Documents), shortTime(time.Since(begin)))
	bin := filepath.Join(dir, "data.bin")
	opt := corpus.BuildOptions{Input: in, Tokenizer: t, Out: bin, Seed: f.seed, Threads: f.threads, Restart: true}
	if stats.Documents >= manyDocuments {
		opt.ValFraction = heldOut
	}
	rep, err := buildData(ctx, opt, status)
	if err != nil {
		return nil, err
	}
	status.print("token file %s tokens, %.2f bytes each, %s", count(rep.Tokens+rep.ValTokens),
		float64(rep.TextBytes+rep.ValTextBytes)/float64(rep.Tokens+rep.ValTokens), shortTime(rep.Elapsed))
	return &demoText{tokenizer: t, bin: rep.Path, valBin: rep.ValPath}, nil
}

// limitText lists files of a folder, spread evenly over it, until about limit
// bytes of text. A single file is taken whole.
func limitText(ctx context.Context, path string, limit int64) ([]string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !fi.IsDir() {
		return []string{path}, nil
	}
	files, total, err := textFiles(ctx, path)
	if err != nil || total <= limit {
		return []string{path}, err
	}
	var paths []string
	var taken, seen int64
	for _, file := range files {
		seen += file.size
		if taken+file.size <= seen*limit/total {
			paths = append(paths, file.path)
			taken += file.size
		}
	}
	return paths, nil
}

// largestFile leaves out the largest files of a folder: most are tables that a
// program wrote.
const largestFile = 128 << 10

type sizedFile struct {
	path string
	size int64
}

// textFiles lists the files below a folder that look like source or prose.
func textFiles(ctx context.Context, root string) (files []sizedFile, total int64, err error) {
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git") {
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".go", ".txt", ".md", ".jsonl", ".py", ".c", ".h", ".rs", ".ts", ".js", ".java":
			fi, err := d.Info()
			if err != nil || !fi.Mode().IsRegular() {
				return err
			}
			if fi.Size() <= largestFile {
				files = append(files, sizedFile{path, fi.Size()})
				total += fi.Size()
			}
		}
		return ctx.Err()
	})
	return files, total, err
}

// config is the demo's training run, but for the number of steps.
func (f *demoFlags) config(text *demoText) (train.Config, error) {
	m, err := model.Preset(f.preset)
	if err != nil {
		return train.Config{}, usageError{err}
	}
	m.VocabSize = text.tokenizer.VocabSize()
	cfg := train.Config{
		Data: []train.DataSource{{Path: text.bin}}, ValData: text.valBin, ValFraction: heldOut,
		Preset: f.preset, Model: m, Batch: f.batch, Seed: f.seed,
		Optim: optim.Defaults(), Schedule: optim.Schedule{Kind: "cosine", Warmup: -1},
		MaxSteps: f.steps, EvalTokens: 32768, Keep: 1,
	}
	cfg.Schedule.LR = train.DefaultLR(m)
	cfg.Schedule.MinLR = cfg.Schedule.LR / 10
	return cfg, nil
}

// train measures the speed of this machine, chooses the number of steps that
// fits the time, and trains.
func (f *demoFlags) train(ctx context.Context, dir string, cfg train.Config, status *statusLine) (train.Result, string, error) {
	if cfg.MaxSteps == 0 {
		status.set("measuring the speed of this machine")
		perStep, err := train.ProbeStep(ctx, cfg, f.open)
		if err != nil {
			return train.Result{}, "", err
		}
		cfg.MaxSteps = max(20, int64(f.minutes*60/perStep.Seconds()))
	}
	opt := train.Options{Context: ctx, Dir: dir, Open: f.open, Version: version(), Args: os.Args[1:], Observer: observe(status)}
	t, err := train.New(cfg, opt)
	if err != nil {
		return train.Result{}, "", err
	}
	defer t.Close()
	info, err := t.Info()
	if err != nil {
		return train.Result{}, "", err
	}
	res, err := t.Run(ctx)
	status.clear()
	if err != nil && ctx.Err() != nil {
		status.print("saved step %s; go on with: tezgah train --resume %s", count(res.Steps), dir)
	}
	return res, info.Device, err
}

// unigramBits is what a model gets that knows only how often each token
// occurs: the number to compare the model's bits per byte with.
func unigramBits(ctx context.Context, cfg train.Config, text *demoText) (float64, error) {
	d, err := corpus.Open(text.bin, corpus.OpenOptions{})
	if err != nil {
		return 0, err
	}
	defer d.Close()
	tr, val := corpus.Whole(d), corpus.Source{}
	if text.valBin == "" {
		if tr, val, err = corpus.SplitTail(d, heldOut, cfg.Model.Context); err != nil {
			return 0, err
		}
	} else {
		v, err := corpus.Open(text.valBin, corpus.OpenOptions{})
		if err != nil {
			return 0, err
		}
		defer v.Close()
		val = corpus.Whole(v)
	}
	t := text.tokenizer
	s, err := corpus.Unigram(ctx, tr, val, corpus.TokenBytes(t.Decode, t.VocabSize(), t.EndOfDocument(), t.IsSpecial))
	return s.BitsPerByte, err
}

func printDemoNumbers(r demoResult) {
	fmt.Printf("\nvalidation loss %.4f nats per token, perplexity %.2f\n", r.ValLoss, r.Perplexity)
	fmt.Printf("bits per byte   %.3f (a unigram model: %.3f)\n\n", r.FinalValBitsPerByte, r.UnigramBitsPerByte)
}

// sample streams a text from the finished model.
func (f *demoFlags) sample(ctx context.Context, modelPath string) (string, error) {
	b, err := f.open()
	if err != nil {
		return "", err
	}
	defer b.Close()
	opt := generate.Options{MaxTokens: 200, IgnoreEnd: true,
		Sampling: generate.Sampling{Temperature: 0.7, TopP: 0.9, RepetitionPenalty: 1.05, Seed: f.seed}}
	if !f.json {
		fmt.Print("--- sample ---\n" + f.prompt)
	}
	res, err := generateFrom(ctx, op.NewRunner(b), modelPath, false, f.prompt, opt, func(p generate.Piece) error {
		if f.json {
			return nil
		}
		_, err := os.Stdout.WriteString(p.Text)
		return err
	})
	if !f.json {
		fmt.Print("\n--------------\n")
	}
	return f.prompt + res.Text, err
}

func printNext(dir string, r demoResult) {
	fmt.Printf("\n%s parameters, %s steps at %s tokens/s, %s in all on %s\n", count(r.Parameters), count(r.Steps),
		count(r.TokensPerSecond), shortTime(time.Duration(r.Seconds*float64(time.Second))), r.Device)
	fmt.Printf("\nTry next:\n")
	fmt.Printf("  tezgah generate %s --prompt \"package main\"\n", r.ModelPath)
	fmt.Printf("  tezgah tokenizer inspect %s --text \"for i := range n {\"\n", filepath.Join(dir, "tokenizer.json"))
	fmt.Printf("  tezgah train --data %s --preset micro --max-steps 2000 --out my-run\n", filepath.Join(dir, "data.bin"))
	fmt.Printf("  tezgah demo --data YOUR-TEXT --pattern turkish\n")
	fmt.Printf("(tezgah stands for: go run ./cmd/tezgah)\n")
}
