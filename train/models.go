package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// DefaultLR is a peak learning rate by the number of parameters n:
// 6e-4·(124M/n)^¼, between 2e-4 and 3e-3. The anchor is the rate commonly
// used for models of GPT-2's smallest size with batches of half a million
// tokens; smaller models bear more.
func DefaultLR(c model.Config) float64 {
	c = c.WithDefaults()
	c.VocabSize = 0 // the embedding says little about the rate, and may not be known yet
	n := float64(max(1, c.NumParams()))
	return min(3e-3, max(2e-4, 6e-4*math.Pow(124e6/n, 0.25)))
}

// DefaultRate is the peak learning rate of a run that names none: DefaultLR of
// its model, and a tenth of that when all weights of a finished model are
// fine-tuned on conversations, which should keep what it knows. Adapters bear
// about ten times the rate that suits the whole model (Schulman et al., "LoRA
// Without Regret", 2025), so theirs is DefaultLR again.
func DefaultRate(c Config) float64 {
	lr := DefaultLR(c.Model)
	if len(c.Chats) > 0 && c.InitFrom != "" && !c.LoRA.Ok() {
		lr /= 10
	}
	return lr
}

// AutoModel returns the largest preset whose training fits the free memory of a
// device, on which nothing is allocated yet.
func AutoModel(c Config, b op.Backend) (model.Config, error) {
	lim := b.Limits()
	if lim.FreeBytes <= 0 {
		return model.Config{}, fmt.Errorf("--preset auto: this device does not tell its free memory: choose one of %v", model.Presets())
	}
	vocab, err := vocabOf(c)
	if err != nil {
		return model.Config{}, err
	}
	setDefault(&c.Batch, 8)
	if round := Rounding(c.Precision, b); round != tensor.F32 {
		r := b.(op.Rounder)
		if err := r.RoundProducts(round); err != nil {
			return model.Config{}, err
		}
		defer r.RoundProducts(tensor.F32)
	}
	operands := op.OperandType(b)
	free, last := lim.FreeBytes, error(nil)
	for {
		name, m, least, err := model.AutoPreset(vocab, free, c.paramOptions(lim, operands), c.graphOptions(), lim, operands)
		if err != nil && last != nil {
			err = fmt.Errorf("no preset fits: %w; use a smaller batch, a shorter context or recompute", last)
		}
		if err != nil {
			return m, err
		}
		c.Model = m
		plan, _, err := c.memoryPlan(lim, operands, b)
		if err != nil || plan.Total() <= lim.FreeBytes {
			return m, err
		}
		last = fmt.Errorf("preset %s needs %s with what its kernels need, %s are free", name, model.FormatBytes(plan.Total()), model.FormatBytes(lim.FreeBytes))
		free = least.Total() - 1 // the next smaller one
	}
}

// vocabOf is the number of ids in the data of a run that has no model yet.
func vocabOf(c Config) (int, error) {
	if len(c.Chats) > 0 {
		var d data
		err := d.chatTokenizer(c, baseModel{})
		return d.vocab, err
	}
	opt, err := openOptions(c, baseModel{})
	if err != nil {
		return 0, err
	}
	f, err := corpus.Open(c.Data[0].Path, opt)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.VocabSize(), nil
}

// ModelFile finds the .llm that a path means: the file itself, or of a run
// folder the finished model, else the newest checkpoint that is whole. skipped
// are the newer ones that are not.
func ModelFile(path string) (file string, skipped []checkpoint.Skipped, err error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", nil, fmt.Errorf("%s: no such run folder or .llm file", path)
	}
	if !fi.IsDir() {
		return path, nil, nil
	}
	done := filepath.Join(path, ModelName)
	if isFile(done) {
		return done, nil, nil
	}
	c, skipped, err := checkpoint.Latest(path)
	if err != nil {
		return "", skipped, fmt.Errorf("%s: %w", strings.TrimRight(path, "/"), err)
	}
	return c.Path, skipped, nil
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// ModelOf reads the configuration of a .llm file.
func ModelOf(path string) (model.Config, error) {
	f, err := checkpoint.OpenLLM(path)
	if err != nil {
		return model.Config{}, err
	}
	defer f.Close()
	return configOf(f)
}

