package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tezgah/chat"
	"tezgah/internal/nearest"
	"tezgah/model"
	"tezgah/optim"
	"tezgah/runlog"
	"tezgah/train"
)

// trainFlags are the flags of tezgah train, most of them fields of cfg.
type trainFlags struct {
	deviceFlags
	cfg    train.Config
	data   []string
	lora   string
	resume string
	out    string
	json   bool

	untied      bool
	minLR       float64
	tensorBoard bool
}

const trainAbout = `Train a model, fine-tune one on conversations, or go on with a run:

  tezgah train --data data.bin --preset mini --out run         from random weights
  tezgah train --data more.bin --init run --out run2           go on with a model on other text
  tezgah train --sft chats.jsonl --init run --out chat         learn the assistant's answers
  tezgah train --sft chats.jsonl --init run --lora r=16 --out chat   the same with small adapters
  tezgah train --resume run                                    go on after an interruption, to the bit

--data takes token files that were made with the model's tokenizer. --sft takes
{"messages": [{"role": "user", "content": …}, …]} lines; the loss counts the
assistant's words alone, and what the tokenizer lacks for the chat template is
added. The run folder holds log.jsonl, TensorBoard event files, checkpoints and
at the end model.llm.`

func newTrain() *cobra.Command {
	f := trainFlags{cfg: train.Config{Optim: optim.Defaults()}}
	cmd := &cobra.Command{
		Use:   "train --data F.bin | --sft CHATS.jsonl --init F.llm | --resume RUN",
		Short: "Train a model, fine-tune one on conversations, or go on with a run",
		Long:  trainAbout,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd) },
	}
	f.register(cmd)
	return cmd
}

