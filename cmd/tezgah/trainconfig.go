package main

import (
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"tezgah/model"
	"tezgah/train"
)

// config completes the flags into a training configuration.
func (f *trainFlags) config(fl *pflag.FlagSet) (train.Config, error) {
	c := f.cfg
	c.NoTensorBoard = !f.tensorBoard
	for _, s := range f.data {
		src, err := parseSource(s)
		if err != nil {
			return c, err
		}
		c.Data = append(c.Data, src)
	}
	if c.InitFrom != "" {
		m, err := f.initModel(fl)
		if err != nil {
			return c, err
		}
		c.Model, c.Preset = m, ""
		if c.LoRA, err = parseLoRA(f.lora, m); err != nil {
			return c, usageError{err}
		}
		return f.withRates(c), nil
	}
	override := c.Model
	preset, err := f.preset(c)
	if err != nil {
		return c, err
	}
	c.Model = merge(preset, override)
	if f.untied {
		c.Model.Tied = false
	}
	if c.Context > 0 {
		c.Model.Context = c.Context
	}
	return f.withRates(c), nil
}

// withRates fills the learning rates that were left to the model's size.
func (f *trainFlags) withRates(c train.Config) train.Config {
	if c.Schedule.LR == 0 {
		c.Schedule.LR = train.DefaultRate(c)
	}
	if c.Schedule.MinLR = f.minLR; f.minLR < 0 {
		c.Schedule.MinLR = c.Schedule.LR / 10
	}
	return c
}

// preset resolves --preset; auto asks the device for its free memory.
func (f *trainFlags) preset(c train.Config) (model.Config, error) {
	if c.Preset != "auto" {
		m, err := model.Preset(c.Preset)
		if err != nil {
			return m, usageError{err}
		}
		m.VocabSize = 0 // the data's
		return m, nil
	}
	b, err := f.open()
	if err != nil {
		return model.Config{}, err
	}
	defer b.Close()
	return train.AutoModel(c, b)
}

// initModel takes the architecture from the model that training starts with.
func (f *trainFlags) initModel(fl *pflag.FlagSet) (model.Config, error) {
	for _, name := range []string{"preset", "d-model", "layers", "heads", "kv-heads", "head-dim", "ffn", "untied", "activation", "rope-theta"} {
		if fl.Changed(name) {
			return model.Config{}, usagef("--%s cannot go with --init: the architecture is that of the model", name)
		}
	}
	file, err := modelFile(f.cfg.InitFrom)
	if err != nil {
		return model.Config{}, err
	}
	return train.ModelOf(file)
}

// defaultRank is r of --lora where it is not given.
const defaultRank = "r=16"

// parseLoRA reads --lora for a model. Whatever is left out has its default.
func parseLoRA(s string, m model.Config) (model.LoRA, error) {
	if s == "" {
		return model.LoRA{}, nil
	}
	ranked := false
	for _, part := range strings.Split(s, ",") {
		key, _, _ := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		ranked = ranked || key == "r" || key == "rank"
	}
	if !ranked {
		s = defaultRank + "," + s
	}
	l, err := model.ParseLoRA(s)
	if err != nil {
		return l, err
	}
	return l, l.Validate(m)
}

// merge puts the fields of override that are set over base.
func merge(base, override model.Config) model.Config {
	pick(&base.DModel, override.DModel)
	pick(&base.Layers, override.Layers)
	if override.DModel > 0 || override.Heads > 0 {
		base.HeadDim = 0 // follows from the new sizes unless given
	}
	if override.Heads > 0 {
		base.KVHeads = 0
	}
	pick(&base.Heads, override.Heads)
	pick(&base.KVHeads, override.KVHeads)
	pick(&base.HeadDim, override.HeadDim)
	pick(&base.FFN, override.FFN)
	pick(&base.RopeTheta, override.RopeTheta)
	pick(&base.Activation, override.Activation)
	return base
}

func pick[T comparable](dst *T, v T) {
	var zero T
	if v != zero {
		*dst = v
	}
}

// parseSource reads F.bin or F.bin:0.7.
func parseSource(s string) (train.DataSource, error) {
	if _, err := os.Stat(s); err == nil {
		return train.DataSource{Path: s}, nil
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return train.DataSource{Path: s}, nil
	}
	w, err := strconv.ParseFloat(s[i+1:], 64)
	if err != nil {
		return train.DataSource{Path: s}, nil // a path with a colon; opening it will say that it is missing
	}
	if !(w > 0) {
		return train.DataSource{}, usagef("--data %s: the weight is %v, want a positive number", s, w)
	}
	return train.DataSource{Path: s[:i], Weight: w}, nil
}
