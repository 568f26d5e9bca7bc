package optim

import (
	"math"
	"strings"
	"testing"
)

// TestSchedule states points of each kind that the formulas give by hand.
func TestSchedule(t *testing.T) {
	base := Schedule{LR: 1, MinLR: 0.1, Warmup: 4, Total: 104}
	kind := func(k, shape string) Schedule {
		s := base
		s.Kind, s.DecayShape, s.DecaySteps = k, shape, 25
		return s
	}
	for _, c := range []struct {
		s    Schedule
		step int
		want float64
	}{
		{kind("cosine", ""), 0, 0.2}, {kind("cosine", ""), 3, 0.8}, {kind("cosine", ""), 4, 1},
		{kind("cosine", ""), 54, 0.55}, {kind("cosine", ""), 104, 0.1}, {kind("cosine", ""), 9999, 0.1},
		{kind("", ""), 54, 0.55},
		{kind("cosine", ""), 29, 0.1 + 0.9*(1+math.Sqrt2/2)/2},
		{kind("linear", ""), 1, 0.4}, {kind("linear", ""), 14, 0.91}, {kind("linear", ""), 104, 0.1},
		{kind("constant", ""), 2, 0.6}, {kind("constant", ""), 100000, 1},
		{kind("wsd", "sqrt"), 79, 1}, {kind("wsd", "sqrt"), 83, 0.1 + 0.9*(1-0.4)}, {kind("wsd", "sqrt"), 104, 0.1},
		{kind("wsd", "linear"), 84, 0.1 + 0.9*0.8}, {kind("wsd", "linear"), 50, 1}, {kind("wsd", "linear"), 200, 0.1},
	} {
		if err := c.s.Validate(); err != nil {
			t.Error(err)
		}
		if got := c.s.At(c.step); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s %s at step %d: %v, want %v", c.s.Kind, c.s.DecayShape, c.step, got, c.want)
		}
	}
	// Without a warm-up the first step has the peak; wsd decays over a fifth by default.
	if got := (Schedule{Kind: "linear", LR: 3, Total: 10}).At(0); got != 3 {
		t.Errorf("first step %v, want 3", got)
	}
	d := Schedule{Kind: "wsd", LR: 1, Total: 100, DecayShape: "linear"}
	if d.At(80) != 1 || !(d.At(81) < 1) {
		t.Errorf("default decay: %v at 80 and %v at 81", d.At(80), d.At(81))
	}
}

// TestScheduleShape: every kind rises through the warm-up, never falls below
// the floor or above the peak, and never rises after the warm-up.
func TestScheduleShape(t *testing.T) {
	for _, k := range []string{"constant", "cosine", "linear", "wsd"} {
		s := Schedule{Kind: k, LR: 0.003, MinLR: 0.0003, Warmup: 7, Total: 60}
		for i := range 100 {
			a, b := s.At(i), s.At(i+1)
			if i < 7 && !(b > a) || i >= 7 && b > a || a <= 0 || a > 0.003+1e-15 || i >= 7 && a < 0.0003-1e-15 {
				t.Errorf("%s: %v at step %d, %v at the next", k, a, i, b)
			}
		}
	}
}

func TestScheduleErrors(t *testing.T) {
	good := Schedule{Kind: "wsd", LR: 1, Total: 10, Warmup: 2}
	for want, change := range map[string]func(*Schedule){
		`kind is "step"`:        func(s *Schedule) { s.Kind = "step" },
		"lr is 0":               func(s *Schedule) { s.LR = 0 },
		"lr is NaN":             func(s *Schedule) { s.LR = math.NaN() },
		"min_lr is 2":           func(s *Schedule) { s.MinLR = 2 },
		"warmup is -1":          func(s *Schedule) { s.Warmup = -1 },
		"total is 2":            func(s *Schedule) { s.Total = 2 },
		"decay_steps is 9":      func(s *Schedule) { s.DecaySteps = 9 },
		`decay_shape is "wavy"`: func(s *Schedule) { s.DecayShape = "wavy" },
	} {
		s := good
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
