package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/eval"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/train"
)

// smallRun trains a small model and returns its folder, its token file and the
// text behind it.
func smallRun(t *testing.T, more ...string) (run, bin, text string) {
	t.Helper()
	text, dir := writeCorpus(t), t.TempDir()
	tok := filepath.Join(dir, "t.json")
	bin, run = filepath.Join(dir, "d.bin"), filepath.Join(dir, "run")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	must(t, smallTrain(bin, run, more...)...)
	return run, bin, text
}

// evalJSON runs eval and decodes the last line that it prints.
func evalJSON[T any](t *testing.T, args ...string) (res T) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(must(t, append([]string{"eval", "--device", "cpu", "--json"}, args...)...)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &res); err != nil {
		t.Fatalf("%q: %v", lines[len(lines)-1], err)
	}
	return res
}

func near(t *testing.T, what string, got, want, bound float64) {
	t.Helper()
	if !(math.Abs(got-want) <= bound*math.Abs(want)) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// TestEvalText: without a stride eval agrees with training's own evaluation,
// and without a text it measures what training held out.
func TestEvalText(t *testing.T) {
	run, bin, text := smallRun(t, "--eval-tokens", "-1")
	plain := evalJSON[eval.PerplexityResult](t, run, "--data", bin)
	near(t, "training's evaluation", plain.LossNats, trainLoss(t, run, bin), 1e-6)
	if plain.Context != 32 || plain.Stride != 32 {
		t.Errorf("%+v", plain)
	}
	same := evalJSON[eval.PerplexityResult](t, run, "--data", bin, "--stride", "32", "--batch", "3")
	near(t, "stride of a whole row", same.LossNats, plain.LossNats, 1e-6)
	half := evalJSON[eval.PerplexityResult](t, run, "--text", text, "--stride", "16")
	if half.Tokens != plain.Tokens || half.Stride != 16 || half.LossNats == plain.LossNats {
		t.Errorf("stride 16: %+v, whole rows %+v", half, plain)
	}
	held := evalJSON[eval.PerplexityResult](t, run)
	log, err := os.ReadFile(filepath.Join(run, "log.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	last := 0.0
	for _, l := range strings.Split(strings.TrimSpace(string(log)), "\n") {
		var rec struct {
			ValLoss float64 `json:"val_loss"`
		}
		if json.Unmarshal([]byte(l), &rec) == nil && rec.ValLoss != 0 {
			last = rec.ValLoss
		}
	}
	near(t, "the run's last evaluation", held.LossNats, last, 1e-5)
	if out := must(t, "eval", run, "--device", "cpu"); !strings.Contains(out, "the last 5 %") || !strings.Contains(out, "perplexity") {
		t.Errorf("eval printed %q", out)
	}
}

// trainLoss is the loss that training's evaluation reports.
func trainLoss(t *testing.T, run, bin string) float64 {
	t.Helper()
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := cpu.New(cpu.Options{Threads: 1})
	fatal(err)
	defer b.Close()
	m, err := train.LoadModel(op.NewRunner(b), filepath.Join(run, train.ModelName), false)
	fatal(err)
	g, err := model.NewGraph(m.Params.Runner(), m.Params, model.TrainOptions{Batch: 8})
	fatal(err)
	d, err := corpus.Open(bin, corpus.OpenOptions{})
	fatal(err)
	defer d.Close()
	e, err := train.NewEvaluator(g, []corpus.Source{corpus.Whole(d)}, nil)
	fatal(err)
	res, err := e.Run(t.Context(), 0)
	fatal(err)
	return res.LossNats
}

// TestEvalTasks goes from a task file to accuracies, with every item's numbers.
func TestEvalTasks(t *testing.T) {
	run, _, _ := smallRun(t)
	file := filepath.Join(t.TempDir(), "choose.jsonl")
	tasks := `{"context": "the loom stands by", "choices": [" the window", " for i := range n", " İzmir'de"], "label": 0, "id": 7}
{"context": "a thread runs ", "choices": ["through", "yağmur"], "label": 0, "task": "short"}
{"context": "` + strings.Repeat("Ankara'da hava güzel ", 20) + `", "choices": ["İzmir'de", "xyzzy"], "label": 1, "task": "short"}
`
	if err := os.WriteFile(file, []byte(tasks), 0o666); err != nil {
		t.Fatal(err)
	}
	out := must(t, "eval", run, "--device", "cpu", "--tasks", file, "--json", "--per-item")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 4 {
		t.Fatalf("%d lines, want 3 items and a result:\n%s", len(lines), out)
	}
	var first itemLine
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	if first.Type != "item" || first.ID != "7" || first.Line != 1 || first.Task != "choose" || len(first.Choices) != 3 ||
		first.Choices[0].Bytes != len(" the window") || !(first.Choices[2].LogLikelihood < 0) {
		t.Errorf("first line %s", lines[0])
	}
	res := evalJSON[tasksResult](t, run, "--tasks", file)
	if res.All.N != 3 || len(res.Tasks) != 2 || res.Tasks[1].Task != "short" || res.Tasks[1].N != 2 || res.All.Cut != 1 || res.Choices != 7 {
		t.Errorf("result %+v", res)
	}
	table := must(t, "eval", run, "--device", "cpu", "--tasks", file, "--tasks", file)
	for _, want := range []string{"acc_norm", "choose", "short", "all", "6 items", "cut on the left"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

// TestEvalDump writes logits whose cross-entropy is the loss that eval reports.
func TestEvalDump(t *testing.T) {
	run, bin, _ := smallRun(t)
	path := filepath.Join(t.TempDir(), "logits.safetensors")
	must(t, "eval", run, "--device", "cpu", "--data", bin, "--dump-logits", path, "--max-tokens", "65")
	f, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Lookup("logits")
	if len(info.Shape) != 2 || info.Shape[0] != 65 || f.Meta()["context"] != "32" {
		t.Fatalf("logits %+v, metadata %v", info, f.Meta())
	}
	logits := make([]float32, info.Elements())
	if err := f.ReadFloat32("logits", logits); err != nil {
		t.Fatal(err)
	}
	raw := make([]byte, 65*4)
	if err := f.ReadBytes("tokens", raw); err != nil {
		t.Fatal(err)
	}
	V, sum := info.Shape[1], 0.0
	for i := range 64 {
		row, norm := logits[i*V:(i+1)*V], 0.0
		for _, l := range row {
			norm += math.Exp(float64(l))
		}
		sum += math.Log(norm) - float64(row[binary.LittleEndian.Uint32(raw[4*(i+1):])])
	}
	want := evalJSON[eval.PerplexityResult](t, run, "--data", bin, "--max-tokens", "64", "--batch", "2")
	if want.Tokens != 64 {
		t.Fatalf("%+v", want)
	}
	near(t, "loss from the logits", sum/64, want.LossNats, 1e-5)
}

func TestEvalErrors(t *testing.T) {
	run, bin, text := smallRun(t)
	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	if err := os.WriteFile(bad, []byte("\n{\"context\": \"a\"}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{run, "--tasks", bad}, exitFailed, "bad.jsonl:2: no field \"choices\""},
		{[]string{run, "--tasks", bad, "--text", text}, exitUsage, "--tasks goes with none of"},
		{[]string{run, "--data", bin, "--text", text}, exitUsage, "either --data"},
		{[]string{run, "--data", bin, "--stride", "33"}, exitUsage, "at most the context of 32"},
		{[]string{run, "--data", bin, "--stride", "-1"}, exitUsage, "--stride is -1"},
		{[]string{run, "--per-item"}, exitUsage, "--per-item needs"},
		{[]string{run, "--dump-logits", "x"}, exitUsage, "needs a text"},
		{[]string{filepath.Join(run, train.ModelName)}, exitUsage, "nothing to measure on"},
		{[]string{run, "--tail", "0.1", "--text", text}, exitUsage, "--tail is for a token file"},
	} {
		_, errOut, code := invoke(t, t.Context(), append([]string{"eval", "--device", "cpu"}, c.args...)...)
		if code != c.code || !strings.Contains(errOut, c.want) {
			t.Errorf("eval %v: exit code %d, %q; want %d, %q", c.args, code, errOut, c.code, c.want)
		}
	}
	if err := os.Remove(bin); err != nil {
		t.Fatal(err)
	}
	if _, errOut, code := invoke(t, t.Context(), "eval", "--device", "cpu", run); code != exitFailed || !strings.Contains(errOut, "held-out text") {
		t.Errorf("without the data: exit code %d, %q", code, errOut)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, errOut, code := invoke(t, ctx, "eval", "--device", "cpu", run, "--text", text); code != exitInterrupted {
		t.Errorf("interrupted: exit code %d, %q", code, errOut)
	}
}
