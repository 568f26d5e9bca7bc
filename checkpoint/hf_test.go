package checkpoint

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tezgah/tensor"
)

// TestHFRoundTrip exports models of every kind and imports them again: the
// weights must come back, to the bit when the type can hold them.
func TestHFRoundTrip(t *testing.T) {
	tied, mha, scaled := tiny, tiny, tiny
	tied.Tied = true
	mha.KVHeads, mha.HeadDim, mha.DModel, mha.Activation = 4, 2, 8, "gelu_tanh"
	scaled.RopeScaling = &RopeScaling{"llama3", 8, 1, 4, 16}
	for i, c := range []LlamaConfig{tiny, tied, mha, scaled} {
		for _, dt := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
			for _, shardBytes := range []int64{0, 300, 1} {
				name := fmt.Sprintf("%d/%v/%d", i, dt, shardBytes)
				t.Run(name, func(t *testing.T) {
					l := llamaFile(t, c, tinyTokenizer, dt != tensor.F32)
					dir := filepath.Join(t.TempDir(), "hf")
					if err := ExportHF(dir, l, HFOptions{Type: dt, ShardBytes: shardBytes}); err != nil {
						t.Fatal(err)
					}
					checkFolder(t, dir, c, shardBytes)
					checkImport(t, dir, l, c)
				})
			}
		}
	}
}

