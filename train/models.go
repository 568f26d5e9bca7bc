package train

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"tezgah/bpe"
	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/model"
	"tezgah/op"
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

// AutoModel returns the largest preset whose training fits the free memory.
func AutoModel(c Config, lim op.Limits) (model.Config, error) {
	if lim.FreeBytes <= 0 {
		return model.Config{}, fmt.Errorf("--preset auto: this device does not tell its free memory: choose one of %v", model.Presets())
	}
	vocab, err := vocabOf(c)
	if err != nil {
		return model.Config{}, err
	}
	setDefault(&c.Batch, 8)
	t := Trainer{cfg: c}
	_, m, _, err := model.AutoPreset(vocab, lim.FreeBytes, t.paramOptions(lim), t.graphOptions(), lim)
	return m, err
}

// vocabOf is the number of ids in the data of a run that has no model yet.
func vocabOf(c Config) (int, error) {
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
	if fi, err := os.Stat(done); err == nil && fi.Mode().IsRegular() {
		return done, nil, nil
	}
	c, skipped, err := checkpoint.Latest(path)
	if err != nil {
		return "", skipped, fmt.Errorf("%s: %w", strings.TrimRight(path, "/"), err)
	}
	return c.Path, skipped, nil
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
	Params    *model.Params
	Tokenizer *bpe.Tokenizer
	Facts     json.RawMessage
}

// LoadModel puts the weights of a .llm file on the device behind r, without
// gradients or moments. With mirror, kernels read 16-bit weights.
func LoadModel(r *op.Runner, path string, mirror bool) (*Loaded, error) {
	f, err := checkpoint.OpenLLM(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cfg, err := configOf(f)
	if err != nil {
		return nil, err
	}
	m := &Loaded{Facts: f.Header.Facts}
	if len(f.Header.Tokenizer) == 0 {
		return nil, fmt.Errorf("%s holds no tokenizer", path)
	}
	if m.Tokenizer, err = bpe.Parse(f.Header.Tokenizer); err != nil {
		return nil, fmt.Errorf("%s: its tokenizer: %w", path, err)
	}
	if n := m.Tokenizer.VocabSize(); n > cfg.VocabSize {
		return nil, fmt.Errorf("%s: the tokenizer has %d ids but the model only %d", path, n, cfg.VocabSize)
	}
	if m.Params, err = model.NewParams(r, cfg, model.ParamOptions{Mirror: mirror && r.Backend().Limits().F16}); err != nil {
		return nil, err
	}
	if err := LoadStates(r, f, m.Params.Weights()); err != nil {
		m.Params.Close()
		return nil, err
	}
	m.Params.RefreshMirror()
	return m, r.Err()
}
