package checkpoint

import (
	"encoding/json"
	"hash/crc32"
	"path/filepath"
	"testing"
)

// oldFile is a file that an earlier program wrote. testdata/old was made with
//
//	tezgah tokenizer train --vocab-size 320 --special '<|endoftext|>,<|im_start|>,<|im_end|>' --out t.json text.txt README.md
//	tezgah data build --tokenizer t.json --out d.bin text.txt (four times)
//	tezgah train --data d.bin --out f32 --d-model 16 --layers 2 --heads 2 --kv-heads 1 --ffn 32 --context 32 --batch 4
//	    --lr 2e-2 --seed 3 --val-fraction 0.2 --max-steps 120 --checkpoint-every 90            (m8: with --moments8)
//	tezgah train --init f32 --sft chats.jsonl --out lora --lora r=2,alpha=4 --batch 2 --lr 2e-2 --max-steps 60
//	    --checkpoint-every 45 --seed 3
//
// and is never written again: a new version of the format adds files.
type oldFile struct {
	path             string
	weights, moments int
	step             int64  // of the state; 0 for none
	template         string // chat template
	lora             bool
	tokenizer        bool
	sum              uint32             // CRC-32C of all tensors' data in their order
	values           map[string]float32 // the first element of some tensors
}

var oldFiles = []oldFile{
	{"model.llm", 20, 0, 0, "", false, true, 0xc21e8d99, map[string]float32{"tok_emb": 0.42351425, "layers.1.w_down": 0.09124094}},
	{"f32/step-000000090.llm", 20, 40, 90, "", false, true, 0xa5e7044a, map[string]float32{"tok_emb": 0.40169483, "optim.v.final_norm": 0.0003834043}},
	{"m8/step-000000090.llm", 20, 80, 90, "", false, true, 0x3e60b68b, map[string]float32{"layers.0.wq": -0.119313516, "optim.v_scale.layers.0.wq": 1.6014197e-05}},
	{"lora/step-000000045.llm", 28, 56, 45, "chatml", true, false, 0xcea61a00, map[string]float32{"layers.0.wq.lora_a": -0.16326976, "layers.1.w_up.lora_b": -0.023728175}},
	{"lora/base.llm", 20, 0, 0, "chatml", false, true, 0xc21e8d99, map[string]float32{"tok_emb": 0.42351425}},
}

// TestOldFiles: every later version must go on reading these, to the bit.
func TestOldFiles(t *testing.T) {
	for _, want := range oldFiles {
		t.Run(want.path, func(t *testing.T) {
			l, err := OpenLLM(filepath.Join("testdata", "old", want.path))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if err := l.Verify(); err != nil {
				t.Error(err)
			}
			checkOldHeader(t, l, want)
			var sum uint32
			for _, i := range l.Tensors() {
				b := make([]byte, i.SizeBytes())
				if err := l.ReadBytes(i.Name, b); err != nil {
					t.Fatal(err)
				}
				sum = crc32.Update(sum, castagnoli, b)
			}
			if sum != want.sum {
				t.Errorf("the data has CRC-32C %#08x, want %#08x", sum, want.sum)
			}
			for name, v := range want.values {
				if got := weight(t, l.File, name)[0]; got != v {
					t.Errorf("%s begins with %v, want %v", name, got, v)
				}
			}
		})
	}
}

func checkOldHeader(t *testing.T, l *LLM, want oldFile) {
	t.Helper()
	h := l.Header
	if h.Version != 1 || h.ChatTemplate != want.template || (h.LoRA != nil) != want.lora || (len(h.Tokenizer) > 0) != want.tokenizer || h.Facts == nil {
		t.Errorf("header is %+v", h)
	}
	if len(l.Weights()) != want.weights || len(l.Moments()) != want.moments {
		t.Errorf("%d weights and %d moments, want %d and %d", len(l.Weights()), len(l.Moments()), want.weights, want.moments)
	}
	var state struct{ Step int64 }
	if (h.State != nil) != (want.step > 0) {
		t.Errorf("state is %s", h.State)
	} else if h.State != nil {
		if err := json.Unmarshal(h.State, &state); err != nil || state.Step != want.step {
			t.Errorf("state is %s, want step %d", h.State, want.step)
		}
	}
	c, err := parseLlamaConfig(h.Config)
	if err != nil || c.DModel != 16 || c.VocabSize != 320 || c.Layers != 2 {
		t.Errorf("configuration %+v, %v", c, err)
	}
	if len(h.Tokenizer) > 0 {
		if v, err := parseVocabulary(h.Tokenizer); err != nil || len(v.tokens) != 320 {
			t.Errorf("vocabulary: %v", err)
		}
	}
}
