package train

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tezgah/bpe"
	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/model"
	"tezgah/op"
)

// finished is the folder of the model that finishedRun hands out copies of.
var finished = struct {
	sync.Mutex
	dir string // removed by TestMain
}{}

// finishedRun returns a run folder with a model that knows the grammar of
// writeText, and the token file it was trained on.
func finishedRun(t *testing.T) (run, data string) {
	t.Helper()
	finished.Lock()
	defer finished.Unlock()
	if finished.dir == "" {
		dir, err := os.MkdirTemp("", "tezgah-train-test-")
		if err != nil {
			t.Fatal(err)
		}
		cfg := tinyConfig(writeData(t, dir, 1))
		cfg.MaxSteps = 60
		runAll(t, filepath.Join(dir, "base"), cfg)
		finished.dir = dir
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(finished.dir)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "base"), filepath.Join(dir, "data1.bin")
}

// sailorData is a token file, with the same tokenizer, of a text in which only
// one subject occurs.
func sailorData(t *testing.T, data string) string {
	t.Helper()
	d, err := corpus.Open(data, corpus.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	tok, err := bpe.Parse(d.TokenizerJSON())
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	for i := range 20 {
		docs = append(docs, bytes.Repeat([]byte("a sailor mends the net. a sailor paints bread. "), 8+i%3))
	}
	b, err := corpus.BuildMemory(tok, docs)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sailor.bin")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// otherTokens builds a token file with a tokenizer of its own.
func otherTokens(t *testing.T) string {
	t.Helper()
	tr, err := bpe.NewTrainer(bpe.TrainOptions{VocabSize: 290, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Add(writeText(5, 100)); err != nil {
		t.Fatal(err)
	}
	tok, err := tr.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	b, err := corpus.BuildMemory(tok, [][]byte{writeText(5, 200)})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "other.bin")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// foreignTokens writes headerless 16-bit tokens, which carry no tokenizer.
func foreignTokens(t *testing.T, data string) string {
	t.Helper()
	d, err := corpus.Open(data, corpus.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ids := make([]int32, d.Len())
	if err := d.Read(ids, 0); err != nil {
		t.Fatal(err)
	}
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint16(b, uint16(id))
	}
	path := filepath.Join(t.TempDir(), "plain.bin")
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestInitFromRun goes on from a run folder, finished or not, on token files
// with and without a tokenizer, and starts with the loss that the run ended
// with.
func TestInitFromRun(t *testing.T) {
	run, data := finishedRun(t)
	unfinished := filepath.Join(t.TempDir(), "unfinished")
	if err := os.CopyFS(unfinished, os.DirFS(run)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(unfinished, ModelName)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ init, data string }{
		"finished": {run, data}, "checkpoint": {unfinished, data}, "file": {filepath.Join(run, ModelName), data},
		"foreign tokens": {run, foreignTokens(t, data)},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tinyConfig(c.data)
			cfg.Model, cfg.InitFrom, cfg.MaxSteps, cfg.Schedule.Warmup = model.Config{}, c.init, 2, 0
			next := filepath.Join(t.TempDir(), "next")
			res := runAll(t, next, cfg)
			before, after := losses(t, run), losses(t, next)
			if after[0] > before[len(before)-1]+0.2 {
				t.Errorf("the first loss is %.3f, the run before ended at %.3f", after[0], before[len(before)-1])
			}
			if res.Val.BitsPerByte <= 0 {
				t.Error("the bytes are not known")
			}
			saved, err := LoadConfig(next)
			if err != nil || !strings.HasSuffix(saved.InitFrom, ".llm") {
				t.Errorf("the configuration names %q as its start, %v", saved.InitFrom, err)
			}
		})
	}
}

// TestInitOtherTokenizer refuses data whose ids mean something else to the
// model, as training and as validation data, before anything is written.
func TestInitOtherTokenizer(t *testing.T) {
	run, data := finishedRun(t)
	other := otherTokens(t)
	tokenizer := filepath.Join(t.TempDir(), "t.json")
	d, err := corpus.Open(other, corpus.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.WriteFile(tokenizer, d.TokenizerJSON(), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"data":           func(c *Config) { c.Data[0].Path = other },
		"second file":    func(c *Config) { c.Data = append(c.Data, DataSource{Path: other}) },
		"validation":     func(c *Config) { c.ValData = other },
		"tokenizer flag": func(c *Config) { c.Tokenizer = tokenizer },
	} {
		cfg := tinyConfig(data)
		cfg.Model, cfg.InitFrom = model.Config{}, run
		change(&cfg)
		dir := filepath.Join(t.TempDir(), "run")
		_, err := New(cfg, Options{Dir: dir, Open: openCPU})
		if err == nil || !strings.Contains(err.Error(), "tokenizer") || !strings.Contains(err.Error(), ModelName) {
			t.Errorf("%s: got %v, want a refusal that names tokenizer and model", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, configName)); err == nil {
			t.Errorf("%s: a refused run left its configuration", name)
		}
	}
}

// TestInitLargerVocabulary goes on with a model that has more rows than its
// tokenizer has ids, as imported ones do.
func TestInitLargerVocabulary(t *testing.T) {
	run, data := finishedRun(t)
	f, err := checkpoint.OpenLLM(filepath.Join(run, ModelName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	small, err := configOf(f)
	if err != nil {
		t.Fatal(err)
	}
	cfg := tinyConfig(data)
	cfg.Model.VocabSize = small.VocabSize + 20
	cfg.MaxSteps = 5
	padded := filepath.Join(t.TempDir(), "padded")
	runAll(t, padded, cfg)
	cfg.Model, cfg.InitFrom = model.Config{}, padded
	next := filepath.Join(t.TempDir(), "next")
	res := runAll(t, next, cfg)
	b, err := openCPU()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m, err := LoadModel(op.NewRunner(b), res.ModelPath, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Params.Close()
	if got := m.Params.Config().VocabSize; got != small.VocabSize+20 || m.Tokenizer.VocabSize() != small.VocabSize {
		t.Errorf("model has %d rows for %d ids, want %d for %d", got, m.Tokenizer.VocabSize(), small.VocabSize+20, small.VocabSize)
	}
}

// TestResumeWithoutBase: a run that has a checkpoint does not need the file it
// began with any more, and one that lost its device before the first
// checkpoint begins with the first batch again.
func TestResumeWithoutBase(t *testing.T) {
	run, data := finishedRun(t)
	init := filepath.Join(t.TempDir(), "init.llm")
	b, err := os.ReadFile(filepath.Join(run, ModelName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(init, b, 0o666); err != nil {
		t.Fatal(err)
	}
	cfg := tinyConfig(data)
	cfg.Model, cfg.InitFrom = model.Config{}, init
	dir := t.TempDir()
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	runAll(t, whole, cfg)
	runPart(t, func(o Options) (*Trainer, error) { return New(cfg, o) }, parts, 9)
	if err := os.Remove(init); err != nil {
		t.Fatal(err)
	}
	runPart(t, func(o Options) (*Trainer, error) { return Resume(o, nil) }, parts, 0)
	sameRun(t, whole, parts)
}

// TestDeviceLostEarly loses the device before the first checkpoint.
func TestDeviceLostEarly(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.MaxSteps, cfg.CheckpointEvery, cfg.EvalEvery = 6, -1, -1
	whole, broken := filepath.Join(dir, "whole"), filepath.Join(dir, "broken")
	runAll(t, whole, cfg)
	left := 25 // forward norms: 10 a step, so in step 3
	tr, err := New(cfg, Options{Dir: broken, Open: func() (op.Backend, error) {
		b, err := openCPU()
		return failAfter(b, &left), err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	sameRun(t, whole, broken)
}

// TestTextBytes: special tokens are no text.
func TestTextBytes(t *testing.T) {
	tr, err := bpe.NewTrainer(bpe.TrainOptions{VocabSize: 300, Threads: 1, SpecialTokens: []string{"<|endoftext|>", "<|x|>"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Add(bytes.Repeat([]byte("weave "), 50)); err != nil {
		t.Fatal(err)
	}
	tok, err := tr.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	lens := corpus.TokenBytes(tok.Decode, tok.VocabSize(), tok.EndOfDocument(), tok.IsSpecial)
	for id, n := range lens {
		want := len(tok.Token(int32(id)))
		if tok.IsSpecial(int32(id)) {
			want = 0
		}
		if int(n) != want {
			t.Errorf("id %d has %d bytes, want %d", id, n, want)
		}
	}
}

// copyFile copies a file into a folder of its own.
func copyFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(to, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return to
}
