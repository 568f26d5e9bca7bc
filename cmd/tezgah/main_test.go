package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// invoke runs one command line in this process and returns what it printed
// and its exit code.
func invoke(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	dir := t.TempDir()
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	errOut, err := os.Create(filepath.Join(dir, "err"))
	if err != nil {
		t.Fatal(err)
	}
	oldOut, oldErr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = out, errOut
	defer func() { os.Stdout, os.Stderr = oldOut, oldErr }()
	code = run(ctx, args)
	out.Close()
	errOut.Close()
	a, _ := os.ReadFile(out.Name())
	b, _ := os.ReadFile(errOut.Name())
	return string(a), string(b), code
}

// must is invoke for command lines that have to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, code := invoke(t, context.Background(), args...)
	if code != exitDone {
		t.Fatalf("tezgah %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errOut)
	}
	return out
}

// writeCorpus makes a folder of small text files.
func writeCorpus(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	lines := []string{"the loom stands by the window", "a thread runs through every cloth", "Ankara'da hava güzel, İzmir'de yağmur var", "for i := range n { sum += i }"}
	for i := range 6 {
		var b strings.Builder
		for j := range 120 {
			b.WriteString(lines[(i*7+j*j)%len(lines)])
			b.WriteString([]string{"\n", ". ", "\n\n"}[(i+j)%3])
		}
		if err := os.WriteFile(filepath.Join(dir, "text"+strconv.Itoa(i)+".txt"), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// smallTrain are the flags of a run that takes about a second.
func smallTrain(data, out string, more ...string) []string {
	return append([]string{"train", "--data", data, "--out", out, "--device", "cpu", "--d-model", "32", "--layers", "2", "--heads", "2",
		"--kv-heads", "1", "--ffn", "64", "--context", "32", "--batch", "4", "--max-steps", "12", "--checkpoint-every", "4", "--seed", "3"}, more...)
}

// TestWholePath walks from text to generation with the flags that scripts use.
func TestWholePath(t *testing.T) {
	text, dir := writeCorpus(t), t.TempDir()
	tok, bin, runDir := filepath.Join(dir, "t.json"), filepath.Join(dir, "d.bin"), filepath.Join(dir, "run")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)

	ids := must(t, "tokenizer", "encode", "--tokenizer", tok, filepath.Join(text, "text0.txt"))
	back := must(t, append([]string{"tokenizer", "decode", "--tokenizer", tok}, strings.Fields(ids)...)...)
	want, _ := os.ReadFile(filepath.Join(text, "text0.txt"))
	if back != string(want) {
		t.Error("encode and decode do not give the text back")
	}

	lines := strings.Split(strings.TrimSpace(must(t, smallTrain(bin, runDir, "--json")...)), "\n")
	steps := 0
	for _, l := range lines {
		var rec struct {
			Type string
			Step int
			Loss float64
		}
		if err := json.Unmarshal([]byte(l), &rec); err != nil {
			t.Fatalf("line %q: %v", l, err)
		}
		if rec.Type == "step" {
			if steps++; rec.Step != steps || !(rec.Loss > 0) {
				t.Errorf("step line %q", l)
			}
		}
	}
	if steps != 12 {
		t.Errorf("%d step lines, want 12", steps)
	}

	a := must(t, "generate", runDir, "--device", "cpu", "--prompt", "the loom", "--max-tokens", "20", "--seed", "5")
	b := must(t, "generate", runDir, "--device", "cpu", "--prompt", "the loom", "--max-tokens", "20", "--seed", "5")
	if a != b || !strings.HasPrefix(a, "the loom") {
		t.Errorf("two generations of one seed: %q and %q", a, b)
	}
	var ev struct {
		Loss        float64 `json:"loss"`
		BitsPerByte float64 `json:"bits_per_byte"`
	}
	if err := json.Unmarshal([]byte(must(t, "eval", runDir, "--device", "cpu", "--data", bin, "--json")), &ev); err != nil || !(ev.BitsPerByte > 0) {
		t.Errorf("eval: %+v, %v", ev, err)
	}
	var evText struct {
		Loss float64 `json:"loss"`
	}
	if err := json.Unmarshal([]byte(must(t, "eval", runDir, "--device", "cpu", "--text", text, "--json")), &evText); err != nil {
		t.Fatal(err)
	}
	if d := evText.Loss - ev.Loss; d > 1e-4 || d < -1e-4 {
		t.Errorf("loss on the text %v, on its token file %v", evText.Loss, ev.Loss)
	}
	if out := must(t, "data", "inspect", bin); !strings.Contains(out, "documents") {
		t.Errorf("data inspect printed %q", out)
	}
	if out := must(t, "tokenizer", "inspect", tok, "--text", "the window"); !strings.Contains(out, "|") {
		t.Errorf("tokenizer inspect printed %q", out)
	}
}

// TestExportImport takes a trained model to Hugging Face's form and back: it
// generates the same text. The GGUF must be refused for a pattern that
// llama.cpp does not know.
func TestExportImport(t *testing.T) {
	text, dir := writeCorpus(t), t.TempDir()
	tok, bin, runDir := filepath.Join(dir, "t.json"), filepath.Join(dir, "d.bin"), filepath.Join(dir, "run")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--pattern", "turkish", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	must(t, smallTrain(bin, runDir)...)
	hf, back := filepath.Join(dir, "hf"), filepath.Join(dir, "back.llm")
	must(t, "export", "--to", "hf", "--shard-size", "1MiB", runDir, hf)
	must(t, "import", "--out", back, hf)
	args := []string{"--device", "cpu", "--prompt", "the loom", "--max-tokens", "20", "--seed", "5"}
	want := must(t, append([]string{"generate", runDir}, args...)...)
	if got := must(t, append([]string{"generate", back}, args...)...); got != want {
		t.Errorf("after export and import the model says %q, before %q", got, want)
	}
	gguf := filepath.Join(dir, "m.gguf")
	if _, errOut, code := invoke(t, context.Background(), "export", "--to", "gguf", runDir, gguf); code != exitFailed || !strings.Contains(errOut, "turkish") {
		t.Errorf("GGUF with pattern turkish: exit code %d, %q", code, errOut)
	}
	must(t, "export", "--to", "gguf", "--type", "q8_0", "--force", runDir, gguf)
	if b, err := os.ReadFile(gguf); err != nil || string(b[:4]) != "GGUF" {
		t.Errorf("the GGUF file: %v", err)
	}
}

// TestDemo runs the whole demo on a small text.
func TestDemo(t *testing.T) {
	out := must(t, "demo", "--data", writeCorpus(t), "--out", filepath.Join(t.TempDir(), "demo"), "--device", "cpu", "--max-steps", "12", "--vocab-size", "400", "--json")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last demoResult
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	if !(last.FinalValBitsPerByte > 0 && last.UnigramBitsPerByte > 0 && last.TokensPerSecond > 0 && last.Seconds > 0) || last.Steps != 12 {
		t.Errorf("demo ended with %+v", last)
	}
	if _, err := os.Stat(last.ModelPath); err != nil {
		t.Error(err)
	}
}

// TestInterrupted cancels a run and resumes it.
func TestInterrupted(t *testing.T) {
	text, dir := writeCorpus(t), t.TempDir()
	tok, bin, runDir := filepath.Join(dir, "t.json"), filepath.Join(dir, "d.bin"), filepath.Join(dir, "run")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, errOut, code := invoke(t, ctx, smallTrain(bin, runDir)...); code != exitInterrupted || !strings.Contains(errOut, "--resume") {
		t.Errorf("exit code %d, want %d\n%s", code, exitInterrupted, errOut)
	}
	must(t, "train", "--resume", runDir, "--device", "cpu")
	if _, errOut, code := invoke(t, context.Background(), "train", "--resume", runDir, "--lr", "1"); code != exitUsage || !strings.Contains(errOut, "--lr") {
		t.Errorf("changing --lr on resume: code %d\n%s", code, errOut)
	}
}

// TestBadInput: each mistake gets one clear line and its exit code.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	empty, tiny, broken := filepath.Join(dir, "empty.txt"), filepath.Join(dir, "tiny.txt"), filepath.Join(dir, "broken.llm")
	os.WriteFile(empty, nil, 0o666)
	os.WriteFile(tiny, []byte("a"), 0o666)
	os.WriteFile(broken, []byte("this is not a model"), 0o666)
	text := writeCorpus(t)
	tok, bin, cut := filepath.Join(dir, "t.json"), filepath.Join(dir, "d.bin"), filepath.Join(dir, "cut.bin")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	b, _ := os.ReadFile(bin)
	os.WriteFile(cut, b[:len(b)/2], 0o666)
	flipped := filepath.Join(dir, "flipped.bin")
	b[len(b)-40] ^= 4
	os.WriteFile(flipped, b, 0o666)
	cases := []struct {
		name string
		code int
		want string
		args []string
	}{
		{"unknown command", exitUsage, `"train"`, []string{"trian"}},
		{"unknown flag", exitUsage, "--vocab-size", []string{"tokenizer", "train", "--vocabsize", "10", text}},
		{"unknown preset", exitUsage, `"nano"`, []string{"train", "--data", bin, "--out", dir + "/r", "--preset", "nan"}},
		{"unknown pattern", exitUsage, "llama3", []string{"tokenizer", "train", "--pattern", "lama3", text}},
		{"no arguments", exitUsage, "files or folders", []string{"tokenizer", "train"}},
		{"vocabulary of zero", exitUsage, "vocab", []string{"tokenizer", "train", "--vocab-size", "0", "--out", dir + "/x.json", text}},
		{"absurd vocabulary", exitUsage, "vocab", []string{"tokenizer", "train", "--vocab-size", "99999999", "--out", dir + "/x.json", text}},
		{"empty text", exitFailed, "no text", []string{"tokenizer", "train", "--out", dir + "/x.json", empty}},
		{"missing text", exitFailed, "none.txt", []string{"tokenizer", "train", "--out", dir + "/x.json", dir + "/none.txt"}},
		{"missing tokenizer", exitFailed, "none.json", []string{"data", "build", "--tokenizer", dir + "/none.json", "--out", dir + "/x.bin", text}},
		{"truncated token file", exitFailed, "cut.bin", smallTrain(cut, dir+"/r1")},
		{"flipped bit", exitFailed, "flipped.bin", append(smallTrain(flipped, dir+"/r2"), "--eval-tokens=-1")},
		{"heads do not divide", exitFailed, "heads", append(smallTrain(bin, dir+"/r3"), "--heads=3", "--kv-heads=2")},
		{"absurd batch", exitFailed, "batch", append(smallTrain(bin, dir+"/r4"), "--batch=-5")},
		{"model that does not fit", exitFailed, "", append(smallTrain(bin, dir+"/r5"), "--d-model=1048576", "--heads=8192")},
		{"not a model", exitFailed, "broken.llm", []string{"generate", broken}},
		{"missing model", exitFailed, "nowhere", []string{"generate", dir + "/nowhere"}},
		{"bad temperature", exitUsage, "temperature", []string{"generate", broken, "--temperature=-1"}},
		{"resume nothing", exitFailed, "not a run folder", []string{"train", "--resume", dir}},
		{"train without data", exitUsage, "--data", []string{"train", "--out", dir + "/r6"}},
		{"unknown device", exitFailed, "", []string{"generate", broken, "--device", "no-such-gpu"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, errOut, code := invoke(t, context.Background(), c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d: %s", code, c.code, errOut)
			}
			if !strings.Contains(errOut, c.want) {
				t.Errorf("%q does not mention %q", errOut, c.want)
			}
			if strings.Count(strings.TrimSpace(errOut), "\n") > 0 {
				t.Errorf("more than one line: %q", errOut)
			}
		})
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 12345: "12,345"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}
