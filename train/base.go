package train

import (
	"fmt"
	"path/filepath"
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
	f, whole, closeFiles, err := openWhole(path)
	if err != nil {
		return baseModel{}, err
	}
	defer closeFiles()
	b := baseModel{path: path, template: f.Header.ChatTemplate}
	if raw := whole.Header.Tokenizer; len(raw) > 0 {
		if b.tokenizer, err = bpe.Parse(raw); err != nil {
			return b, fmt.Errorf("%s: its tokenizer: %w", whole.Name(), err)
		}
	}
	return b, nil
}

// ModelTokenizer reads the tokenizer of a .llm file and the name of its chat
// template, empty for none, without loading the model. A file of adapters has
// them in the base model beside it.
func ModelTokenizer(path string) (t *bpe.Tokenizer, template string, err error) {
	b, err := readBase(path)
	if err == nil && b.tokenizer == nil {
		err = fmt.Errorf("%s holds no tokenizer", path)
	}
	return b.tokenizer, b.template, err
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
	files := []string{filepath.Join(t.opt.Dir, BaseName)}
	for _, c := range slices.Backward(list) {
		files = append(files, c.Path)
	}
	for _, path := range files {
		if b, err := readBase(path); err == nil && b.tokenizer != nil {
			return b, nil
		}
	}
	return readBase(t.cfg.InitFrom)
}

// initFrom starts from the weights of a model file, or of adapters with the
// base beside them.
func (t *Trainer) initFrom(path string) error {
	f, whole, closeFiles, err := openWhole(path)
	if err != nil {
		return err
	}
	defer closeFiles()
	got, err := configOf(whole)
	if err != nil {
		return err
	}
	old := got.VocabSize
	if !t.data.fresh.empty() {
		got.VocabSize = t.cfg.Model.VocabSize
	}
	if got != t.cfg.Model.WithDefaults() {
		return fmt.Errorf("%s holds another model than the configuration names", path)
	}
	vocab, others := vocabStates(t.params.Weights())
	if t.data.fresh.empty() {
		vocab, others = nil, t.params.Weights()
	}
	for _, s := range vocab {
		if err := loadVocab(t.runner, whole, s, old, t.data.fresh, t.cfg.Seed); err != nil {
			return err
		}
	}
	if err := loadWeights(t.params, others, whole, f); err != nil {
		return err
	}
	return t.runner.Err()
}
