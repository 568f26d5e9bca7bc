package optim_test

import (
	"math"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
)

// lora is an adapter for the tiny model, beside each kind of moments.
var lora = model.LoRA{Rank: 4, Alpha: 8, Targets: "all"}

// TestLoRATrains: an adapter alone learns the text, with either kind of moments
// and over a float16 mirror; the weights below it keep every bit, and merging
// leaves the loss where it was.
func TestLoRATrains(t *testing.T) {
	for name, o := range map[string]model.ParamOptions{
		"float32":  {Grads: true, Moments: true, LoRA: lora},
		"8-bit":    {Grads: true, Moments8: true, LoRA: lora},
		"mirrored": {Grads: true, Moments: true, Mirror: true, LoRA: lora},
	} {
		b := cpuBackend(t, 2)
		frozen := readAll(t, newParams(t, b, o)) // train begins with the same weights
		losses, p := train(t, b, o, 2e-2, 60)
		// Frozen random embeddings of deviation 0.02 leave little to gain.
		if last := losses[len(losses)-1]; !(last < 0.95*losses[0]) {
			t.Errorf("%s: loss went from %v to %v", name, losses[0], last)
		}
		after := readAll(t, p)
		for i := range frozen {
			if math.Float32bits(frozen[i]) != math.Float32bits(after[i]) {
				t.Fatalf("%s: frozen weight %d changed from %v to %v", name, i, frozen[i], after[i])
			}
		}
		before := meanLoss(t, p)
		check(t, p.Merge())
		bound := 1e-5
		if o.Mirror {
			bound = 1e-2 // float16 rounds the sum
		}
		if merged := meanLoss(t, p); math.Abs(merged-before) > bound*before {
			t.Errorf("%s: loss %v before merging, %v after", name, before, merged)
		}
	}
}

// readAll reads the model's weights.
func readAll(t *testing.T, p *model.Params) []float32 {
	t.Helper()
	var all []float32
	for _, s := range p.Weights() {
		v := make([]float32, s.T.Len())
		check(t, op.ReadSlice(p.Runner(), v, s.T))
		all = append(all, v...)
	}
	return all
}

// meanLoss evaluates the training text.
func meanLoss(t *testing.T, p *model.Params) float64 {
	t.Helper()
	tokens, targets := textBatch(t, 4, 32)
	g, err := model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: 4, Context: 32})
	check(t, err)
	defer g.Close()
	check(t, g.Evaluate(tokens, targets, nil))
	sum, err := g.LossSum()
	check(t, err)
	return sum / float64(len(tokens))
}

// TestLoRASkips: a step with gradients that are not finite names the adapter's
// tensor and leaves it alone.
func TestLoRASkips(t *testing.T) {
	p := newParams(t, cpuBackend(t, 1), model.ParamOptions{Grads: true, Moments: true, LoRA: lora})
	a := newAdamW(t, p, optim.Defaults())
	g := p.Adapter().Grads()[3]
	op.WriteSlice(p.Runner(), op.Of(g.T.Buf, g.T.Off, 1), []float32{float32(math.NaN())})
	s, err := a.Step(0.1)
	check(t, err)
	if !s.Skipped || len(s.Culprits) != 1 || s.Culprits[0].Name != g.Name {
		t.Errorf("got %+v, want a skipped step because of %s", s, g.Name)
	}
}
