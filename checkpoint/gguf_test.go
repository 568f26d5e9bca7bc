package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/tensor"
)

// ggufFile is a file as an independent reading of the specification sees it.
type ggufFile struct {
	kv   map[string]any
	info map[string]ggufInfo
	data []byte
}

type ggufInfo struct {
	dims []uint64 // innermost first
	typ  int32
	off  uint64
}

// ggufReader walks the bytes of a GGUF file.
type ggufReader struct {
	b  []byte
	at int
}

func (r *ggufReader) next(n int) []byte {
	b := r.b[r.at : r.at+n]
	r.at += n
	return b
}
func (r *ggufReader) u32() uint32 { return binary.LittleEndian.Uint32(r.next(4)) }
func (r *ggufReader) u64() uint64 { return binary.LittleEndian.Uint64(r.next(8)) }
func (r *ggufReader) str() string { return string(r.next(int(r.u64()))) }

func (r *ggufReader) value(typ uint32) any {
	switch typ {
	case 4:
		return r.u32()
	case 5:
		return int32(r.u32())
	case 6:
		return math.Float32frombits(r.u32())
	case 7:
		return r.next(1)[0] == 1
	case 8:
		return r.str()
	case 9:
		elem, n := r.u32(), r.u64()
		list := make([]any, n)
		for i := range list {
			list[i] = r.value(elem)
		}
		return list
	}
	panic(fmt.Sprint("value type ", typ))
}

func readGGUF(t *testing.T, path string) *ggufFile {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &ggufReader{b: b}
	if magic, version := string(r.next(4)), r.u32(); magic != "GGUF" || version != 3 {
		t.Fatalf("magic %q, version %d", magic, version)
	}
	nTensors, nKV := r.u64(), r.u64()
	g := &ggufFile{kv: map[string]any{}, info: map[string]ggufInfo{}}
	for range nKV {
		key := r.str()
		if _, ok := g.kv[key]; ok {
			t.Errorf("key %s comes twice", key)
		}
		g.kv[key] = r.value(r.u32())
	}
	end := uint64(0)
	for range nTensors {
		name := r.str()
		i := ggufInfo{dims: make([]uint64, r.u32())}
		for d := range i.dims {
			i.dims[d] = r.u64()
		}
		i.typ, i.off = int32(r.u32()), r.u64()
		if i.off%32 != 0 || i.off < end {
			t.Errorf("%s begins at %d, the tensor before ends at %d", name, i.off, end)
		}
		end = i.off + uint64(i.bytes())
		g.info[name] = i
	}
	start := (r.at + 31) / 32 * 32
	g.data = b[start:]
	if uint64(len(g.data)) != (end+31)/32*32 {
		t.Errorf("data has %d bytes, tensors end at %d", len(g.data), end)
	}
	return g
}

func (i ggufInfo) elements() int {
	n := 1
	for _, d := range i.dims {
		n *= int(d)
	}
	return n
}

func (i ggufInfo) bytes() int {
	switch i.typ {
	case 0:
		return i.elements() * 4
	case 1:
		return i.elements() * 2
	case 8:
		return i.elements() / 32 * 34
	}
	panic(fmt.Sprint("tensor type ", i.typ))
}

