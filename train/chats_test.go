package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/runlog"
	"tezgah/tensor"
)

// writeChats makes n conversations in the words of writeText, whose answers
// follow from the questions.
func writeChats(t testing.TB, dir string, n int) string {
	t.Helper()
	r := tensor.NewRNG(3, 7)
	who := []string{"the weaver", "a sailor", "the teacher"}
	what := []string{"the net", "a red boat", "bread"}
	var b bytes.Buffer
	for i := range n {
		x := r.Block(uint64(i))
		w, o := who[x[0]%3], what[x[1]%3]
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"%s paints %s. again?"},{"role":"assistant","content":"%s paints %s."}]}`+"\n", w, o, w, o)
	}
	path := filepath.Join(dir, "chats.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// sftConfig fine-tunes init for a few steps.
func sftConfig(init, chats string) Config {
	return Config{
		Chats: []string{chats}, InitFrom: init, ValFraction: 0.2,
		Batch: 2, Context: 48, Accum: 2, Seed: 5, MaxSteps: 16, EvalEvery: 8, EvalTokens: -1, CheckpointEvery: 5, Keep: 3,
		Optim:    optim.Defaults(),
		Schedule: optim.Schedule{Kind: "cosine", LR: 3e-3, MinLR: 3e-4, Warmup: 2},
	}
}

// TestSFTLearns fine-tunes a tiny model whose tokenizer lacks the template's
// tokens: the loss falls, the vocabulary grows, and the model carries the new
// tokenizer and the template.
func TestSFTLearns(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	cfg := sftConfig(run, writeChats(t, dir, 200))
	cfg.MaxSteps = 60
	var notices []string
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "chat"), Open: openCPU, Observer: Observer{Notice: func(s string) { notices = append(notices, s) }}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	info, err := tr.Info()
	if err != nil {
		t.Fatal(err)
	}
	if info.Chats == nil || info.Chats.Template != "chatml" || info.Chats.Train.Conversations+info.Chats.Held.Conversations != 200 || info.Chats.Held.Conversations == 0 {
		t.Errorf("the run describes its conversations as %+v", info.Chats)
	}
	res, err := tr.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(notices, "\n"); !strings.Contains(s, "<|im_start|>, <|im_end|>") || !strings.Contains(s, "chatml") || strings.Contains(s, "--lora") {
		t.Errorf("notices %q do not name the added tokens", notices)
	}
	log, err := os.ReadFile(filepath.Join(tr.opt.Dir, runlog.FileName))
	if err != nil || !bytes.Contains(log, []byte(`"message":"the tokenizer gets`)) {
		t.Errorf("the log does not name the added tokens, %v", err)
	}
	l := losses(t, tr.opt.Dir)
	if first, last := l[0], l[len(l)-1]; !(first > 2 && last < first/2 && res.Val.LossNats < first/2 && res.Val.BitsPerByte > 0) {
		t.Errorf("loss went from %.3f to %.3f, validation %+v", first, last, res.Val)
	}
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
	tmpl, err := chat.Lookup(m.ChatTemplate)
	if err != nil {
		t.Fatal(err)
	}
	if err := tmpl.Check(m.Tokenizer); err != nil {
		t.Error(err)
	}
	if got := m.Params.Config().VocabSize; got != m.Tokenizer.VocabSize() {
		t.Errorf("model of %d rows for %d ids", got, m.Tokenizer.VocabSize())
	}
}

// TestSFTLoss computes the loss of the first step by hand: every conversation
// alone through the model, written with the template's tokens spelled out here,
// and the mean of −log p over the assistant's words and the end after them. The
// step sees the same conversations packed into rows, in micro-batches.
func TestSFTLoss(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	chats := writeChats(t, dir, 30)
	cfg := sftConfig(run, chats)
	cfg.ValData, cfg.Batch = chats, 1
	probe, err := New(cfg, Options{Dir: filepath.Join(dir, "probe"), Open: openCPU})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Accum = int(probe.data.chats.Train.Rows) // one step is one pass
	probe.Close()
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "chat"), Open: openCPU})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	want, counted := lossByHand(t, tr, chats)
	rec, err := tr.step()
	if err != nil {
		t.Fatal(err)
	}
	if rec.Tokens != int64(counted) {
		t.Errorf("the step learns %d tokens, want %d", rec.Tokens, counted)
	}
	// float32 sums of about a thousand losses near 5, in another order.
	if math.Abs(rec.Loss-want) > 1e-4 {
		t.Errorf("the step's loss is %.6f, by hand %.6f", rec.Loss, want)
	}
	unmasked := tr.graph.Rows() * cfg.Accum
	if counted > unmasked/2 {
		t.Errorf("%d of %d positions count: the mask shows nothing", counted, unmasked)
	}
}

