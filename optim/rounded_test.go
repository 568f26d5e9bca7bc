package optim_test

import (
	"fmt"
	"math"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/optim"
	"tezgah/tensor"
)

// TestRoundedWeights trains while products round, once with the copies that they read,
// which the optimizer writes, and once without: losses, weights and moments are equal to
// the bit, with two micro-steps a step and a step that is skipped.
func TestRoundedWeights(t *testing.T) {
	for name, o := range map[string]model.ParamOptions{
		"float32 moments": moments,
		"8-bit moments":   moments8,
		"adapter":         {Grads: true, Moments: true, LoRA: model.LoRA{Rank: 4, Targets: "q,v,down"}},
	} {
		for _, typ := range []tensor.DType{tensor.BF16, tensor.F16} {
			t.Run(fmt.Sprintf("%s %v", name, typ), func(t *testing.T) {
				want, plain := trainRounded(t, o, typ)
				with := o
				with.Rounded = typ
				got, p := trainRounded(t, with, typ)
				for i := range want {
					if got[i] != want[i] {
						t.Errorf("step %d: loss %v, without copies %v", i, got[i], want[i])
					}
				}
				compare(t, everything(t, p.Trainable()), everything(t, plain.Trainable()))
				kept := mirrorOf(t, p)
				p.RefreshMirror()
				if string(kept) != string(mirrorOf(t, p)) {
					t.Error("the copies are not the weights, rounded")
				}
			})
		}
	}
}

// trainRounded takes five steps with products that round to typ.
func trainRounded(t *testing.T, o model.ParamOptions, typ tensor.DType) (losses []float64, p *model.Params) {
	t.Helper()
	const B, T = 2, 32
	b := ref.New[float32]()
	check(t, b.RoundProducts(typ))
	tokens, targets := textBatch(t, 2*B, T)
	p = newParams(t, b, o)
	g, err := model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: B, Context: T})
	check(t, err)
	a := newAdamW(t, p, optim.Defaults())
	for step := range 5 {
		for lo := 0; lo < 2*B*T; lo += B * T {
			check(t, g.MicroStep(tokens[lo:lo+B*T], targets[lo:lo+B*T], nil, 1.0/(2*B*T)))
		}
		if step == 2 {
			x := p.Trainable().Grads()[0].T
			op.WriteSlice(p.Runner(), op.Of(x.Buf, x.Off, 1), []float32{float32(math.NaN())})
		}
		sum, err := g.LossSum()
		check(t, err)
		losses = append(losses, sum)
		s, err := a.Step(1e-2)
		check(t, err)
		if s.Skipped != (step == 2) {
			t.Fatalf("step %d: %+v", step, s)
		}
	}
	// Step 3 begins with the weights of step 2; an adapter's B begins at zero.
	if losses[3] != losses[2] || losses[4] == losses[3] {
		t.Fatalf("losses %v, want those of steps 2 and 3 alone to be equal", losses)
	}
	return losses, p
}
