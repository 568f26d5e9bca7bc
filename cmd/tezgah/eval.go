package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"tezgah/checkpoint"
	"tezgah/corpus"
	"tezgah/eval"
	"tezgah/model"
	"tezgah/tensor"
	"tezgah/train"
)

type evalFlags struct {
	deviceFlags
	inputFlags
	data      string
	text      []string
	tasks     []string
	perItem   bool
	dump      string
	batch     int
	context   int
	stride    int
	maxTokens int64
	tail      float64
	docMask   bool
	mixed     bool
	json      bool
}

const aboutEval = `Measure a model: how well it predicts a text, or how often it picks the right one
of several choices. docs/eval.md defines every number.

  tezgah eval RUN                        the text, or the conversations, that training held out
  tezgah eval RUN --text PATH            loss, perplexity, bits per byte of a text
  tezgah eval RUN --text PATH --stride 64  the same, every token with a long context
  tezgah eval RUN --tasks F.jsonl        multiple choice: {"context": …, "choices": […], "label": 0}
  tezgah eval RUN --text PATH --dump-logits F.safetensors`

func newEval() *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:   "eval RUN|F.llm [--data F.bin | --text PATH | --tasks F.jsonl]",
		Short: "Measure loss and perplexity on a text, or score multiple-choice tasks",
		Long:  aboutEval,
		Args:  exactly("a run folder or a .llm file", 1),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0]) },
	}
	f.deviceFlags.register(cmd)
	f.inputFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "token file to measure on")
	fl.StringArrayVar(&f.text, "text", nil, "text file or folder to measure on instead (repeatable)")
	fl.StringArrayVar(&f.tasks, "tasks", nil, "multiple-choice tasks to score, one JSON object a line (repeatable)")
	fl.BoolVar(&f.perItem, "per-item", false, "with --tasks and --json: a line for each item before the result")
	fl.StringVar(&f.dump, "dump-logits", "", "write tokens and logits of the text's beginning to this safetensors file")
	fl.Float64Var(&f.tail, "tail", 0, "only this share of the token file's end, as training holds out (0: all)")
	fl.IntVar(&f.batch, "batch", 8, "rows at a time")
	fl.IntVar(&f.context, "context", 0, "tokens of a row (0: the model's)")
	fl.IntVar(&f.stride, "stride", 0, "tokens from the beginning of a row to that of the next; only the last so many count (0: as --context)")
	fl.Int64Var(&f.maxTokens, "max-tokens", 0, "at most so many tokens, spread over the text (0: all); with --dump-logits the first (0: one row)")
	fl.BoolVar(&f.docMask, "doc-mask", false, "documents in a row do not see each other")
	fl.BoolVar(&f.mixed, "mixed", false, "16-bit weights where the device has them")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// validate refuses flags that make no sense, alone or together.
func (f *evalFlags) validate() error {
	if err := f.check(); err != nil {
		return err
	}
	switch {
	case f.data != "" && len(f.text) > 0:
		return usagef("eval: give either --data F.bin or --text PATH")
	case f.batch < 1:
		return usagef("--batch is %d, want a positive number", f.batch)
	case f.context < 0:
		return usagef("--context is %d, want 0 (the model's) or a positive number", f.context)
	case f.stride < 0:
		return usagef("--stride is %d, want 0 (as --context) or a positive number", f.stride)
	case f.maxTokens < 0:
		return usagef("--max-tokens is %d, want 0 or a positive number", f.maxTokens)
	case !(f.tail >= 0 && f.tail < 1):
		return usagef("--tail is %v, want 0 (all) to below 1", f.tail)
	case f.tail > 0 && f.data == "":
		return usagef("--tail is for a token file: give one with --data")
	case len(f.tasks) > 0 && (f.hasText() || f.dump != "" || f.stride > 0 || f.maxTokens > 0 || f.docMask):
		return usagef("--tasks goes with none of --data, --text, --stride, --max-tokens, --doc-mask and --dump-logits: use one command for each")
	case f.perItem && (len(f.tasks) == 0 || !f.json):
		return usagef("--per-item needs --tasks and --json")
	case f.dump != "" && !f.hasText():
		return usagef("--dump-logits needs a text: give --text PATH or --data F.bin")
	case f.dump != "" && (f.stride > 0 || f.docMask):
		return usagef("--dump-logits goes with neither --stride nor --doc-mask")
	}
	return nil
}