// lossByHand is the mean loss of the learned tokens of all conversations.
func lossByHand(t *testing.T, tr *Trainer, chats string) (mean float64, counted int) {
	t.Helper()
	const T = 48
	g, err := model.NewGraph(tr.runner, tr.params, model.TrainOptions{Batch: 1, Context: T})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	content, err := os.ReadFile(chats)
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for line := range bytes.Lines(content) {
		ids, from := spelledOut(t, tr.data.tokenizer, line)
		row := make([]int32, T)
		copy(row, ids)
		V := tr.cfg.Model.VocabSize
		err := g.Logits(row, nil, func(first int, logits []float32) error {
			for i := from; i < len(ids); i++ {
				if at := i - 1 - first; at >= 0 && at < len(logits)/V {
					sum -= logProb(logits[at*V:(at+1)*V], ids[i])
					counted++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sum / float64(counted), counted
}

// spelledOut writes a question and its answer in ChatML; the answer begins at
// token from.
func spelledOut(t *testing.T, tok *bpe.Tokenizer, line []byte) (ids []int32, from int) {
	t.Helper()
	var c struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(line, &c); err != nil {
		t.Fatal(err)
	}
	special := func(s string) int32 {
		id, ok := tok.SpecialID(s)
		if !ok {
			t.Fatalf("the tokenizer has no %s", s)
		}
		return id
	}
	ids = append(ids, special("<|im_start|>"))
	ids = tok.Encode(ids, []byte("user\n"))
	ids = tok.Encode(ids, []byte(c.Messages[0].Content))
	ids = append(ids, special("<|im_end|>"))
	ids = tok.Encode(ids, []byte("\n"))
	ids = append(ids, special("<|im_start|>"))
	ids = tok.Encode(ids, []byte("assistant\n"))
	from = len(ids)
	ids = tok.Encode(ids, []byte(c.Messages[1].Content))
	return append(ids, special("<|im_end|>")), from
}

// logProb is the logarithm of the softmax at id.
func logProb(logits []float32, id int32) float64 {
	most := math.Inf(-1)
	for _, x := range logits {
		most = max(most, float64(x))
	}
	var sum float64
	for _, x := range logits {
		sum += math.Exp(float64(x) - most)
	}
	return float64(logits[id]) - most - math.Log(sum)
}

// TestSFTResume breaks a run twice; once the last checkpoint is lost.
func TestSFTResume(t *testing.T) {
	run, _ := finishedRun(t)
	init := copyFile(t, filepath.Join(run, ModelName))
	dir := t.TempDir()
	cfg := sftConfig(init, writeChats(t, dir, 60))
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	runAll(t, whole, cfg)
	resume := func(o Options) (*Trainer, error) { return Resume(o, nil) }
	runPart(t, func(o Options) (*Trainer, error) { return New(cfg, o) }, parts, 7)
	if err := os.Remove(init); err != nil { // not needed any more
		t.Fatal(err)
	}
	runPart(t, resume, parts, 12)
	removeNewest(t, parts)
	runPart(t, resume, parts, 0)
	sameRun(t, whole, parts)
}

// TestSFTChangedChats: a run does not go on with other conversations.
func TestSFTChangedChats(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	chats := writeChats(t, dir, 60)
	parts := filepath.Join(dir, "parts")
	runPart(t, func(o Options) (*Trainer, error) { return New(sftConfig(run, chats), o) }, parts, 4)
	writeChats(t, dir, 61)
	if _, err := Resume(Options{Dir: parts, Open: openCPU}, nil); err == nil || !strings.Contains(err.Error(), "began with") {
		t.Errorf("got %v, want a refusal", err)
	}
	writeChats(t, dir, 60)
	runPart(t, func(o Options) (*Trainer, error) { return Resume(o, nil) }, parts, 0)
}

// TestSFTAgain fine-tunes a chat model: nothing is added, and its own template
// is the default. Continued training on text keeps the template.
func TestSFTAgain(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	chats := writeChats(t, dir, 40)
	cfg := sftConfig(run, chats)
	cfg.Template, cfg.MaxSteps = "llama3", 3
	first := runAll(t, filepath.Join(dir, "first"), cfg)
	cfg.Template, cfg.InitFrom = "", first.ModelPath
	second := runAll(t, filepath.Join(dir, "second"), cfg)
	a, b := headerOf(t, first.ModelPath), headerOf(t, second.ModelPath)
	if a.ChatTemplate != "llama3" || b.ChatTemplate != "llama3" || !bytes.Equal(a.Tokenizer, b.Tokenizer) || !bytes.Equal(a.Config, b.Config) {
		t.Errorf("templates %q and %q, configurations %s and %s", a.ChatTemplate, b.ChatTemplate, a.Config, b.Config)
	}
}

func headerOf(t *testing.T, path string) checkpoint.Header {
	t.Helper()
	f, err := checkpoint.OpenLLM(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Header
}

// TestSFTFromScratch trains a new model on conversations with a tokenizer.
func TestSFTFromScratch(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	tokenizer := filepath.Join(dir, "t.json")
	if err := os.WriteFile(tokenizer, headerOf(t, filepath.Join(run, ModelName)).Tokenizer, 0o666); err != nil {
		t.Fatal(err)
	}
	cfg := sftConfig("", writeChats(t, dir, 40))
	cfg.Tokenizer, cfg.Model, cfg.MaxSteps = tokenizer, tinyConfig("").Model, 3
	res := runAll(t, filepath.Join(dir, "chat"), cfg)
	if h := headerOf(t, res.ModelPath); h.ChatTemplate != "chatml" || !bytes.Contains(h.Tokenizer, []byte("<|im_end|>")) {
		t.Errorf("the model's template is %q", h.ChatTemplate)
	}
}

// TestSFTEpochs: without another limit the passes over the rows decide.
func TestSFTEpochs(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	cfg := sftConfig(run, writeChats(t, dir, 40))
	cfg.MaxSteps, cfg.Epochs, cfg.Schedule.Warmup = 0, 2.5, 0
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "chat"), Open: openCPU})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	rows := float64(tr.data.chats.Train.Rows)
	if got, want := tr.cfg.MaxSteps, int64(math.Ceil(2.5*rows/4)); got != want {
		t.Errorf("%d steps for 2.5 passes over %v rows in steps of 4, want %d", got, rows, want)
	}
}

func TestSFTRefusals(t *testing.T) {
	run, data := finishedRun(t)
	dir := t.TempDir()
	chats := writeChats(t, dir, 40)
	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(bad, []byte("{\"messages\":[{\"role\":\"robot\",\"content\":\"x\"}]}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	one := filepath.Join(dir, "one.jsonl")
	line := `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}` + "\n"
	if err := os.WriteFile(one, []byte(line+line), 0o666); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"both kinds of data":   {func(c *Config) { c.Data = []DataSource{{Path: data}} }, "both"},
		"nothing to start at":  {func(c *Config) { c.InitFrom, c.Model = "", tinyConfig("").Model }, "--init"},
		"unknown template":     {func(c *Config) { c.Template = "chatlm" }, "chatml"},
		"template for text":    {func(c *Config) { c.Chats, c.Data, c.Template = nil, []DataSource{{Path: data}}, "chatml" }, "template"},
		"missing file":         {func(c *Config) { c.Chats = []string{dir + "/none.jsonl"} }, "none.jsonl"},
		"unknown role":         {func(c *Config) { c.Chats = []string{bad} }, "robot"},
		"context too short":    {func(c *Config) { c.Context = 4 }, "context"},
		"nothing to hold out":  {func(c *Config) { c.Chats = []string{one} }, "--val-data"},
		"missing val data":     {func(c *Config) { c.ValData = dir + "/none.jsonl" }, "none.jsonl"},
		"missing start":        {func(c *Config) { c.InitFrom = dir + "/none" }, "none"},
		"no passes":            {func(c *Config) { c.Epochs = -1 }, "epochs"},
		"adapters of nothing":  {func(c *Config) { c.Chats, c.InitFrom, c.Data = nil, "", []DataSource{{Path: data}}; c.LoRA.Rank = 4 }, "lora"},
		"adapters without aim": {func(c *Config) { c.LoRA = model.LoRA{Rank: 4, Targets: "x"} }, "target"},
		"adapters too large":   {func(c *Config) { c.LoRA.Rank = 4000 }, "rank"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sftConfig(run, chats)
			c.change(&cfg)
			out := filepath.Join(t.TempDir(), "run")
			tr, err := New(cfg, Options{Dir: out, Open: openCPU})
			if err == nil {
				tr.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not mention %q", err, c.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("a refused run left a folder behind")
			}
		})
	}
}

// TestSFTSkipBad: broken lines are an error that says how to go on, or are
// counted; a resumed run leaves out the same.
func TestSFTSkipBad(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	chats := writeChats(t, dir, 40)
	good, err := os.ReadFile(chats)
	if err != nil {
		t.Fatal(err)
	}
	broken := "{\"messages\":[{\"role\":\"robot\",\"content\":\"x\"}]}\nnot JSON\n"
	if err := os.WriteFile(chats, append([]byte(broken), good...), 0o666); err != nil {
		t.Fatal(err)
	}
	cfg := sftConfig(run, chats)
	out := filepath.Join(dir, "chat")
	if _, err := New(cfg, Options{Dir: out, Open: openCPU}); err == nil || !strings.Contains(err.Error(), "--skip-bad") || !strings.Contains(err.Error(), "robot") {
		t.Errorf("got %v, want a refusal that names the line and --skip-bad", err)
	}
	cfg.SkipBad = true
	var notices []string
	notice := Observer{Notice: func(s string) { notices = append(notices, s) }}
	runPart(t, func(o Options) (*Trainer, error) {
		o.Observer.Notice = notice.Notice
		tr, err := New(cfg, o)
		if err == nil && (tr.data.chats.Bad != 2 || tr.data.chats.Train.Conversations+tr.data.chats.Held.Conversations != 40) {
			t.Errorf("read %+v", tr.data.chats)
		}
		return tr, err
	}, out, 4)
	if !strings.Contains(strings.Join(notices, "\n"), "left out: 2") {
		t.Errorf("notices %q", notices)
	}
	runPart(t, func(o Options) (*Trainer, error) { return Resume(o, nil) }, out, 0)
}

// TestSFTInterruptedReading: a run that is interrupted while it reads leaves
// nothing behind, and a folder that was there as it was.
func TestSFTInterruptedReading(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	cfg := sftConfig(run, writeChats(t, dir, 40))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	there := filepath.Join(dir, "there")
	if err := os.Mkdir(there, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{filepath.Join(dir, "new"), there} {
		if _, err := New(cfg, Options{Dir: out, Open: openCPU, Context: ctx}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", out, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("the new folder was left behind")
	}
	if list, err := os.ReadDir(there); err != nil || len(list) > 0 {
		t.Errorf("the old folder holds %v, %v", list, err)
	}
}

// TestHeldOutChats: the held-out conversations of a finished run give its last
// validation loss again, whose bytes are those of the answers; other
// conversations are refused.
func TestHeldOutChats(t *testing.T) {
	run, _ := finishedRun(t)
	dir := t.TempDir()
	cfg := sftConfig(run, writeChats(t, dir, 60))
	res := runAll(t, filepath.Join(dir, "chat"), cfg)
	cfg, err := LoadConfig(filepath.Join(dir, "chat"))
	if err != nil {
		t.Fatal(err)
	}
	checkHeldOut(t, cfg, res)
	writeChats(t, dir, 61)
	if _, _, err := HeldOutChats(context.Background(), cfg, tokenizerIn(t, res.ModelPath), 48); err == nil || !strings.Contains(err.Error(), "began with") {
		t.Errorf("other conversations: %v", err)
	}
}

func tokenizerIn(t *testing.T, path string) *bpe.Tokenizer {
	t.Helper()
	tok, _, err := ModelTokenizer(path)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func checkHeldOut(t *testing.T, cfg Config, res Result) {
	t.Helper()
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
	w, lens, err := HeldOutChats(context.Background(), cfg, m.Tokenizer, 48)
	if err != nil {
		t.Fatal(err)
	}
	g, err := model.NewGraph(m.Params.Runner(), m.Params, model.TrainOptions{Batch: 3, Context: 48, DocMask: true})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	got, err := NewWindowsEvaluator(g, []Windows{w}, lens).Run(context.Background(), 0)
	if err != nil || got.Tokens != res.Val.Tokens || math.Abs(got.LossNats-res.Val.LossNats) > 1e-6 || got.Bytes != res.Val.Bytes {
		t.Errorf("measured %+v, %v; training %+v", got, err, res.Val)
	}
	if want := answerBytes(t, cfg.Chats[0]); got.Bytes == 0 || got.Bytes >= want {
		t.Errorf("%d bytes of %d are held out", got.Bytes, want)
	}
	// All of them as a file to measure on: each byte of each answer counts once.
	cfg.ValData, cfg.ChatsHash = cfg.Chats[0], ""
	const T = 100 // no conversation is cut
	if w, lens, err = HeldOutChats(context.Background(), cfg, m.Tokenizer, T); err != nil {
		t.Fatal(err)
	}
	tokens, targets, doc := make([]int32, T), make([]int32, T), make([]int32, T)
	var all int64
	for row := range w.Count() {
		if err := w.Read(row, tokens, targets, doc); err != nil {
			t.Fatal(err)
		}
		all += corpus.BytesOf(targets, lens)
	}
	if want := answerBytes(t, cfg.Chats[0]); all != want {
		t.Errorf("%d bytes, want the %d of the answers", all, want)
	}
}

// answerBytes is the length of all answers of a file.
func answerBytes(t *testing.T, chats string) (n int64) {
	t.Helper()
	content, err := os.ReadFile(chats)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var c struct{ Messages []struct{ Content string } }
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		n += int64(len(c.Messages[1].Content))
	}
	return n
}
