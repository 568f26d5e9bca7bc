package train

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/checkpoint"
	"tezgah/generate"
	"tezgah/model"
	"tezgah/op"
	"tezgah/runlog"
)

// loraConfig trains adapters on text, beside the weights of init.
func loraConfig(init, data string) Config {
	cfg := tinyConfig(data)
	cfg.Model, cfg.InitFrom, cfg.LoRA = model.Config{}, init, model.LoRA{Rank: 4, Targets: "q,v,down"}
	cfg.Schedule.LR, cfg.Schedule.MinLR = 2e-2, 2e-3
	return cfg
}

// tensorsOf reads every tensor of a model file.
func tensorsOf(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := checkpoint.OpenLLM(path)
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

// TestLoRARun trains adapters on text: the loss falls, the checkpoints hold
// adapters alone, the base in the run folder equals what training started
// from, and the finished model differs from it in the targets and nowhere else.
func TestLoRARun(t *testing.T) {
	base, data := finishedRun(t)
	run := filepath.Join(t.TempDir(), "lora")
	cfg := loraConfig(base, sailorData(t, data))
	res := runAll(t, run, cfg)
	l := losses(t, run)
	if l[len(l)-1] > l[0]-0.1 {
		t.Errorf("the loss went from %.3f to %.3f", l[0], l[len(l)-1])
	}
	start, kept, merged := tensorsOf(t, filepath.Join(base, ModelName)), tensorsOf(t, filepath.Join(run, BaseName)), tensorsOf(t, res.ModelPath)
	for name, b := range start {
		if !bytes.Equal(b, kept[name]) {
			t.Errorf("%s changed in the base model", name)
		}
		target := strings.HasSuffix(name, ".wq") || strings.HasSuffix(name, ".wv") || strings.HasSuffix(name, ".w_down")
		if bytes.Equal(b, merged[name]) == target {
			t.Errorf("%s: is a target: %v, changed: %v", name, target, !target)
		}
	}
	if len(kept) != len(start) || len(merged) != len(start) {
		t.Errorf("base has %d tensors, model %d, want %d", len(kept), len(merged), len(start))
	}
	adapterFile(t, run)
}

// adapterFile looks at the newest checkpoint of a run with targets q, v, down.
func adapterFile(t *testing.T, run string) {
	t.Helper()
	c, _, err := checkpoint.Latest(run)
	if err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.OpenLLM(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, want := string(f.Header.LoRA), `{"rank":4,"alpha":8,"targets":["wq","wv","w_down"]}`; got != want {
		t.Errorf("the header says %s, want %s", got, want)
	}
	if len(f.Weights()) != 2*2*3 || len(f.Moments()) != 2*2*2*3 {
		t.Errorf("%d weights and %d moments, want 12 and 24", len(f.Weights()), len(f.Moments()))
	}
	for name, shape := range map[string][]int{"layers.1.wq.lora_a": {32, 4}, "layers.1.wv.lora_b": {4, 16}, "layers.0.w_down.lora_a": {64, 4}} {
		if i, ok := f.Lookup(name); !ok || i.Shape[0] != shape[0] || i.Shape[1] != shape[1] {
			t.Errorf("%s has shape %v, want %v", name, i.Shape, shape)
		}
	}
	base, err := os.Stat(filepath.Join(run, BaseName))
	if err != nil || c.SizeBytes > base.Size() {
		t.Errorf("the checkpoint has %d bytes, the base model %d, %v", c.SizeBytes, base.Size(), err)
	}
}

// TestLoRAResume: a run that is broken off, and loses a checkpoint and the
// file it began with, ends like one that is not.
func TestLoRAResume(t *testing.T) {
	base, data := finishedRun(t)
	for _, moments8 := range []bool{false, true} {
		init, dir := copyFile(t, filepath.Join(base, ModelName)), t.TempDir()
		cfg := loraConfig(init, data)
		cfg.Moments8 = moments8
		whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
		runAll(t, whole, cfg)
		resume := func(o Options) (*Trainer, error) { return Resume(o, nil) }
		runPart(t, func(o Options) (*Trainer, error) { return New(cfg, o) }, parts, 7)
		if err := os.Remove(init); err != nil {
			t.Fatal(err)
		}
		runPart(t, resume, parts, 12)
		removeNewest(t, parts)
		runPart(t, resume, parts, 0)
		sameRun(t, whole, parts)
		a, b := tensorsOf(t, filepath.Join(whole, ModelName)), tensorsOf(t, filepath.Join(parts, ModelName))
		for name := range a {
			if !bytes.Equal(a[name], b[name]) {
				t.Errorf("%s of the finished models differs", name)
			}
		}
	}
}

// TestLoRASaveModel writes the merged model in mid-run: training goes on as if
// nothing had happened, and the model is that of its step.
func TestLoRASaveModel(t *testing.T) {
	base, data := finishedRun(t)
	dir := t.TempDir()
	cfg := loraConfig(base, data)
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	runAll(t, whole, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tr, err := New(cfg, Options{Dir: parts, Open: openCPU, Observer: Observer{Step: func(s runlog.Step, _ Pace) {
		if s.Step == 12 {
			cancel()
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	tr.Run(ctx)
	path, err := tr.SaveModel()
	if err != nil {
		t.Fatal(err)
	}
	first := tensorsOf(t, path)
	if _, err := tr.SaveModel(); err != nil {
		t.Fatal(err)
	}
	for name, b := range tensorsOf(t, path) {
		if !bytes.Equal(b, first[name]) {
			t.Errorf("%s differs when the model is saved again", name)
		}
	}
	want := say(t, checkpoint.CheckpointPath(parts, 12))
	if got := say(t, path); got != want {
		t.Errorf("the model says %q, the checkpoint of its step %q", got, want)
	}
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	sameRun(t, whole, parts)
}

// TestLoRADeviceLost loses the device in mid-run.
func TestLoRADeviceLost(t *testing.T) {
	base, data := finishedRun(t)
	dir := t.TempDir()
	cfg := loraConfig(base, data)
	whole, broken := filepath.Join(dir, "whole"), filepath.Join(dir, "broken")
	runAll(t, whole, cfg)
	left := 150
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
	if left > 0 {
		t.Fatal("the device was not lost")
	}
	sameRun(t, whole, broken)
}

// say continues a prompt greedily.
func say(t *testing.T, path string) string {
	t.Helper()
	b, err := openCPU()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := op.NewRunner(b)
	m, err := LoadModel(r, path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Params.Close()
	dec, err := model.NewDecoder(r, m.Params, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	res, err := generate.Generator{Decoder: dec, Tokenizer: m.Tokenizer}.Generate(context.Background(), "the weaver",
		generate.Options{MaxTokens: 40, IgnoreEnd: true}, func(generate.Piece) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return res.Text
}

// TestLoRAOpens: the run opens while it is unfinished, from its newest
// checkpoint, and that says what the finished model says, which is not what
// the base says. Without the base it is refused by name.
func TestLoRAOpens(t *testing.T) {
	base, data := finishedRun(t)
	run := filepath.Join(t.TempDir(), "lora")
	cfg := loraConfig(base, sailorData(t, data))
	cfg.MaxSteps = 40
	runAll(t, run, cfg)
	finished, _, err := ModelFile(run)
	if err != nil || filepath.Base(finished) != ModelName {
		t.Fatalf("the finished run opens as %s, %v", finished, err)
	}
	want := say(t, finished)
	if err := os.Remove(finished); err != nil {
		t.Fatal(err)
	}
	newest, _, err := ModelFile(run)
	if err != nil {
		t.Fatal(err)
	}
	if got := say(t, newest); got != want {
		t.Errorf("the adapters say %q, the merged model %q", got, want)
	}
	if say(t, filepath.Join(run, BaseName)) == want {
		t.Error("the base model says the same: the test shows nothing")
	}

	cfg.InitFrom, cfg.LoRA, cfg.MaxSteps = run, model.LoRA{Rank: 2}, 4
	before := losses(t, run)
	next := filepath.Join(t.TempDir(), "next")
	runAll(t, next, cfg)
	if after := losses(t, next); after[0] > before[len(before)-1]+0.2 {
		t.Errorf("training that starts from adapters begins at %.3f, the adapters ended at %.3f", after[0], before[len(before)-1])
	}
	if err := os.Remove(filepath.Join(run, BaseName)); err != nil {
		t.Fatal(err)
	}
	b, err := openCPU()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := LoadModel(op.NewRunner(b), newest, false); err == nil || !strings.Contains(err.Error(), BaseName) {
		t.Errorf("without the base: got %v, want its name", err)
	}
}

// TestLoRAMemory: what is planned is what is allocated, and gradients and
// moments shrink to those of the adapters.
func TestLoRAMemory(t *testing.T) {
	base, data := finishedRun(t)
	rows := map[bool]map[string]int64{}
	for _, lora := range []bool{false, true} {
		cfg := loraConfig(base, data)
		if !lora {
			cfg.LoRA = model.LoRA{}
		}
		tr, err := New(cfg, Options{Dir: filepath.Join(t.TempDir(), "run"), Open: openCPU})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		info, err := tr.Info()
		if err != nil {
			t.Fatal(err)
		}
		if now, _ := tr.backend.MemoryBytes(); now != info.Plan.Total() {
			t.Errorf("lora %v: %d bytes allocated, %d planned", lora, now, info.Plan.Total())
		}
		if (info.Trained < info.Params) != lora {
			t.Errorf("lora %v: %d of %d parameters are trained", lora, info.Trained, info.Params)
		}
		rows[lora] = map[string]int64{}
		for _, r := range info.Plan.Rows {
			rows[lora][r.Label] = r.Bytes
		}
	}
	for _, label := range []string{"gradients", "moments"} {
		if full, low := rows[false][label], rows[true][label]; low == 0 || low > full/4 {
			t.Errorf("%s take %d bytes with adapters, %d without", label, low, full)
		}
	}
}

// TestLoRAHeader takes every kind of targets to the header and back.
func TestLoRAHeader(t *testing.T) {
	c := tinyConfig("").Model
	c.VocabSize = 300
	for _, targets := range []string{"", "all", "attn", "ffn", "q", "down,o", "gate,up,k,v"} {
		want := model.LoRA{Rank: 3, Alpha: 5, Targets: targets}.WithDefaults()
		raw, err := loraHeader(c, want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseLoRAHeader(raw, c); err != nil || got != want {
			t.Errorf("%q became %s and then %+v, %v", targets, raw, got, err)
		}
	}
	for _, raw := range []string{`{}`, `{"rank":2,"alpha":1}`, `{"rank":-1,"alpha":1,"targets":["wq"]}`, `{"rank":1,"alpha":1,"targets":["wx"]}`, `[]`} {
		if l, err := parseLoRAHeader([]byte(raw), c); err == nil {
			t.Errorf("%s was read as %+v", raw, l)
		}
	}
}

// TestLoRAChats trains adapters on conversations with a vocabulary that grows;
// the run is broken off before and after its first checkpoint and ends like one
// that is not. The finished model speaks the template.
func TestLoRAChats(t *testing.T) {
	base, _ := finishedRun(t)
	dir := t.TempDir()
	cfg := sftConfig(base, writeChats(t, dir, 60))
	cfg.LoRA, cfg.MaxSteps, cfg.Schedule.LR, cfg.Schedule.MinLR = model.LoRA{Rank: 16}, 24, 1e-2, 1e-3
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	res := runAll(t, whole, cfg)
	if log, err := os.ReadFile(filepath.Join(whole, runlog.FileName)); err != nil || !bytes.Contains(log, []byte("fine-tune all weights first")) {
		t.Errorf("the log does not say that the added tokens stay frozen, %v", err)
	}
	l := losses(t, whole)
	// The frozen embedding of this tiny model bounds its logits: 3.2 is about
	// what any adapter reaches.
	if l[len(l)-1] > l[0]-0.25 {
		t.Errorf("the loss went from %.3f to %.3f", l[0], l[len(l)-1])
	}
	resume := func(o Options) (*Trainer, error) { return Resume(o, nil) }
	tr, err := New(cfg, Options{Dir: parts, Open: openCPU}) // dies before it takes a step
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	runPart(t, resume, parts, 13)
	removeNewest(t, parts)
	runPart(t, resume, parts, 0)
	sameRun(t, whole, parts)
	for _, path := range []string{res.ModelPath, filepath.Join(parts, BaseName)} {
		if h := headerOf(t, path); h.ChatTemplate != "chatml" || !bytes.Contains(h.Tokenizer, []byte("<|im_end|>")) || h.LoRA != nil {
			t.Errorf("%s: template %q, adapters %s", path, h.ChatTemplate, h.LoRA)
		}
	}
}
