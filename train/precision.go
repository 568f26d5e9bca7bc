package train

import (
	"fmt"

	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// The values of Config.Precision. Master weights, moments, gradients, sums and
// everything but products are float32 in all of them.
const (
	F32   = "f32"
	Mixed = "mixed" // the forward pass reads an f16 copy of the weights
	BF16  = "bf16"  // products round their inputs to bfloat16, on matrix units
	F16   = "f16"   // to float16, with dynamic loss scaling
)

// Precisions lists them.
func Precisions() []string { return []string{F32, Mixed, BF16, F16} }

// setPrecision makes the device compute as the configuration says, as far as it
// can: what it lacks is said, and training goes on in float32.
func (t *Trainer) setPrecision() error {
	round := map[string]tensor.DType{BF16: tensor.BF16, F16: tensor.F16}[t.cfg.Precision]
	t.rounds = false
	switch r, ok := t.backend.(op.Rounder); {
	case t.cfg.Precision == Mixed && !t.backend.Limits().F16:
		t.notice("this device has no 16-bit floats: training goes on in f32")
	case round == tensor.F32:
	case !ok || len(r.Rounding()) == 0:
		t.notice(fmt.Sprintf("%s has no matrix units that can be reached: training goes on in f32", t.backend.Device()))
	default:
		if err := r.RoundProducts(round); err != nil {
			return fmt.Errorf("--precision %s: %w", t.cfg.Precision, err)
		}
		t.rounds = true
	}
	return nil
}

// scaleLoss attaches dynamic loss scaling where products round to float16. A
// state that has none yet, of a new run, gets the first scale.
func (t *Trainer) scaleLoss() {
	if !t.rounds || t.cfg.Precision != F16 {
		t.state.LossScale = optim.LossScale{}
		t.adam.SetLossScale(nil)
		return
	}
	if !t.state.LossScale.On() {
		t.state.LossScale = optim.NewLossScale()
	}
	t.adam.SetLossScale(&t.state.LossScale)
}
