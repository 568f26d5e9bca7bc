package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/bpe"
	"tezgah/corpus"
	"tezgah/model"
	"tezgah/train"
)

type evalFlags struct {
	deviceFlags
	inputFlags
	data      string
	text      []string
	batch     int
	context   int
	maxTokens int64
	tail      float64
	docMask   bool
	mixed     bool
	json      bool
}

func newEval() *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:   "eval RUN|F.llm --data F.bin | --text PATH",
		Short: "Measure loss, perplexity and bits per byte on a token file or a text",
		Args:  exactly("a run folder or a .llm file", 1),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0]) },
	}
	f.deviceFlags.register(cmd)
	f.inputFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "token file to measure on")
	fl.StringArrayVar(&f.text, "text", nil, "text file or folder to measure on instead (repeatable)")
	fl.Float64Var(&f.tail, "tail", 0, "only this share of the token file's end, as training holds out (0: all)")
	fl.IntVar(&f.batch, "batch", 8, "rows at a time")
	fl.IntVar(&f.context, "context", 0, "tokens of a row (0: the model's)")
	fl.Int64Var(&f.maxTokens, "max-tokens", 0, "at most so many tokens, spread over the text (0: all)")
	fl.BoolVar(&f.docMask, "doc-mask", false, "documents in a row do not see each other")
	fl.BoolVar(&f.mixed, "mixed", false, "16-bit weights where the device has them")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

func (f *evalFlags) run(ctx context.Context, path string) error {
	if err := f.check(); err != nil {
		return err
	}
	switch {
	case (f.data == "") == (len(f.text) == 0):
		return usagef("eval: give either --data F.bin or --text PATH")
	case f.batch < 1:
		return usagef("--batch is %d, want a positive number", f.batch)
	case f.context < 0:
		return usagef("--context is %d, want 0 (the model's) or a positive number", f.context)
	case !(f.tail >= 0 && f.tail < 1):
		return usagef("--tail is %v, want 0 (all) to below 1", f.tail)
	}
	file, err := modelFile(path)
	if err != nil {
		return err
	}
	r, err := f.runner()
	if err != nil {
		return err
	}
	defer r.Backend().Close()
	m, err := train.LoadModel(r, file, f.mixed)
	if err != nil {
		return err
	}
	defer m.Params.Close()
	res, err := f.measure(ctx, m)
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(res)
	}
	fmt.Printf("loss          %.4f nats per token\nperplexity    %.3f\n", res.LossNats, res.Perplexity)
	if res.Bytes > 0 {
		fmt.Printf("bits per byte %.4f\n", res.BitsPerByte)
	}
	fmt.Printf("tokens        %s (%s of text)\n", count(res.Tokens), formatBytes(res.Bytes))
	return nil
}

func (f *evalFlags) measure(ctx context.Context, m *train.Loaded) (train.EvalResult, error) {
	d, err := f.open(ctx, m.Tokenizer)
	if err != nil {
		return train.EvalResult{}, err
	}
	defer d.Close()
	g, err := model.NewGraph(m.Params.Runner(), m.Params, model.TrainOptions{Batch: f.batch, Context: f.context, DocMask: f.docMask})
	if err != nil {
		return train.EvalResult{}, err
	}
	defer g.Close()
	src := corpus.Whole(d)
	if f.tail > 0 {
		if _, src, err = corpus.SplitTail(d, f.tail, g.Options().Context); err != nil {
			return train.EvalResult{}, err
		}
	}
	lens := corpus.TokenBytes(m.Tokenizer.Decode, m.Tokenizer.VocabSize(), m.Tokenizer.EndOfDocument())
	e, err := train.NewEvaluator(g, []corpus.Source{src}, lens)
	if err != nil {
		return train.EvalResult{}, err
	}
	return e.Run(ctx, f.maxTokens)
}

// open opens the token file, or encodes the text with the model's tokenizer.
func (f *evalFlags) open(ctx context.Context, t *bpe.Tokenizer) (*corpus.Dataset, error) {
	if f.data != "" {
		return corpus.Open(f.data, corpus.OpenOptions{TokenizerJSON: t.JSON(), VocabSize: t.VocabSize(), EndOfDocument: t.EndOfDocument()})
	}
	var docs [][]byte
	_, err := corpus.Walk(ctx, f.options(f.text), func(d corpus.Document) error {
		docs = append(docs, append([]byte(nil), d.Text...))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("no text found in %s", strings.Join(f.text, ", "))
	}
	b, err := corpus.BuildMemory(t, docs)
	if err != nil {
		return nil, err
	}
	return corpus.OpenBytes(strings.Join(f.text, ", "), b, corpus.OpenOptions{})
}
