package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/checkpoint"
)

// oldData is the path of the files that earlier programs wrote.
var oldData = filepath.Join("..", "..", "checkpoint", "testdata", "old")

// copyOld copies them, because a resumed run writes into its folder.
func copyOld(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(oldData)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// refused runs a command line that must fail, and checks what it says.
func refused(t *testing.T, code int, parts []string, args ...string) {
	t.Helper()
	_, errOut, got := invoke(t, context.Background(), args...)
	if got != code {
		t.Errorf("tezgah %s: exit code %d, want %d: %s", strings.Join(args, " "), got, code, errOut)
	}
	for _, p := range parts {
		if !strings.Contains(errOut, p) {
			t.Errorf("tezgah %s says %q, want something about %q", strings.Join(args, " "), errOut, p)
		}
	}
}

// TestOldRuns: checkpoints of earlier programs, with moments of 32 and of 8
// bits and of adapters, are resumed to the result that they had then; a model
// is as good as it was.
func TestOldRuns(t *testing.T) {
	var ev struct{ Loss float64 }
	out := must(t, "eval", filepath.Join(oldData, "model.llm"), "--text", filepath.Join(oldData, "text.txt"), "--device", "cpu", "--json")
	if err := json.Unmarshal([]byte(out), &ev); err != nil || math.Abs(ev.Loss-1.040235212620567) > 1e-5 {
		t.Errorf("the old model has loss %v, want 1.0402352, %v", ev.Loss, err)
	}
	t.Chdir(copyOld(t)) // the runs name their data as they were started: beside them
	for run, want := range map[string]float64{"f32": 1.2922, "m8": 1.0527, "lora": 4.0083} {
		lines := strings.Split(strings.TrimSpace(must(t, "train", "--resume", run, "--device", "cpu", "--json")), "\n")
		var last struct {
			Step int64
			Val  float64 `json:"val_loss"`
		}
		for _, l := range lines {
			if strings.Contains(l, `"val_loss"`) {
				if err := json.Unmarshal([]byte(l), &last); err != nil {
					t.Fatal(err)
				}
			}
		}
		// Other processors round sums differently, which 30 steps magnify.
		if math.Abs(last.Val-want) > 0.02*want || last.Step != 120 && last.Step != 60 {
			t.Errorf("%s ended at step %d with validation loss %v, want %v", run, last.Step, last.Val, want)
		}
	}
}

// TestExportPEFT: adapters go out with their base, or with one that is there;
// what does not belong together is refused.
func TestExportPEFT(t *testing.T) {
	dir := t.TempDir()
	run, out := filepath.Join(oldData, "lora"), filepath.Join(dir, "adapter")
	must(t, "export", "--to", "peft", run, out)
	var config struct {
		Base    string   `json:"base_model_name_or_path"`
		Type    string   `json:"peft_type"`
		R       int      `json:"r"`
		Alpha   float64  `json:"lora_alpha"`
		Modules []string `json:"target_modules"`
	}
	b, err := os.ReadFile(filepath.Join(out, "adapter_config.json"))
	if err == nil {
		err = json.Unmarshal(b, &config)
	}
	base := filepath.Join(out, "base")
	if err != nil || config.Base != filepath.ToSlash(base) || config.Type != "LORA" || config.R != 2 || config.Alpha != 4 || len(config.Modules) != 7 {
		t.Errorf("adapter_config.json is %+v, %v", config, err)
	}
	comparePEFT(t, filepath.Join(out, "adapter_model.safetensors"), filepath.Join(run, "step-000000045.llm"))
	if b, err := os.ReadFile(filepath.Join(base, "chat_template.jinja")); err != nil || !bytes.Contains(b, []byte("<|im_start|>")) {
		t.Errorf("the base's chat template is %q, %v", b, err)
	}
	must(t, "export", "--to", "peft", "--base", base, "--type", "bf16", run, filepath.Join(dir, "second"))
	must(t, "export", "--to", "peft", "--base", "somebody/some-model", run, filepath.Join(dir, "third"))

	model := filepath.Join(oldData, "model.llm")
	refused(t, exitFailed, []string{"no LoRA adapters", "--lora"}, "export", "--to", "peft", model, filepath.Join(dir, "x"))
	refused(t, exitFailed, []string{"not empty"}, "export", "--to", "peft", run, out)
	other := filepath.Join(dir, "other")
	must(t, "export", "--to", "hf", model, other)
	swapFile(t, filepath.Join(other, "config.json"), `"rope_theta": 10000`, `"rope_theta": 20000`)
	refused(t, exitFailed, []string{"base model", "were trained on"}, "export", "--to", "peft", "--base", other, run, filepath.Join(dir, "x"))
	alone := filepath.Join(dir, "alone.llm")
	if b, err := os.ReadFile(filepath.Join(run, "step-000000045.llm")); err != nil || os.WriteFile(alone, b, 0o666) != nil {
		t.Fatal(err)
	}
	refused(t, exitFailed, []string{"base.llm", "--base"}, "export", "--to", "peft", alone, filepath.Join(dir, "x"))
	refused(t, exitFailed, []string{"base.llm", "adapters alone"}, "export", "--to", "hf", alone, filepath.Join(dir, "x"))
	if isFile(filepath.Join(dir, "x")) {
		t.Error("a refused export left a file")
	}
}

// comparePEFT compares every adapter with its transpose under peft's name.
func comparePEFT(t *testing.T, peft, llm string) {
	t.Helper()
	f, err := checkpoint.Open(peft)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l, err := checkpoint.OpenLLM(llm)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	read := func(f *checkpoint.File, i checkpoint.Info) []float32 {
		x := make([]float32, i.Elements())
		if err := f.ReadFloat32(i.Name, x); err != nil {
			t.Fatal(err)
		}
		return x
	}
	names := strings.NewReplacer("layers.", "base_model.model.model.layers.", ".w_", ".mlp.", ".w", ".self_attn.", ".lora_a", "_proj.lora_A.weight", ".lora_b", "_proj.lora_B.weight")
	if len(f.Tensors()) != len(l.Weights()) {
		t.Errorf("%d tensors, want %d", len(f.Tensors()), len(l.Weights()))
	}
	for _, i := range l.Weights() {
		theirs, ok := f.Lookup(names.Replace(i.Name))
		if !ok || !slices.Equal(theirs.Shape, []int{i.Shape[1], i.Shape[0]}) {
			t.Errorf("%s is %v, %v; want shape %v turned", names.Replace(i.Name), theirs, ok, i.Shape)
			continue
		}
		a, b := read(l.File, i), read(f, theirs)
		for r := range i.Shape[0] {
			for c := range i.Shape[1] {
				if a[r*i.Shape[1]+c] != b[c*i.Shape[0]+r] {
					t.Fatalf("%s (%d, %d) is %v, want %v", theirs.Name, c, r, b[c*i.Shape[0]+r], a[r*i.Shape[1]+c])
				}
			}
		}
	}
}

// TestExportMerged: of a run of adapters that is not finished, the other formats
// get the merged model, W + α/r·A·B, with the run's chat template.
func TestExportMerged(t *testing.T) {
	dir, run := t.TempDir(), filepath.Join(oldData, "lora")
	temp := filepath.Join(dir, "temp")
	if err := os.Mkdir(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	hf, back := filepath.Join(dir, "hf"), filepath.Join(dir, "back.llm")
	if _, errOut, code := invoke(t, context.Background(), "export", run, hf); code != exitDone || !strings.Contains(errOut, "step-000000045.llm holds adapters") {
		t.Fatalf("exit code %d, %s", code, errOut)
	}
	must(t, "import", hf, "--out", back)
	base, adapters, merged := weightsOf(t, filepath.Join(run, "base.llm")), weightsOf(t, filepath.Join(run, "step-000000045.llm")), weightsOf(t, back)
	const rank, scale = 2, 2.0 // α 4
	for name, want := range base {
		got, delta := merged[name], 0.0
		if a, b := adapters[name+".lora_a"], adapters[name+".lora_b"]; a != nil {
			in := len(a) / rank
			out := len(b) / rank
			for i := range want {
				row, col := i/out, i%out
				sum := 0.0
				for k := range rank {
					sum += float64(a[row*rank+k]) * float64(b[k*out+col])
				}
				want[i] += float32(scale * sum)
				delta = max(delta, math.Abs(scale*sum))
			}
			if delta == 0 || in*out != len(want) {
				t.Fatalf("%s: the adapters (%d, %d) change nothing", name, in, out)
			}
		}
		for i := range want {
			if d := math.Abs(float64(got[i] - want[i])); d > 1e-6*(1+math.Abs(float64(want[i]))) {
				t.Fatalf("%s[%d] is %v, want %v", name, i, got[i], want[i])
			}
		}
	}
	gguf := func(from, folder string) []byte {
		t.Helper()
		path := filepath.Join(dir, folder, "m.gguf")
		if err := os.Mkdir(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		must(t, "export", "--to", "gguf", from, path)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if a, b := gguf(run, "a"), gguf(back, "b"); !bytes.Equal(a, b) || !bytes.Contains(a, []byte("tokenizer.chat_template")) {
		t.Errorf("the GGUF of the run has %d bytes, that of the merged model %d", len(a), len(b))
	}
	if left, err := filepath.Glob(filepath.Join(temp, "tezgah-merged-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// weightsOf reads all weights of a model file.
func weightsOf(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	l, err := checkpoint.OpenLLM(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	all := map[string][]float32{}
	for _, i := range l.Weights() {
		x := make([]float32, i.Elements())
		if err := l.ReadFloat32(i.Name, x); err != nil {
			t.Fatal(err)
		}
		all[i.Name] = x
	}
	return all
}

func swapFile(t *testing.T, path, from, to string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(b, []byte(from)) {
		t.Fatalf("%s does not contain %q: %v", path, from, err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte(from), []byte(to)), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestChatModels: the template travels out and in, by name; a conversation
// ends at the end of a turn in other programs too.
func TestChatModels(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(oldData, "lora", "base.llm") // it has the template's tokens and its name
	hf, back := filepath.Join(dir, "hf"), filepath.Join(dir, "back.llm")
	must(t, "export", model, hf)
	var g struct {
		EOS []int32 `json:"eos_token_id"`
	}
	b, err := os.ReadFile(filepath.Join(hf, "generation_config.json"))
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	if err != nil || !slices.Equal(g.EOS, []int32{319, 317}) {
		t.Errorf("generation_config.json ends at %v, %v; want the turn's end 319 and the document's 317", g.EOS, err)
	}
	readHeader := func(path string) checkpoint.Header {
		t.Helper()
		l, err := checkpoint.OpenLLM(path)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Header
	}
	if _, errOut, code := invoke(t, context.Background(), "import", hf, "--out", back); code != exitDone || errOut != "" {
		t.Errorf("import: exit code %d, notes %q", code, errOut)
	}
	var facts struct {
		Ends []string `json:"end_tokens"`
	}
	h := readHeader(back)
	if err := json.Unmarshal(h.Facts, &facts); err != nil || h.ChatTemplate != "chatml" || !slices.Equal(facts.Ends, []string{"<|im_end|>", "<|endoftext|>"}) {
		t.Errorf("imported with template %q and facts %s, %v", h.ChatTemplate, h.Facts, err)
	}
	swapFile(t, filepath.Join(hf, "generation_config.json"), "317", "5") // an ordinary token
	if _, errOut, code := invoke(t, context.Background(), "import", hf, "--out", back); code != exitDone || !strings.Contains(errOut, "id 5") {
		t.Errorf("an end that is no special token: exit code %d, %q", code, errOut)
	}
	// As transformers 4 stores it, among others; an unknown one is left out
	// with a note, unless it is named.
	if err := os.Remove(filepath.Join(hf, "chat_template.jinja")); err != nil {
		t.Fatal(err)
	}
	must(t, "import", hf, "--out", back)
	if h := readHeader(back); h.ChatTemplate != "chatml" {
		t.Errorf("from tokenizer_config.json: template %q", h.ChatTemplate)
	}
	swapFile(t, filepath.Join(hf, "tokenizer_config.json"), "<|im_start|>", "<|turn|>")
	if _, errOut, code := invoke(t, context.Background(), "import", hf, "--out", back); code != exitDone || !strings.Contains(errOut, "chat template") {
		t.Errorf("unknown template: exit code %d, %q", code, errOut)
	}
	if h := readHeader(back); h.ChatTemplate != "" {
		t.Errorf("an unknown template was imported as %q", h.ChatTemplate)
	}
	must(t, "import", hf, "--out", back, "--template", "chatml")
	if h := readHeader(back); h.ChatTemplate != "chatml" {
		t.Errorf("--template chatml: %q", h.ChatTemplate)
	}
	gguf := filepath.Join(dir, "m.gguf")
	must(t, "export", "--to", "gguf", model, gguf)
	if b, err := os.ReadFile(gguf); err != nil || !bytes.Contains(b, []byte("tokenizer.chat_template")) || !bytes.Contains(b, []byte("tokenizer.ggml.eot_token_id")) {
		t.Errorf("the GGUF has no chat template: %v", err)
	}
	refused(t, exitFailed, []string{"<|eot_id|>", "not a special token of the vocabulary"}, "export", "--template", "llama3", model, filepath.Join(dir, "x"))
}

// TestExportFlags: mistakes on the command line are told before anything is
// read or written.
func TestExportFlags(t *testing.T) {
	model, x := filepath.Join(oldData, "model.llm"), filepath.Join(t.TempDir(), "x")
	for _, c := range []struct {
		parts []string
		args  []string
	}{
		{[]string{"ggu", "gguf"}, []string{"--to", "ggu"}},
		{[]string{"q8_0", "bf16"}, []string{"--type", "q8_0"}},
		{[]string{"bf16", "q8_0"}, []string{"--to", "gguf", "--type", "bf16"}},
		{[]string{"2 bananas", "2GB"}, []string{"--shard-size", "2 bananas"}},
		{[]string{"--shard-size"}, []string{"--to", "gguf", "--shard-size", "2GB"}},
		{[]string{"--base", "peft"}, []string{"--base", "b"}},
		{[]string{"--force", "gguf"}, []string{"--force"}},
		{[]string{"chatml"}, []string{"--template", "chatlm"}},
	} {
		refused(t, exitUsage, c.parts, append(append([]string{"export"}, c.args...), model, x)...)
	}
	refused(t, exitUsage, []string{"arguments"}, "export", model)
	refused(t, exitUsage, []string{"--out"}, "import", x)
	refused(t, exitUsage, []string{"chatml"}, "import", x, "--out", x, "--template", "chatlm")
	if isFile(x) {
		t.Error("a refused command left a file")
	}
}

// TestImportRefusals: nothing that existed is lost.
func TestImportRefusals(t *testing.T) {
	dir := t.TempDir()
	hf, out := filepath.Join(dir, "hf"), filepath.Join(dir, "out.llm")
	must(t, "export", filepath.Join(oldData, "model.llm"), hf)
	if err := os.WriteFile(out, []byte("what was there"), 0o666); err != nil {
		t.Fatal(err)
	}
	check := func(parts ...string) {
		t.Helper()
		refused(t, exitFailed, append(parts, hf), "import", hf, "--out", out)
		if b, err := os.ReadFile(out); err != nil || string(b) != "what was there" {
			t.Errorf("the old file is %q, %v", b, err)
		}
		if files, _ := os.ReadDir(dir); len(files) != 2 {
			t.Errorf("the folder has %d files", len(files))
		}
	}
	config, tokenizer := filepath.Join(hf, "config.json"), filepath.Join(hf, "tokenizer.json")
	good, err := os.ReadFile(tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	swapFile(t, tokenizer, `"BPE"`, `"Unigram"`)
	check("tokenizer", "Unigram")
	if err := os.WriteFile(tokenizer, good, 0o666); err != nil {
		t.Fatal(err)
	}
	swapFile(t, config, `"LlamaForCausalLM"`, `"GemmaForCausalLM"`)
	check("GemmaForCausalLM")
	refused(t, exitFailed, []string{"nowhere"}, "import", filepath.Join(dir, "nowhere"), "--out", out)
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "500000": 500000, "2GB": 2e9, "2gb": 2e9, "1.5 GiB": 3 << 29, "100KB": 100000, "7KiB": 7168, "3MB": 3e6, "1TiB": 1 << 40, "12B": 12,
	} {
		var s byteSize
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%q is %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "GB", "-1", "-2GB", "2XB", "2 G B", "1e30GB", "NaN", "inf", "0x10", "9999999TB"} {
		var s byteSize
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %d, want an error", text, s)
		}
	}
}