// checkFolder looks at the files of an export.
func checkFolder(t *testing.T, dir string, c LlamaConfig, shardBytes int64) {
	t.Helper()
	shards := 0
	for _, name := range folder(t, dir) {
		if !strings.HasSuffix(name, ".safetensors") {
			continue
		}
		shards++
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := strictCheck(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f, err := Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var total int64
		for _, i := range f.Tensors() {
			total += i.SizeBytes()
		}
		if shardBytes > 0 && total > shardBytes && len(f.Tensors()) > 1 {
			t.Errorf("%s has %d bytes in %d tensors, want at most %d", name, total, len(f.Tensors()), shardBytes)
		}
		if !reflect.DeepEqual(f.Meta(), map[string]string{"format": "pt"}) {
			t.Errorf("%s: metadata %v", name, f.Meta())
		}
		f.Close()
	}
	_, err := os.Stat(filepath.Join(dir, indexName))
	if (err == nil) != (shards > 1) || shardBytes == 1 && shards != len(c.tensors()) {
		t.Errorf("%d shards, index: %v", shards, err)
	}
	want := map[string]string{"tokenizer.json": tinyTokenizer}
	for name, text := range want {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != text {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	var config map[string]any
	readJSON(t, filepath.Join(dir, "config.json"), &config)
	rope := config["rope_parameters"].(map[string]any)
	for key, want := range map[string]any{
		"model_type": "llama", "head_dim": float64(c.HeadDim), "num_key_value_heads": float64(c.KVHeads), "rope_theta": 500000.0,
		"tie_word_embeddings": c.Tied, "eos_token_id": 5.0, "bos_token_id": 5.0, "pad_token_id": nil, "rms_norm_eps": 1e-6,
	} {
		if config[key] != want {
			t.Errorf("config.json: %s is %v, want %v", key, config[key], want)
		}
	}
	if rope["rope_theta"] != 500000.0 || (rope["rope_type"] == "llama3") != (c.RopeScaling != nil) {
		t.Errorf("config.json: rope_parameters is %v", rope)
	}
	var specials map[string]any
	readJSON(t, filepath.Join(dir, "special_tokens_map.json"), &specials)
	if specials["eos_token"] != "<|endoftext|>" || specials["pad_token"] != nil {
		t.Errorf("special_tokens_map.json: %v", specials)
	}
}

// checkImport compares a folder with the model it was made of, once by the
// definition of the layout and once through an import.
func checkImport(t *testing.T, dir string, l *LLM, c LlamaConfig) {
	t.Helper()
	m, err := OpenHF(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !reflect.DeepEqual(m.Config, c) || string(m.Tokenizer) != tinyTokenizer || !slices.Equal(m.EOS, []int32{5}) {
		t.Errorf("imported %+v, EOS %v; want %+v", m.Config, m.EOS, c)
	}
	q := weight(t, m.where["model.layers.1.self_attn.q_proj.weight"], "model.layers.1.self_attn.q_proj.weight")
	ours := weight(t, l.File, "layers.1.wq")
	in, out := c.DModel, c.Heads*c.HeadDim
	for o := range out {
		for i := range in {
			if q[o*in+i] != ours[i*out+o] {
				t.Fatalf("q_proj (%d, %d) is %v, want %v", o, i, q[o*in+i], ours[i*out+o])
			}
		}
	}
	config, err := json.Marshal(m.Config)
	if err != nil {
		t.Fatal(err)
	}
	back := filepath.Join(t.TempDir(), "back.llm")
	if err := SaveLLM(back, Header{Config: config, Tokenizer: m.Tokenizer}, m.Weights(), nil); err != nil {
		t.Fatal(err)
	}
	b, err := OpenLLM(back)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if len(b.Weights()) != len(l.Weights()) {
		t.Errorf("%d weights, want %d", len(b.Weights()), len(l.Weights()))
	}
	for _, i := range l.Weights() {
		if got, _ := b.Lookup(i.Name); !slices.Equal(got.Shape, i.Shape) {
			t.Errorf("%s has shape %v, want %v", i.Name, got.Shape, i.Shape)
		}
		if !slices.Equal(weight(t, b.File, i.Name), weight(t, l.File, i.Name)) {
			t.Errorf("%s came back different", i.Name)
		}
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestExportHFRefuses: nothing appears, and what was there stays.
func TestExportHFRefuses(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "hf")
	l := llamaFile(t, tiny, tinyTokenizer, false)
	wantError(t, ExportHF(dir, l, HFOptions{Type: tensor.I8}), dir, "I8")
	wantError(t, ExportHF(dir, l, HFOptions{ShardBytes: -1}), "shard size")
	wantError(t, ExportHF(dir, l, HFOptions{Special: SpecialTokens{Pad: "<pad>"}}), "<pad>")
	wantError(t, ExportHF(dir, llamaFile(t, tiny, strings.Replace(tinyTokenizer, `"Ġ":2,`, `"Ġ":2,"x1":7,"x2":8,"x3":9,`, 1), false), HFOptions{}), "10 tokens", "model 9")
	wantError(t, ExportHF(dir, llamaFile(t, tiny, `{"model":{"type":"Unigram"}}`, false), HFOptions{}), "Unigram")
	broken := llamaFile(t, tiny, tinyTokenizer, false)
	broken.head.entries[3].sum ^= 1 // as if the data were damaged
	wantError(t, ExportHF(dir, broken, HFOptions{}), "CRC-32C")
	other := llamaFile(t, tiny, tinyTokenizer, false)
	other.Header.Config = json.RawMessage(`{"vocab_size":10,"context":32,"d_model":5,"layers":2,"heads":4,"kv_heads":2,"head_dim":6,"ffn":7}`)
	wantError(t, ExportHF(dir, other, HFOptions{}), "tok_emb", "[9 5]", "[10 5]")
	if names := folder(t, parent); len(names) != 0 {
		t.Errorf("folder has %q", names)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := ExportHF(dir, l, HFOptions{}); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	wantError(t, ExportHF(dir, l, HFOptions{}), "not empty")
	if names := folder(t, parent); len(names) != 1 {
		t.Errorf("folder has %q", names)
	}
	m, err := OpenHF(dir)
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
}

// TestExportHFWithoutTokenizer: a model without a vocabulary still exports.
func TestExportHFWithoutTokenizer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hf")
	if err := ExportHF(dir, llamaFile(t, tiny, "", false), HFOptions{}); err != nil {
		t.Fatal(err)
	}
	m, err := OpenHF(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Tokenizer != nil || m.EOS != nil || len(m.Notes) != 1 {
		t.Errorf("tokenizer %q, EOS %v, notes %q", m.Tokenizer, m.EOS, m.Notes)
	}
}

const llamaJSON = `"model_type":"llama","architectures":["LlamaForCausalLM"],"vocab_size":9,"hidden_size":8,"intermediate_size":7,"num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":32`

// TestHFConfig lists configurations that must be understood.
func TestHFConfig(t *testing.T) {
	base := LlamaConfig{VocabSize: 9, Context: 32, DModel: 8, Layers: 2, Heads: 4, KVHeads: 4, HeadDim: 2, FFN: 7,
		RopeTheta: 10000, NormEps: 1e-6, InitStd: 0.02, Activation: "silu"}
	llama3 := &RopeScaling{"llama3", 8, 1, 4, 8192}
	cases := []struct {
		name, extra string
		change      func(c *LlamaConfig)
	}{
		{"transformers' defaults", ``, func(c *LlamaConfig) {}},
		{"old rope", `"rope_theta":500000.0,"rope_scaling":null`, func(c *LlamaConfig) { c.RopeTheta = 5e5 }},
		{"new rope", `"rope_parameters":{"rope_type":"default","rope_theta":500000}`, func(c *LlamaConfig) { c.RopeTheta = 5e5 }},
		{"both", `"rope_theta":5e5,"rope_parameters":{"rope_type":"default","rope_theta":500000}`, func(c *LlamaConfig) { c.RopeTheta = 5e5 }},
		{"old llama3", `"rope_theta":500000,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192}`,
			func(c *LlamaConfig) { c.RopeTheta, c.RopeScaling = 5e5, llama3 }},
		{"new llama3", `"rope_parameters":{"rope_type":"llama3","rope_theta":500000,"factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192}`,
			func(c *LlamaConfig) { c.RopeTheta, c.RopeScaling = 5e5, llama3 }},
		{"grouped heads", `"num_key_value_heads":2,"head_dim":6`, func(c *LlamaConfig) { c.KVHeads, c.HeadDim = 2, 6 }},
		{"null head_dim", `"head_dim":null`, func(c *LlamaConfig) {}},
		{"tied", `"tie_word_embeddings":true,"rms_norm_eps":1e-05`, func(c *LlamaConfig) { c.Tied, c.NormEps = true, 1e-5 }},
		{"gelu", `"hidden_act":"gelu_pytorch_tanh"`, func(c *LlamaConfig) { c.Activation = "gelu_tanh" }},
		{"several ends", `"eos_token_id":[1,2],"unknown":{"a":1}`, func(c *LlamaConfig) {}},
		{"mistral", `"model_type":"mistral","architectures":["MistralForCausalLM"],"sliding_window":null,"num_key_value_heads":2`, func(c *LlamaConfig) { c.KVHeads = 2 }},
		{"wide window", `"model_type":"mistral","architectures":["MistralForCausalLM"],"sliding_window":32,"num_key_value_heads":1`, func(c *LlamaConfig) { c.KVHeads = 1 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want := base
			c.change(&want)
			got, _, eos, err := parseHFConfig(object2(llamaJSON, c.extra))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
			if c.name == "several ends" && !slices.Equal(eos, []int32{1, 2}) {
				t.Errorf("ends %v", eos)
			}
		})
	}
}

// object2 joins members; of a key that comes twice the later value counts,
// which only a whole file refuses.
func object2(a, b string) []byte {
	if b != "" {
		a += "," + b
	}
	return []byte("{" + a + "}")
}

func TestHFConfigRefuses(t *testing.T) {
	for extra, want := range map[string]string{
		`"architectures":["GPT2LMHeadModel"]`:                   "GPT2LMHeadModel",
		`"model_type":"qwen2","architectures":[]`:               "qwen2",
		`"attention_bias":true`:                                 "attention_bias",
		`"mlp_bias":true`:                                       "mlp_bias",
		`"quantization_config":{"bits":4}`:                      "quantization_config",
		`"num_local_experts":8`:                                 "experts",
		`"partial_rotary_factor":0.5`:                           "partial_rotary_factor",
		`"rope_parameters":{"rope_type":"yarn"}`:                "yarn",
		`"rope_parameters":{"full_attention":{"rope_theta":1}}`: "by layer",
		`"rope_scaling":{"type":"linear","factor":2}`:           "linear",
		`"rope_theta":1e4,"rope_parameters":{"rope_theta":5e5}`: "both",
		`"hidden_act":"relu"`:                                   "relu",
		`"layer_types":["full_attention","sliding_attention"]`:  "sliding_attention",
		`"model_type":"mistral","sliding_window":16`:            "sliding_window is 16",
		`"model_type":"mistral","max_position_embeddings":8192`: "sliding_window is 4096",
		`"model_type":"mistral","sliding_window":"x"`:           "sliding_window",
		`"num_attention_heads":0`:                               "num_attention_heads",
		`"num_attention_heads":3`:                               "not a multiple",
		`"hidden_size":-8`:                                      "-8",
		`"vocab_size":4000000000`:                               "vocab_size",
		`"num_key_value_heads":3`:                               "share 3",
		`"eos_token_id":"x"`:                                    "token id",
		`"vocab_size":"9"`:                                      "vocab_size",
		`"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":1,"original_max_position_embeddings":8}`: "makes no sense",
	} {
		_, _, _, err := parseHFConfig(object2(llamaJSON, extra))
		wantError(t, err, want)
	}
}

// TestOpenHFRefuses damages an exported, sharded folder in one place at a time.
func TestOpenHFRefuses(t *testing.T) {
	l := llamaFile(t, tiny, tinyTokenizer, false)
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	replace := func(name, from, to string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), from) {
				t.Fatalf("%s does not contain %q", name, from)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(string(b), from, to, 1)), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := "model-00001-of-00003.safetensors"
	cases := []struct {
		name string
		do   func(t *testing.T, dir string)
		want []string
	}{
		{"no config", remove("config.json"), []string{"config.json"}},
		{"no shard", remove("model-00002-of-00003.safetensors"), []string{"model-00002-of-00003.safetensors"}},
		{"no weights", remove(indexName), []string{"neither", "save_pretrained"}},
		{"config is no JSON", replace("config.json", "{", "["), []string{"config.json"}},
		{"index is no JSON", replace(indexName, "{", "["), []string{indexName}},
		{"index without map", replace(indexName, "weight_map", "map"), []string{"weight_map"}},
		{"path out of the folder", replace(indexName, first, "../"+first), []string{"../" + first, "same folder"}},
		{"absolute path", replace(indexName, first, "/etc/x.safetensors"), []string{"/etc/x.safetensors", "same folder"}},
		{"windows path", replace(indexName, first, `..\\x.safetensors`), []string{"same folder"}},
		{"other kind of file", replace(indexName, first, "config.json"), []string{"same folder"}},
		{"wrong shard", replace(indexName, first, "model-00002-of-00003.safetensors"), []string{"does not"}},
		{"renamed tensor", replace(first, "model.embed_tokens", "model.embed_tokenz"), []string{"embed_tokens"}},
		{"other type", replace(first, `"dtype":"F32"`, `"dtype":"I32"`), []string{"I32"}},
		{"other vocabulary", replace("config.json", `"vocab_size": 9`, `"vocab_size": 8`), []string{"embed_tokens", "[9 5]", "[8 5]"}},
		{"fewer layers", replace("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 1`), []string{"no part of a Llama model", "model.layers.1"}},
		{"more layers", replace("config.json", `"num_hidden_layers": 2`, `"num_hidden_layers": 3`), []string{"model.layers.2", "missing"}},
		{"cut shard", func(t *testing.T, dir string) {
			if err := os.Truncate(filepath.Join(dir, first), 500); err != nil {
				t.Fatal(err)
			}
		}, []string{first, "damaged"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "hf")
			if err := ExportHF(dir, l, HFOptions{ShardBytes: 1700}); err != nil {
				t.Fatal(err)
			}
			c.do(t, dir)
			m, err := OpenHF(dir)
			if err == nil {
				m.Close()
			}
			wantError(t, err, append(c.want, dir)...)
		})
	}
	// A tied model's file may hold its head once more; an untied one must.
	c := tiny
	c.Tied = true
	dir := filepath.Join(t.TempDir(), "hf")
	if err := ExportHF(dir, llamaFile(t, c, "", false), HFOptions{}); err != nil {
		t.Fatal(err)
	}
	replace("config.json", `"tie_word_embeddings": true`, `"tie_word_embeddings": false`)(t, dir)
	_, err := OpenHF(dir)
	wantError(t, err, "lm_head.weight", "tie_word_embeddings")
}

// TestImportRefusesNaN: broken weights fail the save, and no file appears.
func TestImportRefusesNaN(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hf")
	if err := ExportHF(dir, llamaFile(t, tiny, "", false), HFOptions{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, singleName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(b[len(b)-4:], []byte{0, 0, 0xc0, 0x7f})
	if err := os.WriteFile(path, b, 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := OpenHF(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	out := filepath.Join(t.TempDir(), "out.llm")
	wantError(t, SaveLLM(out, Header{Config: json.RawMessage(`{}`)}, m.Weights(), nil), "lm_head", "NaN")
	if names := folder(t, filepath.Dir(out)); len(names) != 0 {
		t.Errorf("folder has %q", names)
	}
}

func FuzzHFText(f *testing.F) {
	f.Add([]byte("{"+llamaJSON+"}"), []byte(`{"weight_map":{"a":"b.safetensors"}}`), []byte(tinyTokenizer))
	f.Fuzz(func(t *testing.T, config, index, tokenizer []byte) {
		if c, _, _, err := parseHFConfig(config); err == nil {
			if c.check() != nil {
				t.Errorf("accepted %+v", c)
			}
			if c.Layers < 100 {
				c.tensors()
			}
		}
		if uniqueKeys(index) == nil && !json.Valid(index) {
			t.Errorf("accepted the JSON %q", index)
		}
		_, _ = pickTemplate(index)
		if a, err := parseLoRA(index); err == nil && (a.Rank < 1 || len(a.Targets) == 0) {
			t.Errorf("accepted the adapters %+v", a)
		}
		files, _, err := parseIndex(index)
		for _, name := range files {
			if err == nil && filepath.Base(name) != name {
				t.Errorf("accepted the file %q", name)
			}
		}
		if v, err := parseVocabulary(tokenizer); err == nil {
			v.unreachable()
			_, _ = v.roles(&SpecialTokens{}, nil)
		}
	})
}
