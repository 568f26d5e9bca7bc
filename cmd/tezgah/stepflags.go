package main

import (
	"strings"

	"github.com/spf13/cobra"

	"tezgah/bench"
	"tezgah/model"
	"tezgah/tensor"
	"tezgah/train"
)

// stepFlags describe the training step that bench and profile measure.
type stepFlags struct {
	preset    string
	vocab     int
	kvHeads   int
	ffn       int
	untied    bool
	batch     int
	context   int
	headRows  int
	precision string
	moments8  bool
}

func (f *stepFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.preset, "preset", "mini", "model to measure")
	fl.IntVar(&f.vocab, "vocab-size", 0, "0: the preset's")
	fl.IntVar(&f.kvHeads, "kv-heads", 0, "0: the preset's")
	fl.IntVar(&f.ffn, "ffn", 0, "feed-forward size, 0: the preset's")
	fl.BoolVar(&f.untied, "untied", false, "an output matrix of its own")
	fl.IntVar(&f.batch, "batch", 4, "rows of a step")
	fl.IntVar(&f.context, "context", 512, "tokens of a row")
	fl.IntVar(&f.headRows, "head-rows", 0, "rows of logits at a time (0: about 64 MiB)")
	fl.StringVar(&f.precision, "precision", "f32", strings.Join(train.Precisions(), ", "))
	fl.BoolVar(&f.moments8, "moments8", false, "8-bit optimizer moments")
}

// resolve checks the flags and returns the model and the form of its step.
func (f *stepFlags) resolve() (cfg model.Config, opt bench.StepOptions, err error) {
	if err := checkWord("precision", f.precision, train.Precisions()); err != nil {
		return cfg, opt, err
	}
	if f.batch < 1 || f.context < 1 || f.headRows < 0 {
		return cfg, opt, usagef("--batch, --context and --head-rows are %d, %d and %d, want positive numbers (0 rows: the default)", f.batch, f.context, f.headRows)
	}
	if cfg, err = model.Preset(f.preset); err != nil {
		return cfg, opt, usageError{err}
	}
	pick(&cfg.VocabSize, f.vocab)
	pick(&cfg.KVHeads, f.kvHeads)
	pick(&cfg.FFN, f.ffn)
	cfg.Context = f.context
	cfg.Tied = cfg.Tied && !f.untied
	if err := cfg.Validate(); err != nil {
		return cfg, opt, usageError{err}
	}
	opt = bench.StepOptions{Batch: f.batch, Context: f.context, HeadRows: f.headRows, Moments8: f.moments8, Mixed: f.precision == train.Mixed}
	switch f.precision {
	case train.BF16:
		opt.Round = tensor.BF16
	case train.F16:
		opt.Round = tensor.F16
	}
	return cfg, opt, nil
}
