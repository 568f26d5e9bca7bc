// Package train runs training: it draws batches, steps the optimizer, measures
// on held-out text, keeps a log and checkpoints, and resumes to the bit.
//
// It does not choose a device: a Trainer is given a function that opens a
// backend, which it calls again after a lost device. Open trainer.go first,
// then loop.go; state.go saves and restores. data.go says where rows come from,
// chats.go that of conversations, base.go what a run starts from, lora.go how
// adapters are kept.
package train

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/optim"
)

// DataSource is a token file with its share of the mixture.
type DataSource struct {
	Path   string  `json:"path"`
	Weight float64 `json:"weight,omitempty"` // 0 for all sources: in proportion to their sizes
}

// Config is everything that decides a run. It is written into the run folder,
// the log and every checkpoint.
type Config struct {
	Data           []DataSource   `json:"data,omitempty"`       // token files; or else
	Chats          []string       `json:"chats,omitempty"`      // conversations to fine-tune on: jsonl files, or folders of them
	Template       string         `json:"template,omitempty"`   // of Chats; empty: the one that InitFrom was trained with, or chatml
	ChatsHash      string         `json:"chats_hash,omitempty"` // filled in at the start; a resumed run must have the same
	SkipBad        bool           `json:"skip_bad,omitempty"`   // leave broken lines of conversations out instead of refusing them
	ValData        string         `json:"val_data,omitempty"`   // token file, or conversations, to evaluate on; empty: a part of the data
	ValFraction    float64        `json:"val_fraction"`         // share of the tail, or of the conversations, held out; 0: 0.05; ignored with ValData
	Tokenizer      string         `json:"tokenizer,omitempty"`  // tokenizer.json, for token files that carry none and for Chats without InitFrom
	InitFrom       string         `json:"init_from,omitempty"`  // .llm or run folder whose weights training starts from; empty: random weights
	Preset         string         `json:"preset,omitempty"`     // for the record
	Model          model.Config   `json:"model"`                // VocabSize 0: that of the data; all zero with InitFrom: that of the file
	Batch          int            `json:"batch"`                // rows of one micro-step; 0: 8
	Context        int            `json:"context"`              // tokens of a row; 0: Model.Context
	Accum          int            `json:"accum"`                // micro-steps of a step; 0: 1
	Schedule       optim.Schedule `json:"schedule"`             // Total 0: the number of steps; Warmup negative: a fiftieth of them
	Optim          optim.Config   `json:"optim"`
	LoRA           model.LoRA     `json:"lora,omitzero"`      // train adapters beside the frozen weights of InitFrom; zero: all weights
	Moments8       bool           `json:"moments8,omitempty"` // 8-bit optimizer moments
	Precision      string         `json:"precision"`          // one of Precisions; empty: f32
	LabelSmoothing float64        `json:"label_smoothing,omitempty"`
	ZLoss          float64        `json:"z_loss,omitempty"`
	DocMask        bool           `json:"doc_mask,omitempty"`  // documents in a row do not see each other; always on with Chats
	Recompute      bool           `json:"recompute,omitempty"` // activation checkpointing: less memory, a third more arithmetic
	Seed           uint64         `json:"seed"`

	Epochs     float64       `json:"epochs,omitempty"`      // passes over the data when neither of the next two is set; 0: 1
	MaxSteps   int64         `json:"max_steps,omitempty"`   // 0 with MaxTokens 0: Epochs passes over the data
	MaxTokens  int64         `json:"max_tokens,omitempty"`  // rounded up to whole steps
	MaxTime    time.Duration `json:"max_time_ns,omitempty"` // training time, resumed runs counted together; 0: no limit
	TargetLoss float64       `json:"target_loss,omitempty"` // stop when the validation loss, in nats per token, is at most this; 0: never

	EvalEvery       int64 `json:"eval_every"`       // steps between evaluations; 0: a tenth of the run; negative: only at the end
	EvalTokens      int64 `json:"eval_tokens"`      // at most so many held-out tokens each time; 0: 65,536; negative: all
	CheckpointEvery int64 `json:"checkpoint_every"` // steps between checkpoints; 0: a tenth of the run; negative: only at the end
	Keep            int   `json:"keep"`             // checkpoints kept; 0: 3; negative: all

	SampleEvery  int64  `json:"sample_every,omitempty"`  // steps between texts that the model writes into the log; 0: never
	SamplePrompt string `json:"sample_prompt,omitempty"` // what they begin with; with Chats, what is asked
	SampleTokens int    `json:"sample_tokens,omitempty"` // tokens of such a text at most; 0: 64

	NoTensorBoard bool `json:"no_tensorboard,omitempty"` // no event files beside the log
}

// withDefaults fills what is left at zero, but for what depends on the data.
func (c Config) withDefaults() Config {
	c.Model = c.Model.WithDefaults()
	if len(c.Chats) > 0 {
		c.DocMask = true // conversations of a row do not see each other
	}
	if c.ValFraction == 0 {
		c.ValFraction = 0.05
	}
	c.LoRA = c.LoRA.WithDefaults()
	setDefault(&c.Batch, 8)
	setDefault(&c.Context, c.Model.Context)
	setDefault(&c.Accum, 1)
	setDefault(&c.Keep, 3)
	setDefault(&c.EvalTokens, 65536)
	if c.Epochs == 0 {
		c.Epochs = 1
	}
	if c.Precision == "" {
		c.Precision = F32
	}
	return c
}