// values decodes a tensor.
func (g *ggufFile) values(name string) []float32 {
	i := g.info[name]
	b := g.data[i.off:][:i.bytes()]
	x := make([]float32, i.elements())
	for j := range x {
		switch i.typ {
		case 0:
			x[j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
		case 1:
			x[j] = tensor.FromF16(binary.LittleEndian.Uint16(b[2*j:]))
		case 8:
			block := b[j/32*34:]
			x[j] = tensor.FromF16(binary.LittleEndian.Uint16(block)) * float32(int8(block[2+j%32]))
		}
	}
	return x
}

// ggufModel has rows of 32 and 64, so that q8_0 fits, but for its feed-forward
// size of 40.
var ggufModel = LlamaConfig{
	VocabSize: 9, Context: 32, DModel: 32, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 40,
	RopeTheta: 10000, NormEps: 1e-5, InitStd: 0.02, Activation: "silu",
}

// TestGGUF writes every type and compares what an independent reader finds
// with the model, element by element.
func TestGGUF(t *testing.T) {
	tied := ggufModel
	tied.Tied = true
	for _, c := range []LlamaConfig{ggufModel, tied} {
		for _, typ := range []string{"f32", "f16", "q8_0"} {
			l := llamaFile(t, c, tinyTokenizer, typ == "f16")
			path := filepath.Join(t.TempDir(), "m.gguf")
			notes, err := ExportGGUF(path, l, GGUFOptions{Type: typ, Name: "tiny", Pattern: "llama3"})
			if err != nil {
				t.Fatal(err)
			}
			g := readGGUF(t, path)
			if len(g.info) != len(c.tensors()) || (len(notes) > 0) != (typ == "q8_0") {
				t.Errorf("%s: %d tensors, notes %q", typ, len(g.info), notes)
			}
			for _, lt := range c.tensors() {
				checkGGUFTensor(t, g, l, lt, c, typ)
			}
			checkGGUFKeys(t, g, map[string]uint32{"f32": 0, "f16": 1, "q8_0": 7}[typ])
		}
	}
}

func checkGGUFTensor(t *testing.T, g *ggufFile, l *LLM, lt llamaTensor, c LlamaConfig, typ string) {
	t.Helper()
	info, ok := g.info[lt.gguf]
	if !ok {
		t.Errorf("%s is missing", lt.gguf)
		return
	}
	want := weight(t, l.File, lt.ours)
	got := g.values(lt.gguf)
	in, out := lt.shape[len(lt.shape)-1], 1
	wantType := map[string]int32{"f32": 0, "f16": 1, "q8_0": 8}[typ]
	if len(lt.shape) == 2 {
		in, out = lt.shape[1], lt.shape[0]
		if lt.turned {
			in, out = out, in
		}
		if info.dims[0] != uint64(in) || info.dims[1] != uint64(out) {
			t.Errorf("%s: dims %v, want [%d %d]", lt.gguf, info.dims, in, out)
			return
		}
		if typ == "q8_0" && in%32 != 0 {
			wantType = 1
		}
	} else {
		wantType = 0
	}
	if info.typ != wantType {
		t.Errorf("%s %s has type %d, want %d", typ, lt.gguf, info.typ, wantType)
	}
	d := c.HeadDim
	for o := range out {
		row := o // of the model, for row o of the file
		if lt.heads > 0 {
			// Rows of a head, seen as [2, D/2], become [D/2, 2].
			row = o/d*d + o%d%2*(d/2) + o%d/2
		}
		for i := range in {
			w := want[row*in+i]
			if lt.turned {
				w = want[i*out+row]
			}
			// Half a step of the largest possible scale, and the scale's own
			// rounding to 11 bits; the other types hold the values exactly.
			bound := 0.0
			switch info.typ {
			case 8:
				bound = 0.5/127 + 1.0/2048
			case 1:
				bound = math.Abs(float64(w)) / 2048
			}
			if diff := math.Abs(float64(got[o*in+i] - w)); diff > bound || typ == "f16" && diff != 0 {
				t.Fatalf("%s %s (%d, %d) is %v, want %v within %v", typ, lt.gguf, o, i, got[o*in+i], w, bound)
			}
		}
	}
}

func checkGGUFKeys(t *testing.T, g *ggufFile, fileType uint32) {
	t.Helper()
	for key, want := range map[string]any{
		"general.architecture": "llama", "general.name": "tiny", "general.file_type": fileType,
		"llama.context_length": uint32(32), "llama.embedding_length": uint32(32), "llama.block_count": uint32(2),
		"llama.feed_forward_length": uint32(40), "llama.attention.head_count": uint32(4), "llama.attention.head_count_kv": uint32(2),
		"llama.attention.layer_norm_rms_epsilon": float32(1e-5), "llama.rope.dimension_count": uint32(16), "llama.rope.freq_base": float32(10000),
		"llama.attention.key_length": uint32(16), "llama.attention.value_length": uint32(16), "llama.vocab_size": uint32(9),
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.bos_token_id": uint32(5),
		"tokenizer.ggml.eos_token_id": uint32(5), "tokenizer.ggml.add_bos_token": false,
		"tokenizer.ggml.tokens":     []any{"a", "b", "Ġ", "ab", "Ġab", "<|endoftext|>", "<x>", "[PAD7]", "[PAD8]"},
		"tokenizer.ggml.token_type": []any{int32(1), int32(1), int32(1), int32(1), int32(1), int32(3), int32(4), int32(5), int32(5)},
		"tokenizer.ggml.merges":     []any{"a b", "Ġ ab"},
	} {
		if fmt.Sprintf("%T %v", g.kv[key], g.kv[key]) != fmt.Sprintf("%T %v", want, want) {
			t.Errorf("%s is %v, want %v", key, g.kv[key], want)
		}
	}
}

// TestRopeFactors compares with values computed by hand from the published
// rule: D 8, theta 10000, original context 100, factors 1 and 4, scale 8.
func TestRopeFactors(t *testing.T) {
	c := ggufModel
	c.HeadDim, c.RopeScaling = 8, &RopeScaling{"llama3", 8, 1, 4, 100}
	got := c.ropeFactors()
	// Wavelengths are 2π·10^i: 6.28 (15.9 turns: kept), 62.8 (1.5915 turns:
	// smooth = 0.19718, 1/(0.80282/8 + 0.19718) = 3.3615), 628 and 6283 (under
	// one turn: 8).
	for i, want := range []float64{1, 3.3615, 8, 8} {
		if math.Abs(float64(got[i])-want) > 1e-3 {
			t.Errorf("factor %d is %v, want %v", i, got[i], want)
		}
	}
	path := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := ExportGGUF(path, llamaFile(t, scaledModel(), tinyTokenizer, false), GGUFOptions{Type: "f16", Pattern: "gpt2"}); err != nil {
		t.Fatal(err)
	}
	g := readGGUF(t, path)
	if i := g.info["rope_freqs.weight"]; i.typ != 0 || len(i.dims) != 1 || i.dims[0] != 8 || g.values("rope_freqs.weight")[0] != 1 {
		t.Errorf("rope_freqs.weight is %+v", i)
	}
	if g.kv["tokenizer.ggml.pre"] != "gpt-2" {
		t.Errorf("pattern %v", g.kv["tokenizer.ggml.pre"])
	}
}

func scaledModel() LlamaConfig {
	c := ggufModel
	c.RopeScaling = &RopeScaling{"llama3", 8, 1, 4, 100}
	return c
}

func TestExportGGUFRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.gguf")
	gelu := ggufModel
	gelu.Activation = "gelu_tanh"
	nfc := strings.Replace(tinyTokenizer, `"normalizer":null`, `"normalizer":{"type":"NFC"}`, 1)
	cases := []struct {
		name string
		l    *LLM
		o    GGUFOptions
		want []string
	}{
		{"type", llamaFile(t, ggufModel, tinyTokenizer, false), GGUFOptions{Type: "q4_0", Pattern: "gpt2"}, []string{"q4_0", "q8_0"}},
		{"pattern", llamaFile(t, ggufModel, tinyTokenizer, false), GGUFOptions{Type: "f32", Pattern: "turkish"}, []string{"turkish", "--force"}},
		{"normalizer", llamaFile(t, ggufModel, nfc, false), GGUFOptions{Type: "f32", Pattern: "gpt2"}, []string{"NFC", "--force"}},
		{"activation", llamaFile(t, gelu, tinyTokenizer, false), GGUFOptions{Type: "f32", Pattern: "gpt2"}, []string{"gelu_tanh"}},
		{"vocabulary", llamaFile(t, ggufModel, "", false), GGUFOptions{Type: "f32", Pattern: "gpt2"}, []string{"no vocabulary"}},
	}
	for _, c := range cases {
		_, err := ExportGGUF(path, c.l, c.o)
		wantError(t, err, append(c.want, path)...)
	}
	if names := folder(t, dir); len(names) != 0 {
		t.Errorf("folder has %q", names)
	}
	notes, err := ExportGGUF(path, llamaFile(t, ggufModel, nfc, false), GGUFOptions{Type: "f32", Pattern: "turkish", Force: true})
	if err != nil || len(notes) != 2 {
		t.Errorf("forced: %q, %v", notes, err)
	}
}

