package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tezgah/tensor"
)

// tiny is a model with H·D ≠ C, grouped heads, an odd width and its own head.
var tiny = LlamaConfig{
	VocabSize: 9, Context: 32, DModel: 5, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 7,
	RopeTheta: 500000, NormEps: 1e-6, InitStd: 0.02, Activation: "silu",
}

// tinyTokenizer has 7 tokens, one special, one added but ordinary.
const tinyTokenizer = `{"version":"1.0","added_tokens":[{"id":5,"content":"<|endoftext|>","special":true},{"id":6,"content":"<x>","special":false}],
"normalizer":null,"model":{"type":"BPE","vocab":{"a":0,"b":1,"Ġ":2,"ab":3,"Ġab":4},"merges":[["a","b"],["Ġ","ab"]]}}`

// llamaFile builds an .llm in memory with reproducible weights of ordinary
// size. The weights of type F32 are exact in float16 and bfloat16 when coarse.
func llamaFile(t testing.TB, c LlamaConfig, tokenizer string, coarse bool) *LLM {
	t.Helper()
	var ts []Tensor
	for i, lt := range c.tensors() {
		info := Info{Name: lt.ours, Shape: lt.shape}
		x := make([]float32, info.Elements())
		r := tensor.NewRNG(11, uint64(i))
		for j := range x {
			x[j] = float32(int32(r.Uint64(uint64(j)))) / (1 << 31)
			if coarse {
				x[j] = float32(int(x[j]*100)) / 64
			}
		}
		ts = append(ts, Float32s(lt.ours, lt.shape, x))
	}
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var f MemFile
	if _, err := WriteLLM(&f, Header{Config: config, Tokenizer: []byte(tokenizer)}, ts, nil); err != nil {
		t.Fatal(err)
	}
	l, err := readLLM(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// weight reads a whole tensor as float32.
func weight(t testing.TB, f *File, name string) []float32 {
	t.Helper()
	info, ok := f.Lookup(name)
	if !ok {
		t.Fatalf("%s has no tensor %q", f.Name(), name)
	}
	x := make([]float32, info.Elements())
	if err := f.ReadFloat32(name, x); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestTurn compares the blocked transposition with its definition, for block
// sizes from one column to all, with and without permutation.
func TestTurn(t *testing.T) {
	defer func(n int) { turnBytes = n }(turnBytes)
	for _, shape := range [][2]int{{1, 1}, {1, 6}, {7, 1}, {16, 12}, {17, 30}, {33, 6}} {
		rows, cols := shape[0], shape[1]
		x := values(3, rows*cols)
		var f MemFile
		if _, err := WriteLLM(&f, Header{Config: json.RawMessage(`{}`)}, []Tensor{Float32s("x", shape[:], x)}, nil); err != nil {
			t.Fatal(err)
		}
		l, err := readLLM(f.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, turnBytes = range []int{1, 4 * rows, 4 * rows * 7, 4 * rows * cols, 64 << 20} {
			for _, unit := range []int{1, 6} {
				if cols%unit != 0 {
					continue
				}
				s := source{f: l.File, name: "x", shape: shape[:], turned: true, unit: unit}
				if unit > 1 {
					s.perm = func(i int) int { return i%2*3 + i/2 }
				}
				var got []float32
				if err := s.stream(func(p []float32) error { got = append(got, p...); return nil }); err != nil {
					t.Fatal(err)
				}
				for o := range cols {
					c := o
					if s.perm != nil {
						c = o/6*6 + []int{0, 3, 1, 4, 2, 5}[o%6]
					}
					for r := range rows {
						if got[o*rows+r] != x[r*cols+c] {
							t.Fatalf("%v, %d bytes, unit %d: output (%d, %d) is wrong", shape, turnBytes, unit, o, r)
						}
					}
				}
			}
		}
		// Damage is found although parts of rows are read.
		turnBytes = 1
		f.Bytes()[len(f.Bytes())-1] ^= 1
		s := source{f: l.File, name: "x", shape: shape[:], turned: true}
		if err := s.stream(func([]float32) error { return nil }); err == nil || !strings.Contains(err.Error(), "CRC") {
			t.Errorf("damage gave %v", err)
		}
	}
}

func TestNonFiniteWeights(t *testing.T) {
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		var f MemFile
		if _, err := WriteSafetensors(&f, nil, []Tensor{Float32s("x", []int{2, 2}, []float32{1, 2, bad, 4})}); err != nil {
			t.Fatal(err)
		}
		r, err := NewFile(bytes.NewReader(f.Bytes()), int64(len(f.Bytes())), "mem")
		if err != nil {
			t.Fatal(err)
		}
		for _, turned := range []bool{false, true} {
			s := source{f: r, name: "x", shape: []int{2, 2}, turned: turned}
			wantError(t, s.stream(func([]float32) error { return nil }), `"x"`, fmt.Sprint(bad), "earlier checkpoint")
		}
	}
}

// TestNarrow checks that each type holds what it can hold and rounds the rest.
func TestNarrow(t *testing.T) {
	x := []float32{1, -2.5, 1 + 1.0/4096, 70000}
	for dt, want := range map[tensor.DType][]float32{
		tensor.F32: x, tensor.F16: {1, -2.5, 1, 65504}, tensor.BF16: {1, -2.5, 1, 70144},
	} {
		narrow, err := narrower(dt)
		if err != nil {
			t.Fatal(err)
		}
		widen, err := widener(dt)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(x))
		widen(got, narrow(nil, x))
		if !slices.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", dt, got, want)
		}
	}
	if _, err := narrower(tensor.I8); err == nil {
		t.Error("weights were accepted as I8")
	}
}

func TestLlamaConfigRefuses(t *testing.T) {
	for change, want := range map[string]string{
		`"experts":8`:           "experts",
		`"activation":"relu"`:   "relu",
		`"kv_heads":3`:          "share 3",
		`"head_dim":5`:          "head_dim is 5",
		`"layers":0`:            "layers is 0",
		`"d_model":-1`:          "d_model is -1",
		`"vocab_size":99999999`: "vocab_size",
		`"rope_theta":1`:        "rope_theta",
		`"norm_eps":2`:          "norm_eps",
		`"rope_scaling":{}`:     "rope scaling",
		`"heads":"4"`:           "heads",
		`"rope_scaling":{"type":"llama3","factor":0}`: "makes no sense",
	} {
		raw := `{"vocab_size":9,"context":32,"d_model":8,"layers":2,"heads":4,` + change + `}`
		_, err := parseLlamaConfig(json.RawMessage(raw))
		wantError(t, err, want)
	}
	c, err := parseLlamaConfig(json.RawMessage(`{"vocab_size":9,"context":32,"d_model":8,"layers":2,"heads":4}`))
	if err != nil || c.KVHeads != 4 || c.HeadDim != 2 || c.FFN != 32 || c.RopeTheta != 10000 || c.NormEps != 1e-5 || c.Activation != "silu" {
		t.Errorf("defaults: %+v, %v", c, err)
	}
}