// steps is the length of the run when one pass over the data has passTokens.
func (c Config) steps(passTokens int64) int64 {
	perStep := c.tokensPerStep()
	switch {
	case c.MaxSteps > 0 && c.MaxTokens > 0:
		return min(c.MaxSteps, ceilDiv(c.MaxTokens, perStep))
	case c.MaxTokens > 0:
		return ceilDiv(c.MaxTokens, perStep)
	case c.MaxSteps > 0:
		return c.MaxSteps
	}
	return max(1, int64(math.Ceil(c.Epochs*float64(passTokens)/float64(perStep))))
}

// withSteps fills what follows from the number of steps.
func (c Config) withSteps(total int64) Config {
	c.MaxSteps = total
	if c.Schedule.Total == 0 {
		c.Schedule.Total = int(total)
	}
	if c.Schedule.Warmup < 0 {
		c.Schedule.Warmup = int(total / 50)
	}
	setDefault(&c.EvalEvery, max(1, total/10))
	setDefault(&c.CheckpointEvery, max(1, total/10))
	return c
}

func setDefault[T int | int64](p *T, v T) {
	if *p == 0 {
		*p = v
	}
}

// Validate names the first field that makes no sense, with what it wants. It
// does not look at files.
func (c Config) Validate() error {
	c = c.withDefaults()
	bad := func(field string, got any, want string) error {
		return fmt.Errorf("%s is %v, want %s", field, got, want)
	}
	switch {
	case len(c.Data) == 0 && len(c.Chats) == 0:
		return fmt.Errorf("no data given, want at least one token file (tezgah data build makes one), or conversations")
	case len(c.Data) > 0 && len(c.Chats) > 0:
		return fmt.Errorf("both token files and conversations are given, want one of them: train on the text first, then fine-tune with --init")
	case len(c.Chats) > 0 && c.InitFrom == "" && c.Tokenizer == "":
		return fmt.Errorf("conversations need a model to start from (--init), or a tokenizer (--tokenizer) for a new one")
	case c.Template != "" && len(c.Chats) == 0:
		return bad("template", c.Template, "conversations to write with it (--sft)")
	case c.SkipBad && len(c.Chats) == 0:
		return bad("skip-bad", c.SkipBad, "conversations (--sft): token files have no lines")
	case !(c.ValFraction > 0 && c.ValFraction < 1):
		return bad("val-fraction", c.ValFraction, "a share between 0 and 1 such as 0.05")
	case c.Batch < 1 || c.Batch > 1<<16:
		return bad("batch", c.Batch, "1 to 65536")
	case c.Context < 1 || c.Context > 1<<20:
		return bad("context", c.Context, "1 to 1048576 tokens")
	case c.Accum < 1 || c.Accum > 1<<16:
		return bad("accum", c.Accum, "1 to 65536 micro-steps")
	case !slices.Contains(Precisions(), c.Precision):
		return bad("precision", c.Precision, "one of "+strings.Join(Precisions(), ", "))
	case !(c.LabelSmoothing >= 0 && c.LabelSmoothing < 1):
		return bad("label-smoothing", c.LabelSmoothing, "0 to below 1")
	case !(c.ZLoss >= 0) || math.IsInf(c.ZLoss, 0):
		return bad("z-loss", c.ZLoss, "0 or a small number such as 1e-4")
	case !(c.Epochs > 0) || c.Epochs > 1e6:
		return bad("epochs", c.Epochs, "a positive number of passes")
	case c.MaxSteps < 0:
		return bad("max-steps", c.MaxSteps, "a positive number")
	case c.MaxTokens < 0:
		return bad("max-tokens", c.MaxTokens, "a positive number")
	case c.MaxTime < 0:
		return bad("max-time", c.MaxTime, "a positive duration such as 90m")
	case !(c.TargetLoss >= 0):
		return bad("target-loss", c.TargetLoss, "a positive number of nats")
	case c.SampleEvery < 0:
		return bad("sample-every", c.SampleEvery, "a positive number of steps, or 0 for no samples")
	case c.SampleTokens < 0 || c.SampleTokens > 1<<16:
		return bad("sample-tokens", c.SampleTokens, "1 to 65536, or 0 for 64")
	case c.SampleEvery > 0 && len(c.Chats) > 0 && c.SamplePrompt == "":
		return fmt.Errorf("sample-prompt is empty, want a question for the model to answer")
	}
	for _, d := range c.Data {
		if !(d.Weight >= 0) || math.IsInf(d.Weight, 0) {
			return bad("the weight of "+d.Path, d.Weight, "a positive number such as 0.7")
		}
	}
	if c.LoRA.Ok() && c.InitFrom == "" {
		return fmt.Errorf("adapters (lora) need the model that they belong to (--init): random weights are not worth freezing")
	}
	if c.InitFrom != "" { // then the model's sizes are known
		if err := c.LoRA.Validate(c.Model); err != nil {
			return err
		}
	}
	return c.Optim.Validate()
}

// tokensPerStep is B·T·accum.
func (c Config) tokensPerStep() int64 {
	return int64(c.Batch) * int64(c.Context) * int64(c.Accum)
}

// configName is the file of the configuration inside a run folder.
const configName = "config.json"

func saveConfig(dir string, c Config) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return checkpoint.WriteFileAtomic(filepath.Join(dir, configName), func(w io.Writer) error {
		_, err := w.Write(append(b, '\n'))
		return err
	})
}

// LoadConfig reads the configuration of a run folder.
func LoadConfig(dir string) (Config, error) {
	path := filepath.Join(dir, configName)
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return Config{}, fmt.Errorf("%s is not a run folder: it has no %s", dir, configName)
	}
	if err != nil {
		return Config{}, err
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if err := c.Validate(); err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
