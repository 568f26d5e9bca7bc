package optim

import (
	"fmt"
	"math"
)

// Schedule is a learning rate as a pure function of the step, so that a
// resumed run needs nothing but its step number. The zero value of a field
// means what its comment says.
//
// All kinds begin with Warmup steps that rise in a straight line, LR·(s+1)/(Warmup+1)
// for s = 0 … Warmup−1. After the warm-up, with x from 0 at its end to 1 at
// step Total:
//
//	constant  LR
//	linear    LR + (MinLR − LR)·x
//	cosine    MinLR + (LR − MinLR)·(1 + cos πx)/2          (Loshchilov and Hutter, SGDR, 2017)
//	wsd       LR, then in the last DecaySteps steps, with y from 0 to 1 over them,
//	          MinLR + (LR − MinLR)·(1 − √y) for "sqrt", ·(1 − y) for "linear"
//	          (Hu et al., MiniCPM, 2024; Hägele et al., "Scaling Laws and
//	          Compute-Optimal Training Beyond Fixed Training Durations", 2024)
//
// From step Total on the rate stays at its last value.
type Schedule struct {
	Kind       string  `json:"kind"`        // "constant", "cosine", "linear" or "wsd"; "" means "cosine"
	LR         float64 `json:"lr"`          // the peak; no default
	MinLR      float64 `json:"min_lr"`      // the rate at the end; 0 means 0
	Warmup     int     `json:"warmup"`      // steps of warm-up; 0 means none
	Total      int     `json:"total"`       // steps of the run, above Warmup; unused by "constant"
	DecaySteps int     `json:"decay_steps"` // wsd: steps of the last phase; 0 means a fifth of Total
	DecayShape string  `json:"decay_shape"` // wsd: "sqrt" or "linear"; "" means "sqrt"
}

func (s Schedule) withDefaults() Schedule {
	if s.Kind == "" {
		s.Kind = "cosine"
	}
	if s.DecaySteps == 0 {
		s.DecaySteps = max(1, s.Total/5)
	}
	if s.DecayShape == "" {
		s.DecayShape = "sqrt"
	}
	return s
}

// Validate names the field, what it is and what it should be.
func (s Schedule) Validate() error {
	s = s.withDefaults()
	switch {
	case s.Kind != "constant" && s.Kind != "cosine" && s.Kind != "linear" && s.Kind != "wsd":
		return fmt.Errorf("schedule: kind is %q, want constant, cosine, linear or wsd", s.Kind)
	case !(s.LR > 0) || math.IsInf(s.LR, 0):
		return fmt.Errorf("schedule: lr is %v, want a finite number above 0", s.LR)
	case !(s.MinLR >= 0 && s.MinLR <= s.LR):
		return fmt.Errorf("schedule: min_lr is %v, want 0 to lr %v", s.MinLR, s.LR)
	case s.Warmup < 0:
		return fmt.Errorf("schedule: warmup is %d steps, want at least 0", s.Warmup)
	case s.Kind == "constant":
		return nil
	case s.Total <= s.Warmup:
		return fmt.Errorf("schedule: total is %d steps, want more than warmup %d", s.Total, s.Warmup)
	case s.Kind != "wsd":
		return nil
	case s.DecaySteps < 1 || s.DecaySteps > s.Total-s.Warmup:
		return fmt.Errorf("schedule: decay_steps is %d, want 1 to %d (total − warmup)", s.DecaySteps, s.Total-s.Warmup)
	case s.DecayShape != "sqrt" && s.DecayShape != "linear":
		return fmt.Errorf("schedule: decay_shape is %q, want sqrt or linear", s.DecayShape)
	}
	return nil
}

// At returns the learning rate of a step, counted from 0, of a schedule that
// passes Validate.
func (s Schedule) At(step int) float64 {
	s = s.withDefaults()
	if step < s.Warmup {
		return s.LR * float64(step+1) / float64(s.Warmup+1)
	}
	switch s.Kind {
	case "linear":
		return s.between(1 - progress(step, s.Warmup, s.Total))
	case "cosine":
		return s.between((1 + math.Cos(math.Pi*progress(step, s.Warmup, s.Total))) / 2)
	case "wsd":
		y := progress(step, s.Total-s.DecaySteps, s.Total)
		if s.DecayShape == "sqrt" {
			y = math.Sqrt(y)
		}
		return s.between(1 - y)
	}
	return s.LR
}

// between is MinLR at 0 and LR at 1.
func (s Schedule) between(f float64) float64 { return s.MinLR + (s.LR-s.MinLR)*f }

// progress goes from 0 at step lo to 1 at step hi and stays within.
func progress(step, lo, hi int) float64 {
	if hi <= lo {
		return 1
	}
	return min(1, max(0, float64(step-lo)/float64(hi-lo)))
}
