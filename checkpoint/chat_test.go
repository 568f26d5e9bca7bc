package checkpoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"tezgah/tensor"
)

// tinyChat ends a turn with a token that tinyTokenizer has.
var tinyChat = &ChatFormat{Jinja: "{% for m in messages %}{{ m['content'] + '<x>' + \"\\n\" }}{% endfor %}", End: "<x>"}

// TestChatInOtherFormats: template and end of turn arrive where transformers 4
// and 5 and llama.cpp look for them, and come back.
func TestChatInOtherFormats(t *testing.T) {
	l := llamaFile(t, ggufModel, tinyTokenizer, false)
	dir := filepath.Join(t.TempDir(), "hf")
	if err := ExportHF(dir, l, HFOptions{Chat: tinyChat}); err != nil {
		t.Fatal(err)
	}
	jinja, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err != nil || string(jinja) != tinyChat.Jinja {
		t.Errorf("chat_template.jinja is %q, %v", jinja, err)
	}
	var tok, gen map[string]any
	readJSON(t, filepath.Join(dir, "tokenizer_config.json"), &tok)
	readJSON(t, filepath.Join(dir, "generation_config.json"), &gen)
	if tok["chat_template"] != tinyChat.Jinja || !reflect.DeepEqual(gen["eos_token_id"], []any{6.0, 5.0}) {
		t.Errorf("template %q, ends %v", tok["chat_template"], gen["eos_token_id"])
	}
	m, err := OpenHF(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.ChatJinja != tinyChat.Jinja || !slices.Equal(m.EOS, []int32{6, 5}) || !slices.Equal(m.BOS, []int32{5}) {
		t.Errorf("came back with template %q, ends %v, begin %v", m.ChatJinja, m.EOS, m.BOS)
	}

	path := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := ExportGGUF(path, l, GGUFOptions{Type: "f16", Pattern: "gpt2", Chat: tinyChat}); err != nil {
		t.Fatal(err)
	}
	g := readGGUF(t, path)
	if g.kv["tokenizer.chat_template"] != tinyChat.Jinja || g.kv["tokenizer.ggml.eot_token_id"] != uint32(6) || g.kv["tokenizer.ggml.eos_token_id"] != uint32(5) {
		t.Errorf("GGUF: template %q, end of turn %v, end %v", g.kv["tokenizer.chat_template"], g.kv["tokenizer.ggml.eot_token_id"], g.kv["tokenizer.ggml.eos_token_id"])
	}
	bad := &ChatFormat{End: "<y>"}
	wantError(t, ExportHF(filepath.Join(dir, "x"), l, HFOptions{Chat: bad}), `"<y>"`, "not a special token")
	_, err = ExportGGUF(path, l, GGUFOptions{Type: "f16", Pattern: "gpt2", Chat: bad})
	wantError(t, err, `"<y>"`, "not a special token")
}

// TestPickTemplate reads the spellings of tokenizer_config.json's key.
func TestPickTemplate(t *testing.T) {
	for raw, want := range map[string]string{
		`"a"`: "a", `[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]`: "d", `[{"name":"rag","template":"r"}]`: "", `[]`: "",
	} {
		if got, err := pickTemplate(json.RawMessage(raw)); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{`7`, `{"default":"d"}`, `["a"]`, `[{"name":1}]`} {
		_, err := pickTemplate(json.RawMessage(raw))
		wantError(t, err, "chat_template")
	}
}

// adapterSource is a file of adapters for tiny on two of its matrices.
func adapterSource(t *testing.T, lora string, more ...Tensor) *LLM {
	t.Helper()
	config, err := json.Marshal(tiny)
	if err != nil {
		t.Fatal(err)
	}
	ts := []Tensor{
		Float32s("layers.0.wq.lora_a", []int{5, 2}, values(1, 10)), Float32s("layers.0.wq.lora_b", []int{2, 24}, values(2, 48)),
		Float32s("layers.0.w_down.lora_a", []int{7, 2}, values(3, 14)), Float32s("layers.0.w_down.lora_b", []int{2, 5}, values(4, 10)),
		Float32s("layers.1.wq.lora_a", []int{5, 2}, values(5, 10)), Float32s("layers.1.wq.lora_b", []int{2, 24}, values(6, 48)),
		Float32s("layers.1.w_down.lora_a", []int{7, 2}, values(7, 14)), Float32s("layers.1.w_down.lora_b", []int{2, 5}, values(8, 10)),
	}
	h := Header{Config: config}
	if lora != "" {
		h.LoRA = json.RawMessage(lora)
	}
	var f MemFile
	if _, err := WriteLLM(&f, h, append(ts, more...), nil); err != nil {
		t.Fatal(err)
	}
	l, err := readLLM(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestExportPEFT reads the folder back by the definition of peft's layout.
func TestExportPEFT(t *testing.T) {
	l := adapterSource(t, `{"rank":2,"alpha":3.5,"targets":["wq","w_down"]}`)
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := ExportPEFT(dir, l, PEFTOptions{Type: tensor.F32, Base: "someone/model"}); err != nil {
		t.Fatal(err)
	}
	f, err := Open(filepath.Join(dir, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if len(f.Tensors()) != 8 {
		t.Errorf("%d tensors, want 8", len(f.Tensors()))
	}
	for theirs, ours := range map[string]string{
		"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight": "layers.1.wq.lora_a",
		"base_model.model.model.layers.0.mlp.down_proj.lora_B.weight":    "layers.0.w_down.lora_b",
	} {
		info, _ := l.Lookup(ours)
		in, out := info.Shape[0], info.Shape[1]
		got, want := weight(t, f, theirs), weight(t, l.File, ours)
		for i := range in {
			for o := range out {
				if got[o*in+i] != want[i*out+o] {
					t.Fatalf("%s (%d, %d) is %v, want %v", theirs, o, i, got[o*in+i], want[i*out+o])
				}
			}
		}
	}
	var config map[string]any
	readJSON(t, filepath.Join(dir, "adapter_config.json"), &config)
	for key, want := range map[string]any{
		"base_model_name_or_path": "someone/model", "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2.0, "lora_alpha": 3.5,
		"bias": "none", "use_rslora": false, "use_dora": false, "fan_in_fan_out": false,
	} {
		if config[key] != want {
			t.Errorf("adapter_config.json: %s is %v, want %v", key, config[key], want)
		}
	}
	if !reflect.DeepEqual(config["target_modules"], []any{"q_proj", "down_proj"}) {
		t.Errorf("target_modules %v", config["target_modules"])
	}
}

// TestExportPEFTRefuses: adapters that contradict themselves or their base,
// and files that hold a whole model.
func TestExportPEFTRefuses(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "adapter")
	good := `{"rank":2,"alpha":4,"targets":["wq","w_down"]}`
	named := PEFTOptions{Base: "someone/model"}
	for lora, want := range map[string]string{
		"": "no LoRA adapters", `[]`: "tezgah.lora", `{"rank":0,"alpha":4,"targets":["wq"]}`: "rank is 0",
		`{"rank":2,"alpha":0,"targets":["wq"]}`: "alpha is 0", `{"rank":2,"alpha":4}`: "no targets", `{"rank":2,"alpha":4,"targets":["q"]}`: `"q"`,
		`{"rank":2,"alpha":4,"targets":["wq","wq"]}`: "twice", `{"rank":3,"alpha":4,"targets":["wq","w_down"]}`: "want [5 3]",
		`{"rank":2,"alpha":4,"targets":["wq"]}`: "8 tensors, want 4", `{"rank":2,"alpha":4,"targets":["wq","wk"]}`: "layers.0.wk.lora_a",
	} {
		wantError(t, ExportPEFT(dir, adapterSource(t, lora), named), want, dir)
	}
	l := adapterSource(t, good)
	wantError(t, ExportPEFT(dir, l, PEFTOptions{}), "--base")
	wantError(t, ExportPEFT(dir, l, PEFTOptions{Type: tensor.I8, Base: "x"}), "I8")
	wantError(t, ExportPEFT(dir, l, PEFTOptions{BaseModel: llamaFile(t, ggufModel, "", false)}), "base model", "were trained on")
	wantError(t, ExportPEFT(dir, l, PEFTOptions{BaseModel: l}), "holds LoRA adapters")
	wantError(t, ExportHF(dir, l, HFOptions{}), "--to peft")
	_, err := ExportGGUF(dir, l, GGUFOptions{Type: "f32", Pattern: "gpt2"})
	wantError(t, err, "--to peft")
	if names := folder(t, parent); len(names) != 0 {
		t.Errorf("folder has %q", names)
	}
	if err := ExportPEFT(dir, l, PEFTOptions{BaseModel: llamaFile(t, tiny, "", false)}); err != nil {
		t.Fatal(err)
	}
	m, err := OpenHF(filepath.Join(dir, "base"))
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	wantError(t, ExportPEFT(dir, l, named), "not empty")
}
