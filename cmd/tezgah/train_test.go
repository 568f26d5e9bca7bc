package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/model"
	"tezgah/runlog"
)

// writeTestChats makes a file of short conversations.
func writeTestChats(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for i := range 40 {
		city := []string{"Ankara", "İzmir", "Bursa"}[i%3]
		fmt.Fprintf(&b, `{"messages":[{"role":"user","content":"%s'da hava nasıl? %d"},{"role":"assistant","content":"%s'da hava güzel"}]}`+"\n", city, i, city)
	}
	path := filepath.Join(t.TempDir(), "chats.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// pipeIn gives the test standard input to read.
func pipeIn(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdin
	os.Stdin = f
	t.Cleanup(func() { os.Stdin = old; f.Close() })
}

// baseRun trains a small model with the commands that users type.
func baseRun(t *testing.T) (run, bin string) {
	t.Helper()
	text, dir := writeCorpus(t), t.TempDir()
	tok := filepath.Join(dir, "t.json")
	bin, run = filepath.Join(dir, "d.bin"), filepath.Join(dir, "run")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	must(t, smallTrain(bin, run)...)
	return run, bin
}

// onceStarted is a context that ends when a run has begun, so that the run
// saves before its first step.
type onceStarted struct {
	context.Context
	run string
}

func (c onceStarted) Err() error {
	if isFile(filepath.Join(c.run, "config.json")) {
		return context.Canceled
	}
	return nil
}

// TestFineTune walks from a base model to one that chats, with all weights and
// with adapters, through an interruption.
func TestFineTune(t *testing.T) {
	base, _ := baseRun(t)
	chats := writeTestChats(t)
	for _, lora := range []string{"", "r=4,targets=q,v", "targets=attn"} {
		out := filepath.Join(t.TempDir(), "chat")
		args := []string{"train", "--sft", chats, "--init", base, "--out", out, "--device", "cpu", "--batch", "2", "--context", "64", "--epochs", "3"}
		if lora != "" {
			args = append(args, "--lora", lora)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, errOut, code := invoke(t, ctx, args...); code != exitInterrupted || isDir(out) {
			t.Fatalf("interrupted while reading: exit code %d, left a folder: %v\n%s", code, isDir(out), errOut)
		}
		_, errOut, code := invoke(t, onceStarted{context.Background(), out}, args...)
		if code != exitInterrupted || !strings.Contains(errOut, "<|im_start|>") || !strings.Contains(errOut, "conversations held out") {
			t.Fatalf("exit code %d\n%s", code, errOut)
		}
		if strings.Contains(errOut, "adapters ") != (lora != "") {
			t.Errorf("lora %q: %s", lora, errOut)
		}
		if lora != "" { // an unfinished run of adapters opens
			must(t, "generate", out, "--device", "cpu", "--max-tokens", "4")
			checkpoints, err := filepath.Glob(filepath.Join(out, "step-*.llm"))
			if err != nil || len(checkpoints) != 1 {
				t.Fatalf("checkpoints %v, %v", checkpoints, err)
			}
			if ids := must(t, "tokenizer", "encode", "--tokenizer", checkpoints[0], chats); len(strings.Fields(ids)) < 100 {
				t.Errorf("the tokenizer of a checkpoint makes %q", ids)
			}
			pipeIn(t, "Ankara'da hava nasıl?\n")
			must(t, "chat", out, "--device", "cpu", "--max-tokens", "4")
		}
		lines := strings.Split(strings.TrimSpace(must(t, "train", "--resume", out, "--device", "cpu", "--json")), "\n")
		var last struct {
			Type string
			Step int64
		}
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Type != "done" || last.Step < 3 {
			t.Errorf("the last line is %s", lines[len(lines)-1])
		}
		must(t, "generate", out, "--device", "cpu", "--max-tokens", "4")
		if !runlog.HasTensorBoard(out) {
			t.Error("no event files")
		}
		checkEvalChats(t, out, lines)
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// checkEvalChats: eval of a run on conversations gives the last validation loss
// in its log.
func checkEvalChats(t *testing.T, run string, log []string) {
	t.Helper()
	var last struct {
		ValLoss float64 `json:"val_loss"`
	}
	for _, l := range log {
		if strings.Contains(l, `"val_loss"`) {
			if err := json.Unmarshal([]byte(l), &last); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := evalJSON[chatsResult](t, run)
	near(t, "held-out conversations", got.LossNats, last.ValLoss, 1e-5)
	if got.Conversations < 1 || got.Rows < 1 || got.Context != 64 || got.BitsPerByte <= 0 {
		t.Errorf("eval says %+v", got)
	}
	if out := must(t, "eval", run, "--device", "cpu"); !strings.Contains(out, "conversations held out") || !strings.Contains(out, "learned") {
		t.Errorf("eval printed %q", out)
	}
	refused(t, exitUsage, []string{"--stride"}, "eval", run, "--stride", "8")
}

// TestSkipBad: --skip-bad trains on the lines that are whole, and says how many
// are not.
func TestSkipBad(t *testing.T) {
	base, bin := baseRun(t)
	chats := writeTestChats(t)
	f, err := os.OpenFile(chats, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("{broken\n")
	}
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "chat")
	args := []string{"train", "--sft", chats, "--init", base, "--out", out, "--device", "cpu", "--batch", "2", "--context", "64", "--max-steps", "2"}
	refused(t, exitFailed, []string{"chats.jsonl:41", "--skip-bad"}, args...)
	if _, errOut, code := invoke(t, context.Background(), append(args, "--skip-bad")...); code != exitDone || !strings.Contains(errOut, "left out: 1") {
		t.Errorf("exit code %d, %s", code, errOut)
	}
	must(t, "eval", out, "--device", "cpu")
	refused(t, exitUsage, []string{"--sft"}, "train", "--data", bin, "--out", filepath.Join(t.TempDir(), "x"), "--skip-bad")
}

// TestTensorBoardFlag: --tensorboard=false leaves the event files out, also
// when the run is resumed without it.
func TestTensorBoardFlag(t *testing.T) {
	text, dir := writeCorpus(t), t.TempDir()
	tok, bin, run := filepath.Join(dir, "t.json"), filepath.Join(dir, "d.bin"), filepath.Join(dir, "run")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	must(t, smallTrain(bin, run, "--tensorboard=false")...)
	must(t, "train", "--resume", run, "--max-steps", "14", "--device", "cpu")
	if runlog.HasTensorBoard(run) {
		t.Error("there are event files")
	}
	must(t, "train", "--resume", run, "--max-steps", "15", "--device", "cpu", "--tensorboard")
	if !runlog.HasTensorBoard(run) {
		t.Error("there are no event files")
	}
}

// TestFineTuneMistakes: what does not go together is wrong usage, and the
// answer says what to give.
func TestFineTuneMistakes(t *testing.T) {
	base, bin := baseRun(t)
	chats, dir := writeTestChats(t), t.TempDir()
	for name, c := range map[string]struct {
		code int
		want string
		args []string
	}{
		"chats and text":    {exitUsage, "--init", []string{"--sft", chats, "--data", bin, "--init", base}},
		"no model":          {exitUsage, "--init", []string{"--sft", chats}},
		"two tokenizers":    {exitUsage, "--tokenizer", []string{"--sft", chats, "--init", base, "--tokenizer", "t.json"}},
		"template for text": {exitUsage, "--sft", []string{"--data", bin, "--template", "chatml"}},
		"unknown template":  {exitUsage, `"chatml"`, []string{"--sft", chats, "--init", base, "--template", "chatlm"}},
		"two lengths":       {exitUsage, "--epochs", []string{"--sft", chats, "--init", base, "--epochs", "2", "--max-steps", "3"}},
		"lora of nothing":   {exitUsage, "--init", []string{"--data", bin, "--lora", "r=4"}},
		"lora rank":         {exitUsage, "rank", []string{"--data", bin, "--init", base, "--lora", "r=0"}},
		"lora rank word":    {exitUsage, "number", []string{"--data", bin, "--init", base, "--lora", "r=four"}},
		"lora key":          {exitUsage, "alpha", []string{"--data", bin, "--init", base, "--lora", "r=4,alfa=3"}},
		"lora target":       {exitUsage, `"gate"`, []string{"--data", bin, "--init", base, "--lora", "r=4,targets=gte"}},
		"lora and preset":   {exitUsage, "--preset", []string{"--data", bin, "--init", base, "--preset", "mini"}},
		"missing model":     {exitFailed, "nowhere", []string{"--sft", chats, "--init", dir + "/nowhere"}},
		"missing chats":     {exitFailed, "nowhere", []string{"--sft", dir + "/nowhere.jsonl", "--init", base}},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			_, errOut, code := invoke(t, context.Background(), append([]string{"train", "--device", "cpu", "--out", out}, c.args...)...)
			if code != c.code || !strings.Contains(errOut, c.want) || strings.Count(strings.TrimSpace(errOut), "\n") > 0 {
				t.Errorf("exit code %d, want %d, and one line that mentions %q: %q", code, c.code, c.want, errOut)
			}
		})
	}
}

// TestParseLoRA: what is left out has its default.
func TestParseLoRA(t *testing.T) {
	m := model.Config{VocabSize: 300, Context: 32, DModel: 64, Layers: 1, Heads: 2}
	all := "q,k,v,o,gate,up,down"
	for s, want := range map[string]model.LoRA{
		"":                         {},
		"r=8":                      {Rank: 8, Alpha: 16, Targets: all},
		"alpha=5":                  {Rank: 16, Alpha: 5, Targets: all},
		"targets=v,q":              {Rank: 16, Alpha: 32, Targets: "q,v"},
		"targets=attn":             {Rank: 16, Alpha: 32, Targets: "q,k,v,o"},
		"rank=2,targets=ffn,q":     {Rank: 2, Alpha: 4, Targets: "q,gate,up,down"},
		"targets=all,r=3,alpha=.5": {Rank: 3, Alpha: 0.5, Targets: all},
	} {
		if got, err := parseLoRA(s, m); err != nil || got != want {
			t.Errorf("%q is read as %+v, %v; want %+v", s, got, err, want)
		}
	}
	if _, err := parseLoRA("r=65", m); err == nil || !strings.Contains(err.Error(), "64") {
		t.Errorf("a rank above d_model: %v", err)
	}
}
