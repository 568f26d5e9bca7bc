package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"tezgah/tensor"
)

// GGUFOptions says how a GGUF file is written.
type GGUFOptions struct {
	Type    string // "f32", "f16" or "q8_0"; norms are always F32
	Name    string // general.name
	Pattern string // the tokenizer's pre-token pattern, by bpe's name
	Special SpecialTokens
	Chat    *ChatFormat // nil for a model that was not trained on conversations
	Force   bool        // write a pattern or normalizer that llama.cpp does not know as the nearest it does
}

// ggufPatterns maps pre-token patterns to the names that llama.cpp knows.
var ggufPatterns = map[string]string{"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2"}

// ExportGGUF writes the model l as a GGUF file (version 3, architecture
// "llama") for llama.cpp and its relatives, atomically. The notes say what the
// reader should know, such as tokens that would be cut differently.
func ExportGGUF(path string, l *LLM, o GGUFOptions) (notes []string, err error) {
	g := &gguf{}
	if err := g.plan(l, o); err != nil {
		return nil, fmt.Errorf("export to %s: %w", path, err)
	}
	if err := checkSpace(path, g.size()); err != nil {
		return nil, err
	}
	a, err := createAtomic(path)
	if err != nil {
		return nil, err
	}
	if err := g.write(a.f); err != nil {
		a.abort()
		return nil, saveError(path, g.size(), err)
	}
	return g.notes, saveError(path, g.size(), a.commit())
}

const (
	ggufVersion = 3
	ggufAlign   = 32
	maxGGUFName = 64 // bytes of a tensor's name
)

// gguf is a file that is ready to be written.
type gguf struct {
	kv      []byte // encoded pairs
	nKV     int
	tensors []ggufTensor
	notes   []string
}

// ggufTensor is one tensor: its shape is outermost first, as everywhere else
// here; the file has it the other way round.
type ggufTensor struct {
	name  string
	shape []int
	enc   ggufEncoding
	data  func(each func(x []float32) error) error
	size  int64 // bytes without padding
}

// ggufEncoding is an element type of GGUF.
type ggufEncoding struct {
	id     int32 // in the file
	group  int   // elements that are encoded together
	bytes  int   // of a group
	append func(dst []byte, src []float32) []byte
}

var (
	ggufF32 = ggufEncoding{0, 1, 4, must(narrower(tensor.F32))}
	ggufF16 = ggufEncoding{1, 1, 2, must(narrower(tensor.F16))}
	ggufQ8  = ggufEncoding{8, 32, 34, appendQ8}
)

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// ggufTypes gives the encoding of matrices and general.file_type by name.
var ggufTypes = map[string]struct {
	enc      ggufEncoding
	fileType uint32
}{"f32": {ggufF32, 0}, "f16": {ggufF16, 1}, "q8_0": {ggufQ8, 7}}

func (g *gguf) plan(l *LLM, o GGUFOptions) error {
	if l.Header.LoRA != nil {
		return errAdapter
	}
	c, err := parseLlamaConfig(l.Header.Config)
	if err != nil {
		return err
	}
	typ, ok := ggufTypes[o.Type]
	switch {
	case !ok:
		return fmt.Errorf("type is %q, want f32, f16 or q8_0", o.Type)
	case c.Activation != "silu":
		return fmt.Errorf("the activation is %s, GGUF's llama architecture always computes silu", c.Activation)
	}
	g.addModel(c, o.Name, typ.fileType)
	if err := g.addTokenizer(l.Header.Tokenizer, c, o); err != nil {
		return err
	}
	return g.addTensors(l.File, c, typ.enc)
}

func (g *gguf) addModel(c LlamaConfig, name string, fileType uint32) {
	g.str("general.architecture", "llama")
	if name != "" {
		g.str("general.name", name)
	}
	g.u32("general.file_type", fileType)
	if fileType == 7 {
		g.u32("general.quantization_version", 2)
	}
	g.u32("llama.context_length", uint32(c.Context))
	g.u32("llama.embedding_length", uint32(c.DModel))
	g.u32("llama.block_count", uint32(c.Layers))
	g.u32("llama.feed_forward_length", uint32(c.FFN))
	g.u32("llama.attention.head_count", uint32(c.Heads))
	g.u32("llama.attention.head_count_kv", uint32(c.KVHeads))
	g.u32("llama.attention.key_length", uint32(c.HeadDim))
	g.u32("llama.attention.value_length", uint32(c.HeadDim))
	g.f32("llama.attention.layer_norm_rms_epsilon", float32(c.NormEps))
	g.u32("llama.rope.dimension_count", uint32(c.HeadDim))
	g.f32("llama.rope.freq_base", float32(c.RopeTheta))
	g.u32("llama.vocab_size", uint32(c.VocabSize))
}

