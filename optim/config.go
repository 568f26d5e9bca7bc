// Package optim updates a model's parameters: AdamW with decoupled weight
// decay over the mega-buffers of model.Params, with float32 or 8-bit moments,
// and the learning-rate schedules as pure functions of the step.
//
// It decides nothing about when to step or what to log; that is the trainer's.
// Open adamw.go first, then schedule.go.
package optim

import (
	"fmt"
	"math"

	"tezgah/op"
)

// What to do with a step whose gradients hold NaN or infinities.
const (
	NonFiniteSkip = "skip" // leave weights and moments alone, report the tensors, go on
	NonFiniteZero = "zero" // replace those gradients by 0 and update
	NonFiniteStop = "stop" // as skip, and end with an error
)

// Config are AdamW's numbers. Defaults has the usual ones; zero has the
// meaning that each field says.
type Config struct {
	Beta1        float64 `json:"beta1"`         // decay of the first moment; 0 means 0.9
	Beta2        float64 `json:"beta2"`         // decay of the second moment; 0 means 0.95
	Eps          float64 `json:"eps"`           // added to √v̂; 0 means 1e-8
	WeightDecay  float64 `json:"weight_decay"`  // of matrices, not of norm gains; 0 means none
	Clip         float64 `json:"clip"`          // largest norm of the gradient; 0 means no clipping
	NonFinite    string  `json:"nonfinite"`     // "skip", "zero" or "stop"; "" means "skip"
	MaxNonFinite int     `json:"max_nonfinite"` // steps in a row with non-finite gradients that end training; 0 means 5
}

// Defaults returns β₁ 0.9, β₂ 0.95, ε 1e-8, weight decay 0.1, clip 1.0, skip.
func Defaults() Config { return Config{WeightDecay: 0.1, Clip: 1}.withDefaults() }

func (c Config) withDefaults() Config {
	if c.Beta1 == 0 {
		c.Beta1 = 0.9
	}
	if c.Beta2 == 0 {
		c.Beta2 = 0.95
	}
	if c.Eps == 0 {
		c.Eps = 1e-8
	}
	if c.NonFinite == "" {
		c.NonFinite = NonFiniteSkip
	}
	if c.MaxNonFinite == 0 {
		c.MaxNonFinite = 5
	}
	return c
}

// Validate names the field, what it is and what it should be.
func (c Config) Validate() error {
	c = c.withDefaults()
	for _, f := range []struct {
		name   string
		got    float64
		lo, hi float64 // lo ≤ got < hi
	}{
		{"beta1", c.Beta1, 0, 1}, {"beta2", c.Beta2, 0, 1}, {"eps", c.Eps, 0, 1},
		{"weight_decay", c.WeightDecay, 0, math.Inf(1)}, {"clip", c.Clip, 0, math.Inf(1)},
	} {
		if !(f.got >= f.lo && f.got < f.hi) {
			return fmt.Errorf("optimizer: %s is %v, want at least %v and less than %v", f.name, f.got, f.lo, f.hi)
		}
	}
	if c.MaxNonFinite < 0 {
		return fmt.Errorf("optimizer: max_nonfinite is %d, want at least 1, or 0 for 5", c.MaxNonFinite)
	}
	_, err := c.policy()
	return err
}

// policy is what the device does; stop is skip there.
func (c Config) policy() (op.NonFinite, error) {
	switch c.NonFinite {
	case NonFiniteSkip, NonFiniteStop:
		return op.NonFiniteSkip, nil
	case NonFiniteZero:
		return op.NonFiniteZero, nil
	}
	return 0, fmt.Errorf("optimizer: nonfinite is %q, want %q, %q or %q", c.NonFinite, NonFiniteSkip, NonFiniteZero, NonFiniteStop)
}
