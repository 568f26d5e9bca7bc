package train

import (
	"context"
	"fmt"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/corpus"
)

// Batches is where a run's training rows come from: corpus.Sampler for token
// files, chat.Sampler for conversations. What it draws follows from its options
// and its cursor alone.
type Batches interface {
	// Next fills tokens and targets, both (B, T), with the next rows; a target
	// that does not count is model.IgnoreIndex. docStart (B, T), which may be nil,
	// gets the first position of the row that each position may see.
	Next(tokens, targets, docStart []int32) error
	Cursor() []int64
	SetCursor([]int64) error
}

// Windows is held-out data in rows, each read any time: corpus.Windows for
// token files, chat.Windows for conversations.
type Windows interface {
	// Count is the number of rows that hold something.
	Count() int64
	// Read fills the rows from number first on, as Batches.Next does; rows past
	// the end count for nothing.
	Read(first int64, tokens, targets, docStart []int32) error
}

// data is what a run trains on and is measured on.
type data struct {
	batches     Batches
	held        []Windows
	passTokens  int64          // tokens of one pass over the training rows
	heldTokens  int64          // tokens that are held out
	tokenizer   *bpe.Tokenizer // nil when no file carries one and none was given
	vocab       int            // ids are below it
	byteLens    []int32        // text bytes of each id; nil without a tokenizer
	template    string         // of the conversations that the model knows; empty for none
	firstCursor []int64        // of batches before anything is drawn
	notices     []string       // what the user should know
	files       []*corpus.Dataset

	// Of conversations only.
	chats        *ChatInfo
	chatTemplate *chat.Template
	hash         string  // of all conversations
	fresh        idRange // ids that the base model's tokenizer lacked
}

// openData opens what c trains on. base is the model that training starts
// from, as far as it matters here; ctx ends the reading of conversations.
func openData(ctx context.Context, c Config, base baseModel) (*data, error) {
	d := &data{template: base.template}
	var err error
	if len(c.Chats) > 0 {
		err = d.openChats(ctx, c, base)
	} else {
		err = d.openTokens(c, base)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	d.firstCursor = d.batches.Cursor()
	if t := d.tokenizer; t != nil {
		d.byteLens = corpus.TokenBytes(t.Decode, d.vocab, t.EndOfDocument(), t.IsSpecial)
	}
	return d, nil
}

// openTokens opens every token file of c, splits off the held-out part and
// checks that all share one tokenizer, which is the model's.
func (d *data) openTokens(c Config, base baseModel) error {
	opt, err := openOptions(c, base)
	if err != nil {
		return err
	}
	var train, held []corpus.Source
	for _, src := range c.Data {
		f, err := d.open(src.Path, opt, base)
		if err != nil {
			return err
		}
		tr, va := corpus.Whole(f), corpus.Source{}
		if c.ValData == "" {
			if tr, va, err = corpus.SplitTail(f, c.ValFraction, c.Context); err != nil {
				return err
			}
			held = append(held, va)
		}
		tr.Weight = src.Weight
		train = append(train, tr)
	}
	if c.ValData != "" {
		f, err := d.open(c.ValData, opt, base)
		if err != nil {
			return err
		}
		held = []corpus.Source{corpus.Whole(f)}
	}
	if err := d.readTokenizer(); err != nil {
		return err
	}
	return d.cut(c, train, held)
}

// cut makes batches and windows of token ranges.
func (d *data) cut(c Config, train, held []corpus.Source) (err error) {
	for _, s := range train {
		d.passTokens += s.Len()
	}
	for _, s := range held {
		d.heldTokens += s.Len()
	}
	d.batches, err = corpus.NewSampler(corpus.SamplerOptions{Sources: train, Context: c.Context, Seed: c.Seed, DocMask: c.DocMask})
	if err != nil {
		return err
	}
	d.held, err = cutWindows(held, c.Context, c.DocMask)
	return err
}

// cutWindows cuts token ranges into windows of T.
func cutWindows(sources []corpus.Source, T int, docMask bool) ([]Windows, error) {
	var out []Windows
	for _, s := range sources {
		w, err := corpus.NewWindows(s, T, docMask)
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

// openOptions says how to read token files that carry no tokenizer: with the
// one that was given, or the model's.
func openOptions(c Config, base baseModel) (corpus.OpenOptions, error) {
	t := base.tokenizer
	if c.Tokenizer != "" {
		var err error
		if t, err = bpe.Load(c.Tokenizer); err != nil {
			return corpus.OpenOptions{}, err
		}
		if base.tokenizer != nil && t.Hash() != base.tokenizer.Hash() {
			return corpus.OpenOptions{}, fmt.Errorf("%s is not the tokenizer of the model %s: leave --tokenizer out, the model brings its own", c.Tokenizer, base.path)
		}
	}
	if t == nil {
		return corpus.OpenOptions{VocabSize: c.Model.VocabSize, EndOfDocument: -1}, nil
	}
	return corpus.OpenOptions{TokenizerJSON: t.JSON(), VocabSize: t.VocabSize(), EndOfDocument: t.EndOfDocument()}, nil
}

func (d *data) open(path string, opt corpus.OpenOptions, base baseModel) (*corpus.Dataset, error) {
	if err := sameTokenizer(path, base); err != nil {
		return nil, err
	}
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

// sameTokenizer refuses a token file whose ids mean something else to the
// model that training starts from.
func sameTokenizer(path string, base baseModel) error {
	if base.tokenizer == nil {
		return nil
	}
	f, err := corpus.Open(path, corpus.OpenOptions{VocabSize: base.tokenizer.VocabSize(), EndOfDocument: -1})
	if err != nil {
		return err
	}
	defer f.Close()
	if len(f.TokenizerJSON()) > 0 && f.TokenizerHash() != base.tokenizer.Hash() {
		return fmt.Errorf("%s was made with another tokenizer (%d ids) than the model %s (%d ids): build it again with the model's, tezgah data build --tokenizer %s",
			path, f.VocabSize(), base.path, base.tokenizer.VocabSize(), base.path)
	}
	return nil
}

// readTokenizer takes the tokenizer that the files carry.
func (d *data) readTokenizer() error {
	f := d.files[0]
	if len(f.TokenizerJSON()) == 0 {
		return nil
	}
	t, err := bpe.Parse(f.TokenizerJSON())
	if err != nil {
		return fmt.Errorf("%s: its tokenizer: %w", f.Name(), err)
	}
	d.tokenizer = t
	return nil
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
