package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"tezgah/bpe"
	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/optim"
	"tezgah/runlog"
	"tezgah/tensor"
)

// writeText makes a text with structure to learn, the same for every seed.
func writeText(seed uint64, words int) []byte {
	r := tensor.NewRNG(seed, 1)
	subject := []string{"the weaver", "a sailor", "my neighbour", "the old cat", "the teacher"}
	verb := []string{"mends", "watches", "carries", "forgets", "paints"}
	object := []string{"the net", "a red boat", "the long thread", "every window", "bread"}
	var b bytes.Buffer
	for i := range words {
		x := r.Block(uint64(i))
		fmt.Fprintf(&b, "%s %s %s. ", subject[x[0]%5], verb[x[1]%5], object[x[2]%5])
		if i%40 == 39 {
			b.WriteString("\n")
		}
	}
	return b.Bytes()
}

// writeData builds a small token file in dir and returns its path.
func writeData(t testing.TB, dir string, seed uint64) string {
	t.Helper()
	text := writeText(seed, 600)
	tr, err := bpe.NewTrainer(bpe.TrainOptions{VocabSize: 300, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Add(writeText(1, 600)); err != nil {
		t.Fatal(err)
	}
	tok, err := tr.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var docs [][]byte
	for _, d := range bytes.SplitAfter(text, []byte("\n")) {
		if len(d) > 0 {
			docs = append(docs, d)
		}
	}
	b, err := corpus.BuildMemory(tok, docs)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, fmt.Sprintf("data%d.bin", seed))
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// tinyConfig is a run of a few seconds.
func tinyConfig(data string) Config {
	return Config{
		Data:  []DataSource{{Path: data}},
		Model: model.Config{Context: 32, DModel: 32, Layers: 2, Heads: 4, KVHeads: 2, FFN: 64, Tied: true},
		Batch: 4, Accum: 2, Seed: 11, MaxSteps: 24, EvalEvery: 8, EvalTokens: 512, CheckpointEvery: 5, Keep: 2,
		Optim:    optim.Defaults(),
		Schedule: optim.Schedule{Kind: "cosine", LR: 3e-3, MinLR: 3e-4, Warmup: 3},
	}
}

func openCPU() (op.Backend, error) { return cpu.New(cpu.Options{Threads: 2}) }

func runAll(t *testing.T, dir string, cfg Config) Result {
	t.Helper()
	tr, err := New(cfg, Options{Dir: dir, Open: openCPU, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	res, err := tr.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// weights reads every weight and moment of the newest checkpoint.
func weights(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	c, _, err := checkpoint.Latest(dir)
	if err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.OpenLLM(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]byte{}
	for _, i := range f.Tensors() {
		p := make([]byte, i.SizeBytes())
		if err := f.ReadBytes(i.Name, p); err != nil {
			t.Fatal(err)
		}
		out[i.Name] = p
	}
	return out
}

// losses reads the losses of a run log and checks that steps count up by one.
func losses(t *testing.T, dir string) []float64 {
	t.Helper()
	var out []float64
	for rec, err := range runlog.Read(filepath.Join(dir, runlog.FileName)) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Step == nil {
			continue
		}
		if rec.Step.Step != int64(len(out)+1) {
			t.Fatalf("step %d follows step %d in the log", rec.Step.Step, len(out))
		}
		out = append(out, rec.Step.Loss)
	}
	return out
}

func sameRun(t *testing.T, a, b string) {
	t.Helper()
	eventsMatch(t, a)
	eventsMatch(t, b)
	la, lb := losses(t, a), losses(t, b)
	if len(la) != len(lb) || len(la) == 0 {
		t.Fatalf("runs have %d and %d steps", len(la), len(lb))
	}
	for i := range la {
		if math.Float64bits(la[i]) != math.Float64bits(lb[i]) {
			t.Fatalf("losses of step %d differ: %v and %v", i+1, la[i], lb[i])
		}
	}
	wa, wb := weights(t, a), weights(t, b)
	if len(wa) != len(wb) {
		t.Fatalf("checkpoints have %d and %d tensors", len(wa), len(wb))
	}
	for name, p := range wa {
		if !bytes.Equal(p, wb[name]) {
			t.Errorf("tensor %s differs", name)
		}
	}
}

func TestTrainLearns(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.MaxSteps = 60
	res := runAll(t, filepath.Join(dir, "run"), cfg)
	l := losses(t, filepath.Join(dir, "run"))
	first := math.Log(300)
	if math.Abs(l[0]-first) > 0.3 {
		t.Errorf("first loss %.3f, want about ln V = %.3f", l[0], first)
	}
	// A unigram model of this text is above 4 nats; the grammar is learned below 3.
	if res.Val.LossNats > 3 || res.Val.LossNats < 0.3 {
		t.Errorf("validation loss %.3f after %d steps, want below 3", res.Val.LossNats, res.Steps)
	}
	if res.Val.BitsPerByte <= 0 || math.Abs(res.Val.Perplexity-math.Exp(res.Val.LossNats)) > 1e-9 {
		t.Errorf("evaluation %+v is inconsistent", res.Val)
	}
	if _, err := os.Stat(res.ModelPath); err != nil {
		t.Error(err)
	}
	if kept, _ := checkpoint.List(filepath.Join(dir, "run")); len(kept) != 2 {
		t.Errorf("%d checkpoints kept, want 2", len(kept))
	}
}

// TestResumeAfterCancel stops a run between checkpoints and goes on.
func TestResumeAfterCancel(t *testing.T) {
	for _, name := range []string{"plain", "moments8", "doc mask", "recompute"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := tinyConfig(writeData(t, dir, 1))
			cfg.Moments8 = name == "moments8"
			cfg.DocMask = name == "doc mask"
			cfg.Recompute = name == "recompute"
			whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
			runAll(t, whole, cfg)

			ctx, cancel := context.WithCancel(context.Background())
			opt := Options{Dir: parts, Open: openCPU, Observer: Observer{Step: func(s runlog.Step, _ Pace) {
				if s.Step == 13 {
					cancel()
				}
			}}}
			tr, err := New(cfg, opt)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tr.Run(ctx)
			tr.Close()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("a cancelled run returned %v", err)
			}
			resumed, err := Resume(Options{Dir: parts, Open: openCPU}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resumed.Close()
			if resumed.state.Step != 13 {
				t.Errorf("resumed at step %d, want 13", resumed.state.Step)
			}
			if _, err := resumed.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			sameRun(t, whole, parts)
		})
	}
}

// TestAccumulation compares one large batch with micro-steps of it.
func TestAccumulation(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.MaxSteps = 4
	cfg.Batch, cfg.Accum = 8, 1
	runAll(t, filepath.Join(dir, "large"), cfg)
	cfg.Batch, cfg.Accum = 2, 4
	runAll(t, filepath.Join(dir, "small"), cfg)
	a, b := losses(t, filepath.Join(dir, "large")), losses(t, filepath.Join(dir, "small"))
	for i := range a {
		// Sums in another order: a few float32 roundings of a loss near 5.
		if math.Abs(a[i]-b[i]) > 2e-4 {
			t.Errorf("step %d: loss %v with one batch, %v accumulated", i+1, a[i], b[i])
		}
	}
}

// failing is a backend whose device dies at one call, and stays dead.
type failing struct {
	op.Backend
	left *int
	dead *bool
}

func failAfter(b op.Backend, left *int) failing { return failing{b, left, new(bool)} }

var errDied = errors.New("device lost (test)")

func (f failing) RMSNorm(a op.RMSNorm) error {
	if *f.left--; *f.left == 0 {
		*f.dead = true
	}
	if *f.dead {
		return errDied
	}
	return f.Backend.RMSNorm(a)
}

func (f failing) Read(p []byte, x op.Tensor) error {
	if *f.dead {
		return errDied
	}
	return f.Backend.Read(p, x)
}

// TestDeviceLost loses the device once in mid-run: training goes on from the
// last checkpoint and ends as if nothing had happened.
func TestDeviceLost(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	whole, broken := filepath.Join(dir, "whole"), filepath.Join(dir, "broken")
	runAll(t, whole, cfg)
	left := 200 // forward norms: 10 a step (5 norms, 2 micro-steps), so in step 19 or so
	var notices []string
	tr, err := New(cfg, Options{Dir: broken,
		Open: func() (op.Backend, error) {
			b, err := openCPU()
			return failAfter(b, &left), err
		},
		Observer: Observer{Notice: func(s string) { notices = append(notices, s) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(notices) == 0 || !strings.Contains(strings.Join(notices, "\n"), "device failed") {
		t.Errorf("the user was told %q", notices)
	}
	sameRun(t, whole, broken)
}

// TestDeviceLostForGood: a device that dies at the same step again ends the run
// with its error.
func TestDeviceLostForGood(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "run"), Open: func() (op.Backend, error) {
		b, err := openCPU()
		left := 50
		return failAfter(b, &left), err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if _, err := tr.Run(context.Background()); !errors.Is(err, errDied) {
		t.Errorf("got %v, want the device's error", err)
	}
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	data := writeData(t, dir, 1)
	other := filepath.Join(dir, "other.bin")
	b, _ := os.ReadFile(data)
	cases := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no data", func(c *Config) { c.Data = nil }, "no data"},
		{"missing file", func(c *Config) { c.Data[0].Path = dir + "/none.bin" }, "none.bin"},
		{"truncated file", func(c *Config) {
			os.WriteFile(other, b[:len(b)-100], 0o666)
			c.Data[0].Path = other
		}, "other.bin"},
		{"batch", func(c *Config) { c.Batch = -1 }, "batch"},
		{"context over the data", func(c *Config) { c.Context = 1 << 19 }, ""},
		{"heads", func(c *Config) { c.Model.Heads = 5 }, "heads"},
		{"precision", func(c *Config) { c.Precision = "f8" }, "precision"},
		{"val fraction", func(c *Config) { c.ValFraction = 1.5 }, "val-fraction"},
		{"schedule", func(c *Config) { c.Schedule.Kind = "cosin" }, "cosin"},
		{"small vocabulary", func(c *Config) { c.Model.VocabSize = 100 }, "vocabulary"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := tinyConfig(data)
			c.change(&cfg)
			run := filepath.Join(t.TempDir(), "run")
			tr, err := New(cfg, Options{Dir: run, Open: openCPU})
			if err == nil {
				tr.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not mention %q", err, c.want)
			}
			if _, err := os.Stat(filepath.Join(run, configName)); err == nil {
				t.Error("a refused run left a configuration behind")
			}
		})
	}
}

func TestRunFolderInUse(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	run := filepath.Join(dir, "run")
	tr, err := New(cfg, Options{Dir: run, Open: openCPU})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var locked *checkpoint.LockedError
	if _, err := Resume(Options{Dir: run, Open: openCPU}, nil); !errors.As(err, &locked) {
		t.Errorf("a second trainer got %v, want a LockedError", err)
	}
	if _, err := New(cfg, Options{Dir: run, Open: openCPU}); err == nil || !strings.Contains(err.Error(), "--resume") {
		t.Errorf("a new run over an old one got %v", err)
	}
}

// TestDamagedCheckpoint flips a bit in the newest checkpoint: resuming takes
// the one before, says so, and still ends like the unbroken run.
func TestDamagedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	whole, hurt := filepath.Join(dir, "whole"), filepath.Join(dir, "hurt")
	runAll(t, whole, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	tr, err := New(cfg, Options{Dir: hurt, Open: openCPU, Observer: Observer{Step: func(s runlog.Step, _ Pace) {
		if s.Step == 12 {
			cancel()
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	tr.Run(ctx)
	tr.Close()
	list, err := checkpoint.List(hurt)
	if err != nil || len(list) != 2 {
		t.Fatalf("checkpoints %v, %v", list, err)
	}
	newest := list[len(list)-1].Path
	b, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)*3/4] ^= 16
	if err := os.WriteFile(newest, b, 0o666); err != nil {
		t.Fatal(err)
	}
	var notices []string
	resumed, err := Resume(Options{Dir: hurt, Open: openCPU, Observer: Observer{Notice: func(s string) { notices = append(notices, s) }}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	if resumed.state.Step != list[0].Step {
		t.Errorf("resumed at step %d, want %d", resumed.state.Step, list[0].Step)
	}
	if !strings.Contains(strings.Join(notices, "\n"), filepath.Base(newest)) {
		t.Errorf("the damaged file was not named: %q", notices)
	}
	if _, err := resumed.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	sameRun(t, whole, hurt)
}

func TestTargetLoss(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.MaxSteps, cfg.EvalEvery, cfg.TargetLoss = 200, 4, 4.5
	res := runAll(t, filepath.Join(dir, "run"), cfg)
	if res.Reason != "target" || res.Steps >= 200 {
		t.Errorf("stopped by %q after %d steps, want the target loss", res.Reason, res.Steps)
	}
}

func TestLoadModel(t *testing.T) {
	dir := t.TempDir()
	res := runAll(t, filepath.Join(dir, "run"), tinyConfig(writeData(t, dir, 1)))
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
	if m.Tokenizer.VocabSize() != m.Params.Config().VocabSize {
		t.Errorf("tokenizer has %d ids, model %d", m.Tokenizer.VocabSize(), m.Params.Config().VocabSize)
	}
}

// TestNoGrowth trains a thousand steps and looks at the heap and at the
// backend's memory on the way: after the first hundred neither may grow. The
// bound leaves room for the Go runtime's own tables. One thread computes: each has
// scratch from its first piece of a product on, which for a second one on a busy machine
// may come after any number of steps.
func TestNoGrowth(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.Batch, cfg.Accum, cfg.MaxSteps, cfg.EvalEvery, cfg.CheckpointEvery = 1, 1, 1000, 100, 100
	var heap, device []int64
	var tr *Trainer
	oneThread := func() (op.Backend, error) { return cpu.New(cpu.Options{Threads: 1}) }
	opt := Options{Dir: filepath.Join(dir, "run"), Open: oneThread, Observer: Observer{Step: func(s runlog.Step, _ Pace) {
		if s.Step%100 == 0 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			now, _ := tr.backend.MemoryBytes()
			heap, device = append(heap, int64(m.HeapAlloc)), append(device, now)
		}
	}}}
	tr, err := New(cfg, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	info, err := tr.Info()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(heap) != 10 {
		t.Fatalf("%d samples", len(heap))
	}
	for i := range heap {
		if heap[i] > heap[1]+256<<10 {
			t.Errorf("after %d steps the heap has %d bytes, after 200 it had %d", 100*(i+1), heap[i], heap[1])
		}
		if device[i] != info.Plan.Total() {
			t.Errorf("after %d steps the device holds %d bytes, predicted %d", 100*(i+1), device[i], info.Plan.Total())
		}
	}
}
