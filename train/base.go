package train

import (
	"fmt"
	"slices"

	"tezgah/bpe"
	"tezgah/checkpoint"
	"tezgah/model"
)

// baseModel is what the data must fit: the tokenizer and the chat template of
// the model that training starts from. It is zero for random weights.
type baseModel struct {
	path      string
	tokenizer *bpe.Tokenizer // nil: the file has none
	template  string
}

// readBase reads a model file's tokenizer and template.
func readBase(path string) (baseModel, error) {
	f, err := checkpoint.OpenLLM(path)
	if err != nil {
		return baseModel{}, err
	}
	defer f.Close()
	b := baseModel{path: path, template: f.Header.ChatTemplate}
	if len(f.Header.Tokenizer) > 0 {
		if b.tokenizer, err = bpe.Parse(f.Header.Tokenizer); err != nil {
			return b, fmt.Errorf("%s: its tokenizer: %w", path, err)
		}
	}
	return b, nil
}

// withBase makes InitFrom, which may be a run folder, name one model file, and
// takes the architecture from there when none is given.
func (c Config) withBase() (_ Config, notices []string, err error) {
	if c.InitFrom == "" {
		return c, nil, nil
	}
	file, skipped, err := ModelFile(c.InitFrom)
	if err != nil {
		return c, nil, err
	}
	for _, s := range skipped {
		notices = append(notices, fmt.Sprintf("%s is left out: %v", s.Path, s.Err))
	}
	c.InitFrom = file
	if c.Model == (model.Config{}) {
		c.Model, err = ModelOf(file)
	}
	return c, notices, err
}

// findBase reads what is needed of the model that the run starts from. A run
// that is resumed finds it in its own folder, so that it does not depend on
// the file it began with.
func (t *Trainer) findBase() (baseModel, error) {
	if t.cfg.InitFrom == "" {
		return baseModel{}, nil
	}
	list, err := checkpoint.List(t.opt.Dir)
	if err != nil {
		return baseModel{}, err
	}
	for _, c := range slices.Backward(list) {
		if b, err := readBase(c.Path); err == nil {
			return b, nil
		}
	}
	return readBase(t.cfg.InitFrom)
}
