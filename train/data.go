package train

import (
	"fmt"

	"tezgah/bpe"
	"tezgah/corpus"
)

// data is the opened token files of a run.
type data struct {
	files     []*corpus.Dataset
	train     []corpus.Source
	val       []corpus.Source
	tokenizer *bpe.Tokenizer // nil when no file carries one and none was given
	vocab     int
	byteLens  []int32 // bytes of each id; nil without a tokenizer
}

// openData opens every token file of c, splits off the held-out part and
// checks that all share one vocabulary.
func openData(c Config) (*data, error) {
	d := &data{}
	if err := d.openAll(c); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *data) openAll(c Config) error {
	opt, err := d.openOptions(c)
	if err != nil {
		return err
	}
	for _, src := range c.Data {
		f, err := d.open(src.Path, opt)
		if err != nil {
			return err
		}
		whole := corpus.Whole(f)
		whole.Weight = src.Weight
		if c.ValData != "" {
			d.train = append(d.train, whole)
			continue
		}
		tr, va, err := corpus.SplitTail(f, c.ValFraction, c.Context)
		if err != nil {
			return err
		}
		tr.Weight = src.Weight
		d.train = append(d.train, tr)
		d.val = append(d.val, va)
	}
	if c.ValData != "" {
		f, err := d.open(c.ValData, opt)
		if err != nil {
			return err
		}
		d.val = []corpus.Source{corpus.Whole(f)}
	}
	return d.readTokenizer()
}

// openOptions says how to read token files that carry no vocabulary.
func (d *data) openOptions(c Config) (corpus.OpenOptions, error) {
	if c.Tokenizer == "" {
		return corpus.OpenOptions{VocabSize: c.Model.VocabSize, EndOfDocument: -1}, nil
	}
	t, err := bpe.Load(c.Tokenizer)
	if err != nil {
		return corpus.OpenOptions{}, err
	}
	d.tokenizer = t
	return corpus.OpenOptions{TokenizerJSON: t.JSON(), VocabSize: t.VocabSize(), EndOfDocument: t.EndOfDocument()}, nil
}

func (d *data) open(path string, opt corpus.OpenOptions) (*corpus.Dataset, error) {
	f, err := corpus.Open(path, opt)
	if err != nil {
		return nil, err
	}
	d.files = append(d.files, f)
	first := d.files[0]
	if f.VocabSize() != first.VocabSize() || f.TokenizerHash() != first.TokenizerHash() {
		return nil, fmt.Errorf("%s and %s were made with different tokenizers (%d and %d ids): build both with one tokenizer.json",
			first.Name(), f.Name(), first.VocabSize(), f.VocabSize())
	}
	d.vocab = f.VocabSize()
	return f, nil
}

// readTokenizer takes the tokenizer that the files carry and the byte lengths
// of its ids.
func (d *data) readTokenizer() error {
	if d.tokenizer == nil && len(d.files[0].TokenizerJSON()) > 0 {
		t, err := bpe.Parse(d.files[0].TokenizerJSON())
		if err != nil {
			return fmt.Errorf("%s: its tokenizer: %w", d.files[0].Name(), err)
		}
		d.tokenizer = t
	}
	if d.tokenizer != nil {
		d.byteLens = corpus.TokenBytes(d.tokenizer.Decode, d.vocab, d.tokenizer.EndOfDocument())
	}
	return nil
}

// tokens is the number of tokens to train on.
func (d *data) tokens() (n int64) {
	for _, s := range d.train {
		n += s.Hi - s.Lo
	}
	return n
}

func (d *data) tokenizerJSON() []byte {
	if d.tokenizer == nil {
		return nil
	}
	return d.tokenizer.JSON()
}

func (d *data) close() {
	for _, f := range d.files {
		f.Close()
	}
}
