package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"tezgah/model"
	"tezgah/train"
)

// RunSettings are what a person chooses for a run. What is missing or zero
// takes its default; a pointer is a setting whose zero means something else.
type RunSettings struct {
	Name     string          `json:"name"`
	Data     []DataShare     `json:"data,omitempty"`
	SFT      []string        `json:"sft,omitempty"`      // texts of conversations, instead of data
	Template string          `json:"template,omitempty"` // of conversations
	Init     string          `json:"init,omitempty"`     // model to start from; RUN@STEP is a checkpoint
	LoRA     *model.LoRA     `json:"lora,omitempty"`
	Preset   string          `json:"preset,omitempty"`
	Model    json.RawMessage `json:"model,omitempty"` // fields of model.Config over the preset

	Batch          int      `json:"batch,omitempty"`
	Context        int      `json:"context,omitempty"`
	Accum          int      `json:"accum,omitempty"`
	LR             float64  `json:"lr,omitempty"`
	MinLR          *float64 `json:"min_lr,omitempty"` // missing: a tenth of lr
	Schedule       string   `json:"schedule,omitempty"`
	Warmup         *int     `json:"warmup,omitempty"` // steps; missing: a fiftieth of the run
	DecaySteps     int      `json:"decay_steps,omitempty"`
	Beta1          float64  `json:"beta1,omitempty"`
	Beta2          float64  `json:"beta2,omitempty"`
	Eps            float64  `json:"eps,omitempty"`
	WeightDecay    *float64 `json:"weight_decay,omitempty"` // missing: 0.1
	Clip           *float64 `json:"clip,omitempty"`         // missing: 1; 0: no clipping
	NonFinite      string   `json:"nonfinite,omitempty"`
	Precision      string   `json:"precision,omitempty"`
	Moments8       bool     `json:"moments8,omitempty"`
	Recompute      bool     `json:"recompute,omitempty"`
	DocMask        bool     `json:"doc_mask,omitempty"`
	LabelSmoothing float64  `json:"label_smoothing,omitempty"`
	ZLoss          float64  `json:"z_loss,omitempty"`
	Seed           uint64   `json:"seed,omitempty"`
	ValFraction    float64  `json:"val_fraction,omitempty"`

	MaxSteps        int64   `json:"max_steps,omitempty"`
	MaxTokens       int64   `json:"max_tokens,omitempty"`
	MaxMinutes      float64 `json:"max_minutes,omitempty"`
	Epochs          float64 `json:"epochs,omitempty"`
	EvalEvery       int64   `json:"eval_every,omitempty"`
	CheckpointEvery int64   `json:"checkpoint_every,omitempty"`
	Keep            int     `json:"keep,omitempty"`
	SampleEvery     int64   `json:"sample_every,omitempty"`
	SamplePrompt    string  `json:"sample_prompt,omitempty"`
	SampleTokens    int     `json:"sample_tokens,omitempty"`
	Device          string  `json:"device,omitempty"`
}

// DataShare is a token file with its weight in the mixture.
type DataShare struct {
	Name   string  `json:"name"`
	Weight float64 `json:"weight,omitempty"`
}

// setting finds the name that an error begins a sentence with.
var setting = regexp.MustCompile(`(?:^|[ :])([a-z][a-z0-9_-]*) (?:is|are) `)

// otherNames are settings that go by another name in the packages below.
var otherNames = map[string]string{"kind": "schedule", "total": "max_steps", "max_nonfinite": "nonfinite"}

// named makes an error of the packages below one that names its setting.
func named(err error) *apiError {
	var api *apiError
	if errors.As(err, &api) {
		return api
	}
	e := fail("bad_request", "%v", err)
	if m := setting.FindStringSubmatch(err.Error()); m != nil {
		e.Field = strings.ReplaceAll(m[1], "-", "_")
		if other, ok := otherNames[e.Field]; ok {
			e.Field = other
		}
	}
	return e
}

// settingsOf guesses the settings of a run that the command line made.
func (s *Service) settingsOf(name string, c train.Config) RunSettings {
	set := RunSettings{
		Name: name, Preset: c.Preset, Batch: c.Batch, Context: c.Context, Accum: c.Accum, LR: c.Schedule.LR, MinLR: &c.Schedule.MinLR,
		Schedule: c.Schedule.Kind, Warmup: &c.Schedule.Warmup, DecaySteps: c.Schedule.DecaySteps, Beta1: c.Optim.Beta1, Beta2: c.Optim.Beta2,
		Eps: c.Optim.Eps, WeightDecay: &c.Optim.WeightDecay, Clip: &c.Optim.Clip, NonFinite: c.Optim.NonFinite, Precision: c.Precision,
		Moments8: c.Moments8, Recompute: c.Recompute, DocMask: c.DocMask, LabelSmoothing: c.LabelSmoothing, ZLoss: c.ZLoss, Seed: c.Seed,
		ValFraction: c.ValFraction, MaxSteps: c.MaxSteps, MaxTokens: c.MaxTokens, MaxMinutes: c.MaxTime.Minutes(), EvalEvery: c.EvalEvery,
		CheckpointEvery: c.CheckpointEvery, Keep: c.Keep, Template: c.Template,
		SampleEvery: c.SampleEvery, SamplePrompt: c.SamplePrompt, SampleTokens: c.SampleTokens,
	}
	if c.LoRA.Ok() {
		set.LoRA = &c.LoRA
	}
	if c.InitFrom == "" {
		set.Model, _ = json.Marshal(c.Model)
	}
	for _, d := range c.Data {
		set.Data = append(set.Data, DataShare{strings.TrimSuffix(filepath.Base(d.Path), dataExt), d.Weight})
	}
	return set
}

// movePaths points a configuration to the files of this folder, in case that it
// was moved or came from another place. Files that are where the configuration
// says stay as they are.
func (s *Service) movePaths(c *train.Config, runDir string) {
	move := func(path *string, here string) {
		if _, err := os.Stat(*path); err == nil || *path == "" {
			return
		}
		if _, err := os.Stat(here); err == nil {
			*path = here
		}
	}
	parts := func(path string) []string { return strings.Split(strings.ReplaceAll(path, `\`, "/"), "/") }
	for i := range c.Data {
		p := parts(c.Data[i].Path)
		move(&c.Data[i].Path, s.path("data", p[len(p)-1]))
	}
	for i := range c.Chats {
		if p := parts(c.Chats[i]); len(p) > 1 {
			move(&c.Chats[i], s.path("texts", p[len(p)-2], textFiles))
		}
	}
	move(&c.InitFrom, filepath.Join(runDir, initName))
}

// speedKey tells runs apart whose steps take different time.
func speedKey(c train.Config, device string) string {
	return fmt.Sprint(c.Model, c.Batch, c.Context, c.Precision, c.Moments8, c.Recompute, c.DocMask, c.LoRA, device)
}

// round keeps four digits of a speed.
func round(x float64) float64 {
	if x == 0 || !isFinite(x) {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}
