package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tezgah/generate"
	"tezgah/model"
	"tezgah/op"
	"tezgah/train"
)

type generateFlags struct {
	deviceFlags
	opt       generate.Options
	prompt    string
	precision string
	json      bool
}

func newGenerate() *cobra.Command {
	var f generateFlags
	cmd := &cobra.Command{
		Use:   "generate RUN|F.llm",
		Short: "Continue a prompt with a trained model, streaming",
		Args:  exactly("a run folder or a .llm file", 1),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0]) },
	}
	f.deviceFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.prompt, "prompt", "", "text to continue (empty: a new document)")
	registerSampling(fl, &f.opt)
	fl.BoolVar(&f.opt.IgnoreEnd, "ignore-end", false, "go on past the end of the document, or of a chat model's turn")
	fl.StringVar(&f.precision, "precision", "f32", "f32, or mixed for 16-bit weights where the device has them")
	fl.BoolVar(&f.json, "json", false, "print one JSON object at the end instead of streaming")
	return cmd
}

// registerSampling adds the flags that say how text is drawn and where it ends.
func registerSampling(fl *pflag.FlagSet, opt *generate.Options) {
	fl.IntVar(&opt.MaxTokens, "max-tokens", 256, "new tokens at most")
	fl.Float64Var(&opt.Temperature, "temperature", 0.8, "0 always takes the likeliest token")
	fl.IntVar(&opt.TopK, "top-k", 0, "keep the K likeliest tokens (0: all)")
	fl.Float64Var(&opt.TopP, "top-p", 0.95, "keep the likeliest tokens with this much probability (1: all)")
	fl.Float64Var(&opt.MinP, "min-p", 0, "keep tokens with this share of the largest probability (0: all)")
	fl.Float64Var(&opt.RepetitionPenalty, "repetition-penalty", 1, "over 1 discourages repetition")
	fl.Uint64Var(&opt.Seed, "seed", 0, "the same seed gives the same text")
	fl.StringArrayVar(&opt.Stop, "stop", nil, "end before this text (repeatable)")
}

// checkSampling refuses values of those flags that make no sense.
func checkSampling(opt generate.Options) error {
	if err := opt.Sampling.Validate(); err != nil {
		return usageError{err}
	}
	if opt.MaxTokens < 1 {
		return usagef("--max-tokens is %d, want a positive number", opt.MaxTokens)
	}
	return nil
}

func (f *generateFlags) run(ctx context.Context, path string) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := checkSampling(f.opt); err != nil {
		return err
	}
	if err := checkWord("precision", f.precision, []string{"f32", "mixed"}); err != nil {
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
	emit := func(p generate.Piece) error {
		if f.json {
			return nil
		}
		_, err := os.Stdout.WriteString(p.Text)
		return err
	}
	if !f.json {
		fmt.Print(f.prompt)
	}
	res, err := generateFrom(ctx, r, file, f.precision == "mixed", f.prompt, f.opt, emit)
	if f.json && err == nil {
		return printJSON(map[string]any{
			"text": res.Text, "tokens": res.IDs, "prompt_tokens": res.PromptTokens, "new_tokens": res.NewTokens, "reason": res.Reason,
			"tokens_per_second": res.TokPerSec(), "notes": res.Notes,
		})
	}
	fmt.Println()
	for _, n := range res.Notes {
		fmt.Fprintln(os.Stderr, "note: "+n)
	}
	if err == nil {
		fmt.Fprintf(os.Stderr, "%d tokens, %.0f tokens/s, ended by %s\n", res.NewTokens, res.TokPerSec(), res.Reason)
	}
	return err
}

// generateFrom loads a model and continues a prompt.
func generateFrom(ctx context.Context, r *op.Runner, file string, mirror bool, prompt string, opt generate.Options, emit func(generate.Piece) error) (generate.Result, error) {
	m, err := train.LoadModel(r, file, mirror)
	if err != nil {
		return generate.Result{}, err
	}
	defer m.Params.Close()
	dec, err := model.NewDecoder(r, m.Params, 1, 0)
	if err != nil {
		return generate.Result{}, err
	}
	defer dec.Close()
	opt.StopIDs = m.EndIDs()
	return generate.Generator{Decoder: dec, Tokenizer: m.Tokenizer}.Generate(ctx, prompt, opt, emit)
}

// modelFile finds the .llm that an argument means: the file itself, a run
// folder's finished model, or its newest checkpoint.
func modelFile(path string) (string, error) {
	file, skipped, err := train.ModelFile(path)
	for _, s := range skipped {
		fmt.Fprintf(os.Stderr, "note: %s is left out: %v\n", s.Path, s.Err)
	}
	return file, err
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}