// configOf reads the configuration of an open model file.
func configOf(f *checkpoint.LLM) (c model.Config, err error) {
	if err := json.Unmarshal(f.Header.Config, &c); err != nil {
		return c, fmt.Errorf("%s: model configuration: %w", f.Name(), err)
	}
	return c.WithDefaults(), c.Validate()
}

// Loaded is a model on a device, with its tokenizer.
type Loaded struct {
	Params       *model.Params
	Tokenizer    *bpe.Tokenizer
	ChatTemplate string // of the conversations it was trained on; empty for none
	Facts        json.RawMessage
}

// EndIDs are the tokens that end what the model writes, beside the
// end-of-document token: those that the facts of an imported file name
// (end_tokens), and the end of a turn of its chat template. They are also where
// other programs stop with the model's export.
func (m *Loaded) EndIDs() []int32 {
	var known struct {
		Ends []string `json:"end_tokens"`
	}
	if json.Unmarshal(m.Facts, &known) != nil {
		known.Ends = nil // facts of another origin
	}
	if t, err := chat.Lookup(m.ChatTemplate); err == nil {
		known.Ends = append(known.Ends, t.EndText())
	}
	var ids []int32
	for _, content := range known.Ends {
		if id, ok := m.Tokenizer.SpecialID(content); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// LoadModel puts the weights of a .llm file on the device behind r, without
// gradients or moments. With mirror, kernels read 16-bit weights. A checkpoint
// of adapters is merged into the base model that lies beside it.
func LoadModel(r *op.Runner, path string, mirror bool) (*Loaded, error) {
	f, whole, closeFiles, err := openWhole(path)
	if err != nil {
		return nil, err
	}
	defer closeFiles()
	cfg, err := configOf(whole)
	if err != nil {
		return nil, err
	}
	m := &Loaded{Facts: f.Header.Facts, ChatTemplate: f.Header.ChatTemplate}
	if m.Tokenizer, err = tokenizerOf(whole, cfg); err != nil {
		return nil, err
	}
	if m.Params, err = model.NewParams(r, cfg, model.ParamOptions{Mirror: mirror && r.Backend().Limits().F16}); err != nil {
		return nil, err
	}
	if err := loadWeights(m.Params, m.Params.Weights(), whole, f); err != nil {
		m.Params.Close()
		return nil, err
	}
	return m, r.Err()
}

// tokenizerOf reads the tokenizer of an open model file.
func tokenizerOf(f *checkpoint.LLM, c model.Config) (*bpe.Tokenizer, error) {
	if len(f.Header.Tokenizer) == 0 {
		return nil, fmt.Errorf("%s holds no tokenizer", f.Name())
	}
	t, err := bpe.Parse(f.Header.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("%s: its tokenizer: %w", f.Name(), err)
	}
	if n := t.VocabSize(); n > c.VocabSize {
		return nil, fmt.Errorf("%s: the tokenizer has %d ids but the model only %d", f.Name(), n, c.VocabSize)
	}
	return t, nil
}

// loadWeights reads weights of p from whole, and adds the adapters in f, if
// that is another file.
func loadWeights(p *model.Params, weights []model.State, whole, f *checkpoint.LLM) error {
	if err := LoadStates(p.Runner(), whole, weights); err != nil {
		return err
	}
	if f != whole {
		if err := addAdapters(p, f); err != nil {
			return err
		}
	}
	changed(p)
	return nil
}

// openWhole opens a model file for its weights. Where it holds adapters, whole
// is the base model beside it, else the same file.
func openWhole(path string) (f, whole *checkpoint.LLM, closeFiles func(), err error) {
	if f, err = checkpoint.OpenLLM(path); err != nil {
		return nil, nil, nil, err
	}
	if f.Header.LoRA == nil {
		return f, f, func() { f.Close() }, nil
	}
	whole, err = checkpoint.OpenLLM(filepath.Join(filepath.Dir(path), BaseName))
	if err != nil {
		f.Close()
		return nil, nil, nil, fmt.Errorf("%s holds adapters alone, and the model that they belong to should be beside it: %w", path, err)
	}
	return f, whole, func() { f.Close(); whole.Close() }, nil
}