// TestVocabulary reads both styles of merges, and refuses contradictions.
func TestVocabulary(t *testing.T) {
	old := strings.Replace(tinyTokenizer, `[["a","b"],["Ġ","ab"]]`, `["a b","Ġ ab"]`, 1)
	for _, raw := range []string{tinyTokenizer, old} {
		v, err := parseVocabulary([]byte(raw))
		if err != nil || len(v.tokens) != 7 || !slices.Equal(v.merges, []string{"a b", "Ġ ab"}) || !v.special[5] || v.special[6] || !v.added[6] {
			t.Errorf("%+v, %v", v, err)
		}
		if n, _ := v.unreachable(); n != 0 {
			t.Errorf("%d tokens are out of reach", n)
		}
	}
	v, err := parseVocabulary([]byte(strings.Replace(tinyTokenizer, `["Ġ","ab"]`, `["Ġ","a"]`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if n, first := v.unreachable(); n != 1 || first != "Ġab" {
		t.Errorf("%d tokens are out of reach, first %q", n, first)
	}
	for change, want := range map[[2]string]string{
		{`"BPE"`, `"WordPiece"`}:     "WordPiece",
		{`"b":1`, `"b":0`}:           "both",
		{`"b":1`, `"b":9`}:           "id 9",
		{`"b":1`, `"b":-1`}:          "id -1",
		{`"id":6`, `"id":4`}:         "both",
		{`"b":1,`, ``}:               "has id 6, want 0 to 5",
		{`["a","b"]`, `["a b","c"]`}: "space",
		{`"b":1,`, `"b1":2,`}:        "both",
		{`["a","b"]`, `["a"]`}:       "merge",
		{`["a","b"]`, `"a b"`}:       "merges",
		{`{"version"`, `{"version`}:  "tokenizer.json",
	} {
		_, err := parseVocabulary([]byte(strings.Replace(tinyTokenizer, change[0], change[1], 1)))
		wantError(t, err, want)
	}
}
