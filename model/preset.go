package model

import (
	"fmt"
	"strings"

	"tezgah/op"
	"tezgah/tensor"
)

// presets, smallest first. All fit WebGPU's default limits: no single tensor
// is above 128 MiB. VocabSize and Context are meant to be replaced by those of
// the tokenizer and of the run.
var presets = []struct {
	name string
	Config
}{
	{"nano", Config{VocabSize: 2048, Context: 256, DModel: 128, Layers: 4, Heads: 4, KVHeads: 2, FFN: 384}},         // 1.0M
	{"micro", Config{VocabSize: 8192, Context: 512, DModel: 256, Layers: 8, Heads: 4, KVHeads: 2, FFN: 1024}},       // 10.0M
	{"mini", Config{VocabSize: 16384, Context: 512, DModel: 512, Layers: 8, Heads: 8, KVHeads: 2, FFN: 2048}},       // 38.8M
	{"small", Config{VocabSize: 16384, Context: 1024, DModel: 768, Layers: 12, Heads: 12, KVHeads: 4, FFN: 3072}},   // 116.4M
	{"medium", Config{VocabSize: 32768, Context: 1024, DModel: 1024, Layers: 24, Heads: 16, KVHeads: 4, FFN: 3584}}, // 360.8M
	{"large", Config{VocabSize: 16384, Context: 2048, DModel: 2048, Layers: 22, Heads: 16, KVHeads: 4, FFN: 5632}},  // 1,025.6M
}

// Presets lists the preset names, smallest model first.
func Presets() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	return names
}

// Preset returns the configuration of that name, with defaults filled in and a
// tied head. An unknown name is an error that offers the nearest spelling.
func Preset(name string) (Config, error) {
	for _, p := range presets {
		if p.name == name {
			c := p.Config
			c.Tied = true
			return c.WithDefaults(), nil
		}
	}
	names := Presets()
	msg := fmt.Sprintf("unknown preset %q: want one of %s", name, strings.Join(names, ", "))
	if near := nearest(name, names); near != "" {
		msg += fmt.Sprintf("; did you mean %q?", near)
	}
	return Config{}, fmt.Errorf("%s", msg)
}

// AutoPreset returns the largest preset whose training fits freeBytes and the
// limits, with its memory plan. vocab replaces the preset's vocabulary when it
// is not 0, t.Context its context. operands is as PredictMemory has it.
func AutoPreset(vocab int, freeBytes int64, p ParamOptions, t TrainOptions, lim op.Limits, operands tensor.DType) (string, Config, Plan, error) {
	var last error
	for i := len(presets) - 1; i >= 0; i-- {
		cfg, err := Preset(presets[i].name)
		if err != nil {
			return "", Config{}, Plan{}, err
		}
		if vocab != 0 {
			cfg.VocabSize = vocab
		}
		if t.Context != 0 {
			cfg.Context = t.Context
		}
		plan, err := PredictMemory(cfg, p, t, lim, operands)
		switch {
		case err != nil:
			last = err
		case plan.Total() > freeBytes:
			last = fmt.Errorf("preset %s needs %s, %s are free", presets[i].name, FormatBytes(plan.Total()), FormatBytes(freeBytes))
		default:
			return presets[i].name, cfg, plan, nil
		}
	}
	return "", Config{}, Plan{}, fmt.Errorf("no preset fits: %w; use a smaller batch, a shorter context or recompute", last)
}

// nearest returns the candidate with the smallest edit distance to name, or ""
// when none is within half of the name's length.
func nearest(name string, candidates []string) string {
	best, bestDist := "", (len(name)+1)/2+1
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(name), c); d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions and substitutions of bytes
// that turn a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(diag+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