// addTensors lists the weights. Rows of q and k are permuted, because
// llama.cpp turns neighbours (2i, 2i+1) where we turn i and i + D/2.
func (g *gguf) addTensors(f *File, c LlamaConfig, enc ggufEncoding) error {
	for _, lt := range c.tensors() {
		s := source{f: f, name: lt.ours, shape: lt.shape, turned: lt.turned}
		if lt.heads > 0 {
			half := c.HeadDim / 2
			s.unit, s.perm = c.HeadDim, func(row int) int { return row%2*half + row/2 }
		}
		if err := s.check(); err != nil {
			return err
		}
		t := ggufTensor{name: lt.gguf, shape: lt.theirShape(), enc: enc, data: s.stream}
		switch {
		case len(t.shape) == 1:
			t.enc = ggufF32
		case t.shape[1]%enc.group != 0:
			t.enc = ggufF16
			g.notes = append(g.notes, fmt.Sprintf("%s has rows of %d, not a multiple of %d: written as f16", t.name, t.shape[1], enc.group))
		}
		g.tensors = append(g.tensors, t)
	}
	if c.RopeScaling != nil {
		factors := c.ropeFactors()
		g.tensors = append(g.tensors, ggufTensor{name: "rope_freqs.weight", shape: []int{len(factors)}, enc: ggufF32,
			data: func(each func(x []float32) error) error { return each(factors) }})
	}
	for i := range g.tensors {
		t := &g.tensors[i]
		n := Info{Shape: t.shape}.Elements()
		t.size = n / int64(t.enc.group) * int64(t.enc.bytes)
		if len(t.name) > maxGGUFName {
			return fmt.Errorf("tensor name %q has %d bytes, want at most %d", t.name, len(t.name), maxGGUFName)
		}
	}
	return nil
}

// ropeFactors is how much Llama 3's scaling slows each of the D/2 rotary
// frequencies: not at all those of short wavelength, by Factor those longer
// than the original context, in between smoothly.
func (c LlamaConfig) ropeFactors() []float32 {
	r := c.RopeScaling
	factors := make([]float32, c.HeadDim/2)
	for i := range factors {
		wavelength := 2 * math.Pi * math.Pow(c.RopeTheta, 2*float64(i)/float64(c.HeadDim))
		turns := float64(r.OriginalContext) / wavelength // in the original context
		switch {
		case turns > r.HighFreqFactor:
			factors[i] = 1
		case turns < r.LowFreqFactor:
			factors[i] = float32(r.Factor)
		default:
			smooth := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
			factors[i] = float32(1 / ((1-smooth)/r.Factor + smooth))
		}
	}
	return factors
}

// head encodes everything before the tensors' data, with its padding.
func (g *gguf) head() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte("GGUF"), ggufVersion)
	b = le.AppendUint64(b, uint64(len(g.tensors)))
	b = le.AppendUint64(b, uint64(g.nKV))
	b = append(b, g.kv...)
	var at int64
	for _, t := range g.tensors {
		b = appendGGUFString(b, t.name)
		b = le.AppendUint32(b, uint32(len(t.shape)))
		for _, d := range slices.Backward(t.shape) {
			b = le.AppendUint64(b, uint64(d))
		}
		b = le.AppendUint32(b, uint32(t.enc.id))
		b = le.AppendUint64(b, uint64(at))
		at += alignGGUF(t.size)
	}
	return append(b, make([]byte, alignGGUF(int64(len(b)))-int64(len(b)))...)
}

func alignGGUF(n int64) int64 { return (n + ggufAlign - 1) / ggufAlign * ggufAlign }

// size is the length of the whole file.
func (g *gguf) size() int64 {
	n := int64(len(g.head()))
	for _, t := range g.tensors {
		n += alignGGUF(t.size)
	}
	return n
}

// write writes the data, padded with zeros, and then what stands before it.
func (g *gguf) write(w io.WriterAt) error {
	head := g.head()
	at := int64(len(head))
	var buf []byte
	for _, t := range g.tensors {
		s := &sink{w: w, at: at, left: t.size}
		err := t.data(func(x []float32) error {
			for len(x) > 0 {
				n := min(len(x), chunkBytes/4) // a multiple of every group
				buf = t.enc.append(buf[:0], x[:n])
				if _, err := s.Write(buf); err != nil {
					return err
				}
				x = x[n:]
			}
			return nil
		})
		if err == nil && s.left != 0 {
			err = fmt.Errorf("got %d bytes of data, want %d", t.size-s.left, t.size)
		}
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.name, err)
		}
		padding := make([]byte, alignGGUF(t.size)-t.size)
		if _, err := w.WriteAt(padding, s.at); err != nil {
			return err
		}
		at += alignGGUF(t.size)
	}
	_, err := w.WriteAt(head, 0)
	return err
}