func (f *evalFlags) hasText() bool { return f.data != "" || len(f.text) > 0 }

func (f *evalFlags) run(ctx context.Context, path string) error {
	if err := f.validate(); err != nil {
		return err
	}
	items, err := f.loadTasks() // before the model: mistakes in files show at once
	if err != nil {
		return err
	}
	held, err := f.heldOut(path)
	if err != nil {
		return err
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
	if len(items) > 0 {
		return f.score(ctx, m, items)
	}
	if held != nil && len(held.Chats) > 0 {
		return f.measureChats(ctx, m, held)
	}
	text, err := f.open(ctx, m, held)
	if err != nil {
		return err
	}
	defer text.close()
	if f.dump != "" {
		return f.dumpLogits(ctx, m, text)
	}
	return f.measure(ctx, m, text)
}

// measure prints loss and perplexity.
func (f *evalFlags) measure(ctx context.Context, m *train.Loaded, text *evalText) error {
	if f.stride > text.context {
		return usagef("--stride is %d, want at most the context of %d tokens: what lies between two rows would not be read", f.stride, text.context)
	}
	opt := model.TrainOptions{Batch: f.batch, Context: text.context, DocMask: text.docMask}
	g, err := model.NewGraph(m.Params.Runner(), m.Params, opt)
	if err != nil {
		return err
	}
	defer g.Close()
	tok := m.Tokenizer
	lens := corpus.TokenBytes(tok.Decode, tok.VocabSize(), tok.EndOfDocument(), tok.IsSpecial)
	status := newStatusLine(f.json)
	defer status.clear()
	res, err := eval.Perplexity(ctx, g, text.sources, lens, eval.PerplexityOptions{
		Stride: f.stride, MaxTokens: f.maxTokens,
		Progress: func(done, total int64) { status.set("eval: %d of %d batches", done, total) },
	})
	if err != nil {
		return err
	}
	status.clear()
	if f.json {
		return printJSON(res)
	}
	fmt.Printf("text          %s\nloss          %.4f nats per token\nperplexity    %.3f\n", text.name, res.LossNats, res.Perplexity)
	if res.Bytes > 0 {
		fmt.Printf("bits per byte %.4f\n", res.BitsPerByte)
	}
	fmt.Printf("tokens        %s (%s of text), in rows of %d every %d\n", count(res.Tokens), formatBytes(res.Bytes), res.Context, res.Stride)
	return nil
}

// dumpLogits writes the file of --dump-logits: tokens (n) and logits (n, V).
func (f *evalFlags) dumpLogits(ctx context.Context, m *train.Loaded, text *evalText) error {
	src, cfg, T := text.sources[0], m.Params.Config(), text.context
	n := min(src.Len(), int64(T))
	if f.maxTokens > 0 {
		n = min(src.Len(), f.maxTokens)
	}
	ids := make([]int32, n)
	if err := src.Data.Read(ids, src.Lo); err != nil {
		return err
	}
	meta := map[string]string{"format": "pt", "context": strconv.Itoa(T)}
	shape := []int{int(n), cfg.VocabSize}
	err := checkpoint.SaveSafetensors(f.dump, meta, []checkpoint.Tensor{
		checkpoint.Bytes("tokens", tensor.I32, shape[:1], tensor.Bytes(ids)),
		{
			Info:  checkpoint.Info{Name: "logits", Type: tensor.F32, Shape: shape},
			Write: func(w io.Writer) error { return eval.WriteLogits(ctx, w, m.Params, T, ids) },
		},
	})
	if err != nil {
		return err
	}
	if f.json {
		return printJSON(map[string]any{"path": f.dump, "tokens": n, "vocab_size": cfg.VocabSize, "context": T})
	}
	fmt.Printf("%s: tokens (%d) and logits (%d, %d), in rows of %d tokens from %s\n", f.dump, n, n, cfg.VocabSize, T, text.name)
	return nil
}
