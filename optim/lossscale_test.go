package optim_test

import (
	"math"
	"testing"

	"tezgah/op"
	"tezgah/optim"
)

// TestLossScaleChangesNothingButTheRange: gradients that are 2¹⁶ times as large
// give the same weights, to the bit, because the scale is a power of two.
func TestLossScaleChangesNothingButTheRange(t *testing.T) {
	b := cpuBackend(t, 2)
	plain, scaled := newParams(t, b, moments), newParams(t, b, moments)
	defer plain.Close()
	defer scaled.Close()
	a, s := newAdamW(t, plain, optim.Config{}), newAdamW(t, scaled, optim.Config{})
	ls := optim.NewLossScale()
	s.SetLossScale(&ls)
	for step := range 3 {
		fillGrads(t, plain, uint64(step), 0.1)
		fillGrads(t, scaled, uint64(step), 0.1)
		for _, g := range scaled.Grads() {
			scaled.Runner().Scale(op.Scale{Dst: g.T, Src: g.T, Factor: ls.Factor()})
		}
		want, err := a.Step(1e-2)
		check(t, err)
		got, err := s.Step(1e-2)
		check(t, err)
		if got.Norm != want.Norm || got.Clip != want.Clip || got.Rescaled {
			t.Fatalf("step %d: norm and clip are %v and %v, want %v and %v", step, got.Norm, got.Clip, want.Norm, want.Clip)
		}
	}
	for i, w := range plain.Weights() {
		x, y := read(t, plain, w.T), read(t, scaled, scaled.Weights()[i].T)
		for j := range x {
			if math.Float32bits(x[j]) != math.Float32bits(y[j]) {
				t.Fatalf("%s[%d] is %v with loss scaling, %v without", w.Name, j, y[j], x[j])
			}
		}
	}
}

// TestLossScaleFollowsOverflows: a step that overflows is skipped and halves the
// scale without counting as a fault; at 1 it does; quiet steps double it.
func TestLossScaleFollowsOverflows(t *testing.T) {
	p := newParams(t, cpuBackend(t, 1), moments)
	defer p.Close()
	a := newAdamW(t, p, optim.Config{MaxNonFinite: 2})
	ls := optim.LossScale{Scale: 4}
	a.SetLossScale(&ls)
	inf := func() {
		fillGrads(t, p, 1, 0.1)
		g := find(t, p.Grads(), "layers.1.wk")
		op.WriteSlice(p.Runner(), op.Of(g.Buf, g.Off, 1), []float32{float32(math.Inf(1))})
	}
	before := read(t, p, find(t, p.Weights(), "tok_emb"))
	for _, want := range []float64{2, 1} {
		inf()
		s, err := a.Step(1e-2)
		check(t, err)
		if !s.Skipped || !s.Rescaled || ls.Scale != want || len(s.Culprits) != 0 {
			t.Fatalf("skipped %v, rescaled %v, scale %v, want true, true, %v", s.Skipped, s.Rescaled, ls.Scale, want)
		}
	}
	inf()
	s, err := a.Step(1e-2)
	check(t, err)
	if s.Rescaled || len(s.Culprits) != 1 || s.Culprits[0].Name != "layers.1.wk" {
		t.Fatalf("at scale 1 the tensor must be named, got %+v", s)
	}
	after := read(t, p, find(t, p.Weights(), "tok_emb"))
	for i := range before {
		if before[i] != after[i] {
			t.Fatal("a skipped step changed a weight")
		}
	}
	inf()
	if _, err := a.Step(1e-2); err == nil {
		t.Fatal("two faults in a row at scale 1 did not end the run")
	}
	ls = optim.LossScale{Scale: 8, Good: 1999}
	fillGrads(t, p, 2, 0.1)
	if _, err = a.Step(1e-2); err != nil || ls.Scale != 16 || ls.Good != 0 {
		t.Fatalf("after the last quiet step the scale is %v with %d good ones (%v), want 16 and 0", ls.Scale, ls.Good, err)
	}
}