func (f *trainFlags) register(cmd *cobra.Command) {
	f.deviceFlags.register(cmd)
	c, fl := &f.cfg, cmd.Flags()
	fl.StringArrayVar(&f.data, "data", nil, "token file, with an optional weight: F.bin or F.bin:0.7 (repeatable)")
	fl.StringArrayVar(&c.Chats, "sft", nil, "conversations to fine-tune on: a jsonl file or a folder (repeatable)")
	fl.BoolVar(&c.SkipBad, "skip-bad", false, "leave broken lines of --sft files out and count them")
	fl.StringVar(&c.Template, "template", "", "chat template for --sft: "+strings.Join(chat.Names(), " or ")+" (default: the model's own, else "+chat.Default+")")
	fl.StringVar(&f.lora, "lora", "", "train adapters beside frozen weights: r=16,alpha=32,targets=all (or attn, ffn, or some of q,k,v,o,gate,up,down); what is left out is as here, alpha twice r")
	fl.StringVar(&f.out, "out", "", "run folder to make")
	fl.StringVar(&f.resume, "resume", "", "run folder to go on with")
	fl.StringVar(&c.InitFrom, "init", "", "start from the weights of this .llm or run folder")
	fl.StringVar(&c.ValData, "val-data", "", "token file, or conversations, to evaluate on (default: a part of the data)")
	fl.Float64Var(&c.ValFraction, "val-fraction", 0.05, "share held out: of the tail, or of the conversations")
	fl.StringVar(&c.Tokenizer, "tokenizer", "", "tokenizer.json, for token files that carry none and for --sft without --init")
	fl.BoolVar(&f.json, "json", false, "print the run log's lines on standard output")
	fl.BoolVar(&f.tensorBoard, "tensorboard", true, "write TensorBoard event files into the run folder")

	fl.StringVar(&c.Preset, "preset", "nano", strings.Join(model.Presets(), ", ")+" or auto (the largest that fits)")
	fl.IntVar(&c.Model.DModel, "d-model", 0, "channels C (0: the preset's)")
	fl.IntVar(&c.Model.Layers, "layers", 0, "layers L (0: the preset's)")
	fl.IntVar(&c.Model.Heads, "heads", 0, "query heads H (0: the preset's)")
	fl.IntVar(&c.Model.KVHeads, "kv-heads", 0, "key/value heads KVH (0: the preset's)")
	fl.IntVar(&c.Model.HeadDim, "head-dim", 0, "head size D (0: C/H)")
	fl.IntVar(&c.Model.FFN, "ffn", 0, "feed-forward size F (0: the preset's)")
	fl.BoolVar(&f.untied, "untied", false, "give the output its own matrix instead of the token embedding's")
	fl.StringVar(&c.Model.Activation, "activation", "", "silu or gelu_tanh")
	fl.Float64Var(&c.Model.RopeTheta, "rope-theta", 0, "base of the rotary angles (0: 10000)")

	fl.IntVar(&c.Batch, "batch", 0, "rows of a micro-step (0: 8)")
	fl.IntVar(&c.Context, "context", 0, "tokens of a row (0: the model's)")
	fl.IntVar(&c.Accum, "accum", 1, "micro-steps of a step")
	fl.Float64Var(&c.Schedule.LR, "lr", 0, "peak learning rate (0: by the model's size; a tenth of that for --sft without --lora)")
	fl.Float64Var(&f.minLR, "min-lr", -1, "last learning rate (negative: a tenth of --lr)")
	fl.StringVar(&c.Schedule.Kind, "schedule", "cosine", "constant, cosine, linear or wsd")
	fl.IntVar(&c.Schedule.Warmup, "warmup", -1, "warm-up steps (negative: a fiftieth of the run)")
	fl.IntVar(&c.Schedule.DecaySteps, "decay-steps", 0, "last phase of wsd (0: a fifth of the run)")
	fl.Float64Var(&c.Optim.Beta1, "beta1", c.Optim.Beta1, "AdamW β₁")
	fl.Float64Var(&c.Optim.Beta2, "beta2", c.Optim.Beta2, "AdamW β₂")
	fl.Float64Var(&c.Optim.Eps, "eps", c.Optim.Eps, "AdamW ε")
	fl.Float64Var(&c.Optim.WeightDecay, "weight-decay", c.Optim.WeightDecay, "AdamW weight decay")
	fl.Float64Var(&c.Optim.Clip, "clip", c.Optim.Clip, "largest gradient norm (0: no clipping)")
	fl.StringVar(&c.Optim.NonFinite, "nonfinite", "skip", "NaN or infinite gradients: skip the step, zero them, or stop")
	fl.BoolVar(&c.Moments8, "moments8", false, "8-bit optimizer moments: 2 bytes a parameter instead of 8")
	fl.StringVar(&c.Precision, "precision", "f32", "f32; mixed (f16 weights in the forward pass); on matrix units bf16, or f16 with loss scaling")
	fl.Float64Var(&c.LabelSmoothing, "label-smoothing", 0, "label smoothing α")
	fl.Float64Var(&c.ZLoss, "z-loss", 0, "z-loss β")
	fl.BoolVar(&c.DocMask, "doc-mask", false, "documents in a row do not see each other")
	fl.BoolVar(&c.Recompute, "recompute", false, "keep less for the backward pass and compute it again")
	fl.Uint64Var(&c.Seed, "seed", 0, "decides weights and order of the data")

	fl.Float64Var(&c.Epochs, "epochs", 1, "passes over the data, where --max-steps and --max-tokens do not say how long")
	fl.Int64Var(&c.MaxSteps, "max-steps", 0, "steps of the run (0: by --epochs)")
	fl.Int64Var(&c.MaxTokens, "max-tokens", 0, "tokens of the run, rounded up to steps")
	fl.DurationVar(&c.MaxTime, "max-time", 0, "stop after so much training time, such as 90m")
	fl.Float64Var(&c.TargetLoss, "target-loss", 0, "stop when the validation loss is at most this")
	fl.Int64Var(&c.EvalEvery, "eval-every", 0, "steps between evaluations (0: a tenth of the run)")
	fl.Int64Var(&c.EvalTokens, "eval-tokens", 65536, "held-out tokens of an evaluation (negative: all)")
	fl.Int64Var(&c.CheckpointEvery, "checkpoint-every", 0, "steps between checkpoints (0: a tenth of the run)")
	fl.IntVar(&c.Keep, "keep", 3, "checkpoints to keep (negative: all)")
	fl.Int64Var(&c.SampleEvery, "sample-every", 0, "steps between texts that the model writes (0: none)")
	fl.StringVar(&c.SamplePrompt, "sample-prompt", "", "what they begin with; with --sft, what is asked")
	fl.IntVar(&c.SampleTokens, "sample-tokens", 64, "their length at most")
}

