package main

import (
	"context"
	"fmt"
	"strings"

	"tezgah/bpe"
	"tezgah/corpus"
	"tezgah/train"
)

// evalText is what eval measures on.
type evalText struct {
	name    string // for people
	sources []corpus.Source
	context int // tokens of a row
	docMask bool
	files   []*corpus.Dataset
}

func (e *evalText) close() {
	for _, f := range e.files {
		f.Close()
	}
}

// heldOut reads the configuration of a run that no text is given for; nil with
// a text or tasks.
func (f *evalFlags) heldOut(run string) (*train.Config, error) {
	if len(f.tasks) > 0 || f.hasText() {
		return nil, nil
	}
	cfg, err := train.LoadConfig(run)
	if err != nil {
		return nil, usagef("eval: nothing to measure on: give --data F.bin, --text PATH or --tasks F.jsonl, or a run folder to measure on what it held out (%w)", err)
	}
	if len(cfg.Chats) > 0 && f.stride > 0 {
		return nil, usagef("--stride is for a text: the conversations that %s held out are measured whole", run)
	}
	return &cfg, nil
}

// open opens the token file, or encodes the text with the model's tokenizer, or
// opens what a run held out.
func (f *evalFlags) open(ctx context.Context, m *train.Loaded, held *train.Config) (*evalText, error) {
	e := &evalText{context: f.context, docMask: f.docMask}
	if e.context == 0 {
		e.context = m.Params.Config().Context
	}
	if err := f.openInto(ctx, e, m.Tokenizer, held); err != nil {
		e.close()
		return nil, err
	}
	return e, nil
}

func (f *evalFlags) openInto(ctx context.Context, e *evalText, t *bpe.Tokenizer, held *train.Config) error {
	switch {
	case len(f.text) > 0:
		e.name = strings.Join(f.text, ", ")
		d, err := f.encode(ctx, t)
		if err != nil {
			return err
		}
		e.files, e.sources = append(e.files, d), []corpus.Source{corpus.Whole(d)}
		return nil
	case f.data != "" && f.tail > 0:
		return e.addTail(f.data, f.tail, e.context, t)
	case f.data != "":
		e.name = f.data
		return e.add(f.data, t)
	}
	if f.context == 0 {
		e.context = held.Context
	}
	e.docMask = e.docMask || held.DocMask
	if err := e.addHeldOut(held, t); err != nil {
		return fmt.Errorf("the run's held-out text: %w; give a text with --data or --text", err)
	}
	return nil
}

// encode reads the text of --text.
func (f *evalFlags) encode(ctx context.Context, t *bpe.Tokenizer) (*corpus.Dataset, error) {
	var docs [][]byte
	_, err := corpus.Walk(ctx, f.options(f.text), func(d corpus.Document) error {
		docs = append(docs, append([]byte(nil), d.Text...))
		return nil
	})
	if err != nil {
		return nil, err
	}
	name := strings.Join(f.text, ", ")
	if len(docs) == 0 {
		return nil, fmt.Errorf("no text found in %s", name)
	}
	b, err := corpus.BuildMemory(t, docs)
	if err != nil {
		return nil, err
	}
	return corpus.OpenBytes(name, b, corpus.OpenOptions{})
}

// openTokens opens a token file that must fit the model's tokenizer.
func (e *evalText) openTokens(path string, t *bpe.Tokenizer) (*corpus.Dataset, error) {
	d, err := corpus.Open(path, corpus.OpenOptions{TokenizerJSON: t.JSON(), VocabSize: t.VocabSize(), EndOfDocument: t.EndOfDocument()})
	if err == nil {
		e.files = append(e.files, d)
	}
	return d, err
}

// add measures on all of a token file.
func (e *evalText) add(path string, t *bpe.Tokenizer) error {
	d, err := e.openTokens(path, t)
	if err == nil {
		e.sources = append(e.sources, corpus.Whole(d))
	}
	return err
}

// addTail measures on the end of a token file, as training in rows of T tokens
// holds it out.
func (e *evalText) addTail(path string, share float64, T int, t *bpe.Tokenizer) error {
	d, err := e.openTokens(path, t)
	if err != nil {
		return err
	}
	_, val, err := corpus.SplitTail(d, share, T)
	if err != nil {
		return err
	}
	e.sources = append(e.sources, val)
	if e.name != "" {
		e.name += ", "
	}
	e.name += fmt.Sprintf("%s, the last %.4g %%", path, 100*share)
	return nil
}

// addHeldOut measures on what training with this configuration held out.
func (e *evalText) addHeldOut(c *train.Config, t *bpe.Tokenizer) error {
	if c.ValData != "" {
		e.name = c.ValData
		return e.add(c.ValData, t)
	}
	for _, d := range c.Data {
		if err := e.addTail(d.Path, c.ValFraction, c.Context, t); err != nil {
			return err
		}
	}
	return nil
}
