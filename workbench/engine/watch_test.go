package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"tezgah/runlog"
)

// curve feeds a watcher with losses and returns the codes that came up.
func curve(w *watcher, steps int, loss func(i int) float64, val func(i int) float64) map[string]int {
	for i := 1; i <= steps; i++ {
		r := runlog.Step{Step: int64(i), Loss: loss(i), LR: w.peakLR}
		if val != nil && i%50 == 0 {
			v := val(i)
			r.ValLoss = &v
		}
		w.step(r)
	}
	codes := map[string]int{}
	for _, x := range w.warnings {
		codes[x.Code]++
	}
	return codes
}

// falling is the usual course: from 8 to 3 nats, ever slower.
func falling(i int) float64 { return 3 + 5*math.Exp(-float64(i)/200) }

// TestNoFalseAlarms: curves that fall, or lie flat, under noise of any size
// that real runs have. Noise of neighbouring steps is correlated, as when a
// data set changes its subject.
func TestNoFalseAlarms(t *testing.T) {
	shapes := map[string]func(int) float64{
		"falling": falling,
		"flat":    func(i int) float64 { return max(falling(i), 3.05) },
		"slow":    func(i int) float64 { return 8 - 2*float64(i)/5000 - math.Min(1, float64(i)/300) },
	}
	for name, shape := range shapes {
		for seed := range uint64(40) {
			rng := rand.New(rand.NewPCG(seed, 1))
			sigma := []float64{0, 0.05, 0.2, 0.6}[seed%4]
			drift := 0.0
			got := curve(&watcher{peakLR: 1e-3}, 5000, func(i int) float64 {
				drift += 0.3 * (sigma/4*rng.NormFloat64() - drift)
				return shape(i) + drift + sigma*rng.NormFloat64()
			}, func(i int) float64 { return shape(i) + 0.1 + 0.002*rng.NormFloat64() })
			if len(got) > 0 {
				t.Errorf("%s, seed %d, noise %v: %v", name, seed, sigma, got)
			}
		}
	}
}

func TestWarnings(t *testing.T) {
	noisy := func(f func(int) float64) func(int) float64 {
		rng := rand.New(rand.NewPCG(7, 7))
		return func(i int) float64 { return f(i) + 0.1*rng.NormFloat64() }
	}
	cases := []struct {
		name      string
		loss, val func(int) float64
		want      string
	}{
		{"rising after a minimum", noisy(func(i int) float64 { return falling(i) + max(0, float64(i-1000))*0.002 }), nil, warnRising},
		{"a jump", noisy(func(i int) float64 { return falling(i) + 2*step01(i, 800) }), nil, warnRising},
		{"diverging", noisy(func(i int) float64 { return falling(i) + 8*step01(i, 300) }), nil, warnDiverged},
		{"not a number", func(i int) float64 { return falling(i) / (1 - step01(i, 50)) * (1 - 0*step01(i, 50)) }, nil, warnDiverged},
		{"learning nothing", noisy(func(i int) float64 { return 8 }), nil, warnSlowStart},
		{"by heart", noisy(falling), func(i int) float64 { return falling(min(i, 600)) + max(0, float64(i-600))*0.0005 }, warnOverfitting},
	}
	for _, c := range cases {
		got := curve(&watcher{peakLR: 1e-3}, 2000, c.loss, c.val)
		if got[c.want] == 0 {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
	if got := curve(&watcher{peakLR: 1e-3, pretrained: true}, 2000, noisy(func(int) float64 { return 3 }), nil); len(got) != 0 {
		t.Errorf("a flat loss from trained weights: %v", got)
	}
}

func step01(i, at int) float64 {
	if i >= at {
		return 1
	}
	return 0
}

// TestNonFiniteIsOneWarning: many bad steps are one warning with a count, and
// some in a row are a second.
func TestNonFiniteIsOneWarning(t *testing.T) {
	w := &watcher{peakLR: 1}
	for i := int64(1); i <= 30; i++ {
		r := runlog.Step{Step: i, Loss: 3, LR: 1}
		if i%2 == 0 || i > 25 {
			r.NonFinite = 2
		}
		w.step(r)
	}
	if len(w.warnings) != 2 {
		t.Fatalf("got %v", w.warnings)
	}
	if n := w.last(warnNonFinite).Values["count"]; n != int64(34) {
		t.Errorf("nonfinite count %v, want 34 of 17 steps", n)
	}
	if n := w.last(warnSkipped).Values["count"]; n != int64(5) {
		t.Errorf("skipped %v in a row, want 5", n)
	}
	scaled := &watcher{peakLR: 1}
	for i := int64(1); i <= 100; i++ { // a scale that is tried again and again
		scaled.step(runlog.Step{Step: i, Loss: 3, LR: 1, LossScale: 1024, NonFinite: i % 5 / 4})
	}
	if len(scaled.warnings) != 0 {
		t.Errorf("a loss scale that finds its height: %v", scaled.warnings)
	}
	for i := int64(101); i <= 120; i++ {
		scaled.step(runlog.Step{Step: i, Loss: 3, LR: 1, LossScale: 1024, NonFinite: 1})
	}
	if last := scaled.last(warnSkipped); last == nil || last.Values["count"] != int64(20) {
		t.Errorf("a loss scale that finds none: %v", scaled.warnings)
	}
	list := w.list()
	w.step(runlog.Step{Step: 31, Loss: 3, NonFinite: 1})
	if list[0].Values["count"] != int64(34) {
		t.Error("a list changed after it was handed out")
	}
}