// checkRun refuses flags that do not make one run.
func (f *trainFlags) checkRun(fl *pflag.FlagSet) error {
	sft := len(f.cfg.Chats) > 0
	switch {
	case !sft && len(f.data) == 0:
		return usagef("train: give --data F.bin (tezgah data build makes one), --sft CHATS.jsonl, or --resume RUN")
	case sft && len(f.data) > 0:
		return usagef("--sft and --data exclude each other: train on the text first, then fine-tune what came out with --init")
	case sft && f.cfg.InitFrom == "" && f.cfg.Tokenizer == "":
		return usagef("--sft: give --init RUN|F.llm, the model to fine-tune; or --tokenizer F.json and a --preset for a new one")
	case sft && f.cfg.InitFrom != "" && f.cfg.Tokenizer != "":
		return usagef("--tokenizer cannot go with --sft and --init: the model brings its own")
	case !sft && fl.Changed("template"):
		return usagef("--template is for --sft: token files hold no conversations")
	case !sft && f.cfg.SkipBad:
		return usagef("--skip-bad is for --sft: token files have no lines")
	case f.lora != "" && f.cfg.InitFrom == "":
		return usagef("--lora: give --init RUN|F.llm, the model that the adapters belong to")
	case fl.Changed("epochs") && (fl.Changed("max-steps") || fl.Changed("max-tokens")):
		return usagef("--epochs says the same as --max-steps and --max-tokens: give one")
	case f.out == "":
		return usagef("train: give --out RUN, a folder for checkpoints, log and model")
	}
	if f.cfg.Template != "" {
		return checkWord("template", f.cfg.Template, chat.Names())
	}
	return nil
}

func (f *trainFlags) run(cmd *cobra.Command) error {
	if err := f.check(); err != nil {
		return err
	}
	if f.resume != "" {
		if f.out != "" {
			return usagef("--resume and --out exclude each other: a resumed run stays in its folder")
		}
		return f.goOn(cmd)
	}
	if err := f.checkRun(cmd.Flags()); err != nil {
		return err
	}
	cfg, err := f.config(cmd.Flags())
	if err != nil {
		return err
	}
	opt, status := f.options(cmd.Context(), f.out)
	t, err := train.New(cfg, opt)
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = f.train(cmd.Context(), t, status)
	return err
}

// limits are the flags that a resumed run may change.
var limits = []string{"max-steps", "max-time", "target-loss", "keep", "eval-every", "eval-tokens", "checkpoint-every", "tensorboard",
	"sample-every", "sample-prompt", "sample-tokens"}

// goOn resumes a run; only limits may be given with it.
func (f *trainFlags) goOn(cmd *cobra.Command) error {
	free := map[string]bool{"resume": true, "device": true, "backend": true, "threads": true, "json": true}
	for _, name := range limits {
		free[name] = true
	}
	var refused error
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if !free[fl.Name] && refused == nil {
			refused = usagef("--%s cannot change in a resumed run (only %s can): start a new run, with --init for its weights",
				fl.Name, "--"+strings.Join(limits, ", --"))
		}
	})
	if refused != nil {
		return refused
	}
	opt, status := f.options(cmd.Context(), f.resume)
	changed := cmd.Flags().Changed
	t, err := train.Resume(opt, func(c *train.Config) {
		set(&c.MaxSteps, f.cfg.MaxSteps, changed("max-steps"))
		set(&c.MaxTime, f.cfg.MaxTime, changed("max-time"))
		set(&c.TargetLoss, f.cfg.TargetLoss, changed("target-loss"))
		set(&c.Keep, f.cfg.Keep, changed("keep"))
		set(&c.EvalEvery, f.cfg.EvalEvery, changed("eval-every"))
		set(&c.EvalTokens, f.cfg.EvalTokens, changed("eval-tokens"))
		set(&c.CheckpointEvery, f.cfg.CheckpointEvery, changed("checkpoint-every"))
		set(&c.SampleEvery, f.cfg.SampleEvery, changed("sample-every"))
		set(&c.SamplePrompt, f.cfg.SamplePrompt, changed("sample-prompt"))
		set(&c.SampleTokens, f.cfg.SampleTokens, changed("sample-tokens"))
		set(&c.NoTensorBoard, !f.tensorBoard, changed("tensorboard"))
	})
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = f.train(cmd.Context(), t, status)
	return err
}

func set[T any](dst *T, v T, changed bool) {
	if changed {
		*dst = v
	}
}

// options connects the trainer with the terminal.
func (f *trainFlags) options(ctx context.Context, dir string) (train.Options, *statusLine) {
	status := newStatusLine(false)
	opt := train.Options{Context: ctx, Dir: dir, Open: f.open, Version: version(), Args: os.Args[1:]}
	if f.json {
		opt.JSON = os.Stdout
	}
	opt.Observer = observe(status)
	return opt, status
}

