package checkpoint

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Version is the .llm version that this program writes.
const Version = 1

// Metadata keys of an .llm file, beside the checksums (sums.go).
const (
	keyFormat    = "format" // always "pt", which transformers asks for
	keyVersion   = "tezgah.version"
	keyConfig    = "tezgah.config"
	keyFacts     = "tezgah.facts"
	keyState     = "tezgah.state"
	keyTokenizer = "tezgah.tokenizer"
	keyChat      = "tezgah.chat_template"
	keyLoRA      = "tezgah.lora"
)

// momentPrefix begins the names of the optimizer's tensors.
const momentPrefix = "optim."

// Header is what an .llm file holds beside tensors.
type Header struct {
	// Version is filled in by OpenLLM. Saves ignore it and write Version.
	Version int
	// Config is the model's configuration, one JSON value. Required.
	Config json.RawMessage
	// Tokenizer is the whole tokenizer.json, kept byte for byte. Empty for a
	// model without one.
	Tokenizer []byte
	// Facts says how the model came to be: data, tokens seen, losses, seed,
	// device. One JSON value, or nil.
	Facts json.RawMessage
	// State is what exact resume needs beside the moments: step, random
	// number counters, data cursor. One JSON value, or nil in a model that
	// can only generate.
	State json.RawMessage
	// ChatTemplate names how a conversation becomes text ("chatml"), for a
	// model that was trained on conversations; else empty.
	ChatTemplate string
	// LoRA says, in a file that holds adapters in place of weights, how they
	// were made: {"rank": r, "alpha": α, "targets": ["wq", …]}. One JSON value,
	// or nil. The weights then are the pairs NAME.lora_a (in, r) and
	// NAME.lora_b (r, out), which add α/r · a·b to the weight NAME of the base
	// model (Hu et al. 2021), whose configuration Config is.
	LoRA json.RawMessage
}

// SaveLLM writes a model under path, atomically: the disk's free space is
// checked first (*SpaceError), and until the last byte is on the disk the file
// that was there before stays. The names of moments must begin with "optim.",
// those of weights must not; moments are F32, or I8 with F32 scales.
func SaveLLM(path string, h Header, weights, moments []Tensor) error {
	p, err := planLLM(h, weights, moments)
	if err != nil {
		return fmt.Errorf("save %s: %w", path, err)
	}
	return p.save(path)
}

// WriteLLM writes a model to w, which must be empty, and returns its size.
func WriteLLM(w io.WriterAt, h Header, weights, moments []Tensor) (sizeBytes int64, err error) {
	p, err := planLLM(h, weights, moments)
	if err != nil {
		return 0, fmt.Errorf("write .llm: %w", err)
	}
	if err := p.write(w); err != nil {
		return 0, fmt.Errorf("write .llm: %w", err)
	}
	return p.size, nil
}

func planLLM(h Header, weights, moments []Tensor) (*plan, error) {
	for _, t := range weights {
		if strings.HasPrefix(t.Name, momentPrefix) {
			return nil, fmt.Errorf("a weight is called %q: names from %q on belong to the optimizer", t.Name, momentPrefix)
		}
	}
	for _, t := range moments {
		if !strings.HasPrefix(t.Name, momentPrefix) {
			return nil, fmt.Errorf("a moment is called %q, its name must begin with %q", t.Name, momentPrefix)
		}
	}
	if h.Config == nil {
		return nil, fmt.Errorf("the header has no configuration")
	}
	zeros := strings.Repeat("0", hexDigits)
	meta := []pair{{keyFormat, "pt"}, {keyVersion, strconv.Itoa(Version)}, {keySelf, zeros}}
	for _, j := range []struct {
		key string
		raw json.RawMessage
	}{{keyConfig, h.Config}, {keyFacts, h.Facts}, {keyState, h.State}, {keyLoRA, h.LoRA}} {
		if j.raw == nil {
			continue
		}
		if !json.Valid(j.raw) {
			return nil, fmt.Errorf("metadata %q is not valid JSON", j.key)
		}
		meta = append(meta, pair{j.key, string(j.raw)})
	}
	if h.ChatTemplate != "" {
		meta = append(meta, pair{keyChat, h.ChatTemplate})
	}
	ts := append(append([]Tensor(nil), weights...), moments...)
	meta = append(meta, pair{keySums, strings.Repeat(zeros, len(ts))})
	if len(h.Tokenizer) > 0 {
		meta = append(meta, pair{keyTokenizer, string(h.Tokenizer)})
	}
	return planFile(meta, ts)
}

// LLM is an open model file.
type LLM struct {
	*File
	Header Header
}

// OpenLLM opens a model. Everything but the tensors' data is checked; data is
// checked as it is read by Stream, ReadBytes and ReadFloat32, or all at once
// by Verify. A version that this program does not know is refused by name
// (ErrVersion), a safetensors file of another origin is ErrNotLLM.
func OpenLLM(path string) (*LLM, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	l, err := newLLM(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return l, nil
}

// NewLLM is OpenLLM for a file that is already open or lies in memory.
func NewLLM(r io.ReaderAt, sizeBytes int64, name string) (*LLM, error) {
	f, err := NewFile(r, sizeBytes, name)
	if err != nil {
		return nil, err
	}
	return newLLM(f)
}

func newLLM(f *File) (*LLM, error) {
	meta := f.head.meta
	v, ok := meta[keyVersion]
	if !ok {
		return nil, fmt.Errorf("%s: %w: it is a safetensors file without %q; `tezgah import` reads models of other origin", f.name, ErrNotLLM, keyVersion)
	}
	version, err := strconv.Atoi(v)
	switch {
	case err != nil || version < 1:
		return nil, f.damaged(fmt.Errorf("the version is %q", v))
	case version > Version:
		return nil, fmt.Errorf("%s: %w: it is version %d, this program reads up to %d; use a newer tezgah", f.name, ErrVersion, version, Version)
	case meta[keySelf] == "" || !f.hasSums:
		return nil, f.damaged(fmt.Errorf("version 1 has checksums, this file lacks %q or %q", keySelf, keySums))
	}
	h := Header{Version: version, Tokenizer: []byte(meta[keyTokenizer]), ChatTemplate: meta[keyChat]}
	for key, dst := range map[string]*json.RawMessage{keyConfig: &h.Config, keyFacts: &h.Facts, keyState: &h.State, keyLoRA: &h.LoRA} {
		s, ok := meta[key]
		if !ok {
			continue
		}
		if !json.Valid([]byte(s)) {
			return nil, f.damaged(fmt.Errorf("metadata %q is not valid JSON", key))
		}
		*dst = json.RawMessage(s)
	}
	if h.Config == nil {
		return nil, f.damaged(fmt.Errorf("it has no %q", keyConfig))
	}
	return &LLM{f, h}, nil
}

// Weights describes the model's parameters in the order of their data.
func (l *LLM) Weights() []Info { return l.named(false) }

// Moments describes the optimizer's tensors; there are none in a model that
// can only generate.
func (l *LLM) Moments() []Info { return l.named(true) }

func (l *LLM) named(moments bool) []Info {
	var infos []Info
	for _, i := range l.Tensors() {
		if strings.HasPrefix(i.Name, momentPrefix) == moments {
			infos = append(infos, i)
		}
	}
	return infos
}
