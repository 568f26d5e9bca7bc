package model

import (
	"fmt"
	"math"
)

// Llama3 is the one known type of RopeScaling.
const Llama3 = "llama3"

// RopeScaling lets a model that was trained on OriginalContext tokens go on to
// a longer context by slowing its low rotary frequencies down. The zero value
// means none. Its fields and their names are those of checkpoint.RopeScaling.
type RopeScaling struct {
	Type            string  `json:"type"`             // "llama3"
	Factor          float64 `json:"factor"`           // how much the low frequencies are slowed down, at least 1
	LowFreqFactor   float64 `json:"low_freq_factor"`  // up to this many turns in the original context a frequency is low
	HighFreqFactor  float64 `json:"high_freq_factor"` // from this many turns on it is high; above LowFreqFactor
	OriginalContext int     `json:"original_context"` // context of the first training, tokens
}

func (s RopeScaling) validate() error {
	if s == (RopeScaling{}) {
		return nil
	}
	finiteAbove := func(x, low float64) bool { return x > low && !math.IsInf(x, 0) }
	switch {
	case s.Type != Llama3:
		return fmt.Errorf("model config: rope_scaling type is %q, want %q", s.Type, Llama3)
	case s.Factor != 1 && !finiteAbove(s.Factor, 1):
		return fmt.Errorf("model config: rope_scaling factor is %v, want a finite number of at least 1", s.Factor)
	case !finiteAbove(s.LowFreqFactor, 0):
		return fmt.Errorf("model config: rope_scaling low_freq_factor is %v, want a finite number above 0", s.LowFreqFactor)
	case !finiteAbove(s.HighFreqFactor, s.LowFreqFactor):
		return fmt.Errorf("model config: rope_scaling high_freq_factor is %v, want a finite number above low_freq_factor %v",
			s.HighFreqFactor, s.LowFreqFactor)
	case s.OriginalContext < 1 || s.OriginalContext > maxDim:
		return fmt.Errorf("model config: rope_scaling original_context is %d, want 1 to %d", s.OriginalContext, maxDim)
	}
	return nil
}

// scale returns the frequency freq (radians a position) as the model uses it.
// A frequency that turns round at least HighFreqFactor times within the
// original context tells near positions apart and stays. One that turns at most
// LowFreqFactor times is divided by Factor, so that the longer context shows it
// no angle that training did not. Between the two, the share of freq that stays
// grows linearly with the number of turns (Dubey et al., "The Llama 3 Herd of
// Models", 2024; as _compute_llama3_parameters in transformers).
func (s RopeScaling) scale(freq float64) float64 {
	if s == (RopeScaling{}) {
		return freq
	}
	turns := float64(s.OriginalContext) * freq / (2 * math.Pi)
	kept := (turns - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
	kept = min(max(kept, 0), 1)
	return kept*freq + (1-kept)*freq/s.Factor
}

// ropeTable returns the rotary table of n positions from first on, (n, D): the
// cosines of the position's D/2 angles, then their sines, with angle_i =
// position·RopeTheta^(−2i/D) (Su et al., "RoFormer", 2021), the frequency
// scaled as RopeScaling says. Angles are float64, so that far positions keep
// their precision.
func ropeTable(c Config, first, n int) []float32 {
	half := c.HeadDim / 2
	table := make([]float32, n*c.HeadDim)
	for i := range half {
		freq := c.RopeScaling.scale(math.Pow(c.RopeTheta, -2*float64(i)/float64(c.HeadDim)))
		for t := range n {
			sin, cos := math.Sincos(float64(first+t) * freq)
			table[t*c.HeadDim+i] = float32(cos)
			table[t*c.HeadDim+half+i] = float32(sin)
		}
	}
	return table
}

// attentionScale is D^−½, by which scores are multiplied.
func (c Config) attentionScale() float32 { return float32(1 / math.Sqrt(float64(c.HeadDim))) }