// observe prints a run's course: lasting lines for evaluations and saves, one
// live line for steps.
func observe(status *statusLine) train.Observer {
	var val float64
	return train.Observer{
		Memory: func(p model.Plan, free int64) {
			line := "memory     " + formatBytes(p.Total())
			if free > 0 {
				line += " of " + formatBytes(free) + " free"
			}
			for _, r := range p.Rows {
				if r.Bytes >= p.Total()/20 || r.Label == "gradients" || r.Label == "kernel scratch" || strings.HasPrefix(r.Label, "moments") {
					line += fmt.Sprintf(", %s %s", r.Label, formatBytes(r.Bytes))
				}
			}
			status.print("%s", line)
		},
		Start: func(i train.Info) {
			status.print("%s", describeRun(i))
		},
		Step: func(s runlog.Step, p train.Pace) {
			line := fmt.Sprintf("step %s/%s  loss %.4f", count(s.Step), count(p.LastStep), s.Loss)
			if val > 0 {
				line += fmt.Sprintf("  val %.4f", val)
			}
			if s.LossScale > 0 {
				line += fmt.Sprintf("  scale %g", s.LossScale)
			}
			status.set("%s  lr %.2e  norm %.2f  %s tok/s  %s left", line, s.LR, s.GradNorm, count(s.TokPerSec), shortTime(p.ETA))
		},
		Eval: func(step int64, e train.EvalResult) {
			val = e.LossNats
			bits := ""
			if e.BitsPerByte > 0 {
				bits = fmt.Sprintf(", %.3f bits per byte", e.BitsPerByte)
			}
			status.print("step %s: validation loss %.4f, perplexity %.2f%s", count(step), e.LossNats, e.Perplexity, bits)
		},
		Sample: func(step int64, prompt, text string) {
			status.print("--- step %s writes ---\n%s%s\n---", count(step), prompt, text)
		},
		Save:   func(step int64, path string) { status.set("saved %s", path) },
		Notice: func(s string) { status.print("note: %s", s) },
	}
}

func describeRun(i train.Info) string {
	m := i.Config.Model
	trained := ""
	if i.Trained < i.Params {
		trained = fmt.Sprintf("adapters   %s parameters to train (%.2f %%): %s\n", count(i.Trained), 100*float64(i.Trained)/float64(i.Params), i.Config.LoRA)
	}
	s := fmt.Sprintf("model      %s parameters: V %d, C %d, L %d, H %d, KVH %d, D %d, F %d, context %d\n", count(i.Params),
		m.VocabSize, m.DModel, m.Layers, m.Heads, m.KVHeads, m.HeadDim, m.FFN, i.Config.Context)
	s += trained + fmt.Sprintf("device     %s, %s\n", i.Device, i.Config.Precision)
	s += describeData(i)
	if i.FirstStep > 0 {
		s += fmt.Sprintf("\nresumed    at step %s", count(i.FirstStep))
	}
	return s
}

// describeData is one line about what a run trains on.
func describeData(i train.Info) string {
	perStep := int64(i.Config.Batch) * int64(i.Config.Context) * int64(i.Config.Accum)
	passes := float64(perStep*i.LastStep) / float64(i.TrainTokens)
	if c := i.Chats; c != nil {
		return fmt.Sprintf("chats      %s conversations (%s), %s tokens to learn, in %s rows; %s conversations held out; %s steps (%.2f passes)",
			count(c.Train.Conversations), c.Template, count(c.Train.Targets), count(c.Train.Rows), count(c.Held.Conversations), count(i.LastStep), passes)
	}
	return fmt.Sprintf("data       %s tokens to train on, %s held out; %s tokens a step, %s steps (%.2f passes)", count(i.TrainTokens),
		count(i.ValTokens), count(perStep), count(i.LastStep), passes)
}

// train runs t and prints how it ended.
func (f *trainFlags) train(ctx context.Context, t *train.Trainer, status *statusLine) (train.Result, error) {
	res, err := t.Run(ctx)
	status.clear()
	dir := f.out
	if f.resume != "" {
		dir = f.resume
	}
	if err != nil {
		if ctx.Err() != nil {
			status.print("saved step %s; go on with: tezgah train --resume %s", count(res.Steps), dir)
		}
		return res, err
	}
	if !f.json {
		reason := map[string]string{"time": " (time limit)", "target": " (target loss reached)"}[res.Reason]
		fmt.Printf("done: %s steps%s, %s tokens in %s, %s tok/s, validation loss %.4f\n%s\n", count(res.Steps), reason, count(res.Tokens),
			shortTime(time.Duration(res.Seconds*float64(time.Second))), count(res.TokPerSec), res.Val.LossNats, res.ModelPath)
	}
	return res, nil
}

// checkWord refuses a word outside a list and offers the nearest.
func checkWord(flag, word string, known []string) error {
	for _, k := range known {
		if k == word {
			return nil
		}
	}
	return usagef("unknown --%s %q, want one of %s%s", flag, word, strings.Join(known, ", "), nearest.Hint(word, known, ""))
}
