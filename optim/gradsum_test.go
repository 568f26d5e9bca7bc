package optim_test

import (
	"math"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
)

// fillAll writes v into every gradient.
func fillAll(t *testing.T, p *model.Params, v float32) {
	t.Helper()
	for _, s := range p.Grads() {
		g := make([]float32, s.T.Len())
		for i := range g {
			g[i] = v
		}
		op.WriteSlice(p.Runner(), s.T, g)
	}
	check(t, p.Runner().Err())
}

// accumulate takes six updates of two micro-steps. Gradients have an infinity in the
// second, which halves the loss scale, if there is one, and a NaN in the fourth; both
// are skipped. between is called after every update.
func accumulate(t *testing.T, cfg model.Config, o model.ParamOptions, scaled bool, between func(*model.Params, *model.Graph)) *model.Params {
	t.Helper()
	const B, T = 2, 32
	p, err := model.NewParams(op.NewRunner(cpuBackend(t, 2)), cfg, o)
	check(t, err)
	check(t, p.Init(3))
	g, err := model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: B, Context: T})
	check(t, err)
	a := newAdamW(t, p, optim.Defaults())
	var loss optim.LossScale
	if scaled {
		loss = optim.NewLossScale()
		a.SetLossScale(&loss)
	}
	tokens, targets := textBatch(t, 2*B, T)
	p = p.Trainable()
	between(p, g)
	for update := range 6 {
		for lo := 0; lo < 2*B*T; lo += B * T {
			check(t, g.MicroStep(tokens[lo:lo+B*T], targets[lo:lo+B*T], nil, loss.Factor()/(2*B*T)))
		}
		switch name := p.Grads()[1].Name; update {
		case 1:
			poison(t, p, name, 0, float32(math.Inf(1)))
		case 3:
			poison(t, p, name, 0, float32(math.NaN()))
		}
		s, err := a.Step(1e-2)
		check(t, err)
		if bad := update == 1 || update == 3; s.Skipped != bad || s.Rescaled != (bad && scaled) {
			t.Fatalf("update %d: %+v", update, s)
		}
		between(p, g)
	}
	return p
}

// TestGradsAreUsedUp: what is in the gradients after a step, skipped or not, here also
// NaN in all of them, has no part in the next. Weights and moments have the bits of a
// run whose micro-steps all add to gradients that were cleared.
func TestGradsAreUsedUp(t *testing.T) {
	untied := tiny
	untied.Tied = false
	mirror := moments
	mirror.Mirror = true
	for name, c := range map[string]struct {
		cfg    model.Config
		o      model.ParamOptions
		scaled bool
	}{
		"tied":            {tiny, moments, false},
		"untied":          {untied, moments, false},
		"8-bit moments":   {untied, moments8, false},
		"mirror":          {tiny, mirror, false},
		"loss scale":      {untied, moments, true},
		"adapter":         {tiny, model.ParamOptions{Grads: true, Moments: true, LoRA: lora}, false},
		"adapter, scaled": {untied, model.ParamOptions{Grads: true, Moments8: true, LoRA: lora}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tokens, targets := textBatch(t, 2, 32)
			want := everything(t, accumulate(t, c.cfg, c.o, c.scaled, func(p *model.Params, g *model.Graph) {
				check(t, g.MicroStep(tokens, targets, nil, 1)) // others add to what this one leaves
				fillAll(t, p, 0)
			}))
			compare(t, everything(t, accumulate(t, c.cfg, c.o, c.scaled, func(*model.Params, *model.Graph) {})), want)
			compare(t, everything(t, accumulate(t, c.cfg, c.o, c.scaled, func(p *model.Params, _ *model.Graph) {
				fillAll(t, p, float32(math.NaN()))
			})), want)
		})
	}
}

// TestGradsAfterAFailedStep: a step whose device fails has used the gradients up; a
// learning rate that is refused has not.
func TestGradsAfterAFailedStep(t *testing.T) {
	tokens, targets := textBatch(t, 2, 32)
	p := newParams(t, cpuBackend(t, 1), moments)
	g, err := model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: 2, Context: 32})
	check(t, err)
	a := newAdamW(t, p, optim.Defaults())
	norm := func() []float32 {
		check(t, g.MicroStep(tokens, targets, nil, 1.0/64))
		return read(t, p, find(t, p.Grads(), "final_norm"))
	}
	one, two := norm(), norm()
	p.Runner().Zero(op.Tensor{}) // an error that stays
	if _, err := a.Step(1e-2); err == nil {
		t.Fatal("a step on a runner with an error succeeded")
	}
	p.Runner().Reset()
	if got := norm(); !equal(got, one) {
		t.Error("after a failed step a micro-step adds to the old gradients")
	}
	if _, err := a.Step(math.NaN()); err == nil {
		t.Fatal("a learning rate of NaN was accepted")
	}
	if got := norm(); !equal(got, two) || equal(one, two) {
		t.Error("after a refused learning rate the sum did not go on")
	}
}

func equal(a, b []float32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}
