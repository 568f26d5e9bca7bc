package train

import (
	"fmt"
	"slices"

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

// roundTo is the type that a precision rounds the inputs of products to, F32 for
// none.
func roundTo(precision string) tensor.DType {
	switch precision {
	case BF16:
		return tensor.BF16
	case F16:
		return tensor.F16
	}
	return tensor.F32
}

// Rounding is what products round their inputs to under a precision on a device:
// F32 where they do not, or where the device cannot, or would gain nothing.
// Products of b do not round afterwards.
func Rounding(precision string, b op.Backend) tensor.DType {
	want := roundTo(precision)
	r, ok := b.(op.Rounder)
	if !ok || !slices.Contains(r.Rounding(), want) || r.RoundProducts(want) != nil {
		return tensor.F32
	}
	_ = r.RoundProducts(tensor.F32) // which every backend does
	return want
}

// setPrecision makes the device compute as the configuration says, as far as it can.
func (t *Trainer) setPrecision() (err error) {
	var notice string
	if t.rounds, notice, err = applyPrecision(t.cfg.Precision, t.backend); notice != "" {
		t.notice(notice)
	}
	return err
}

// applyPrecision makes a device compute in a precision as far as it can, and says
// whether products round then. What the device lacks is a notice for the user, and
// training goes on in float32. An error means that the device is of no use.
func applyPrecision(precision string, b op.Backend) (rounds bool, notice string, err error) {
	want := roundTo(precision)
	r, ok := b.(op.Rounder)
	has := ok && len(r.Rounding()) > 0
	switch {
	case has && slices.Contains(r.Rounding(), want):
		if err := r.RoundProducts(want); err != nil { // its matrix units are slow, for one
			notice = fmt.Sprintf("%v: training goes on in f32%s", err, instead(r, len(r.Rounding()) > 0))
			return false, notice, r.RoundProducts(tensor.F32)
		}
		rounds = true
	case precision == Mixed && !b.Limits().F16:
		notice = "this device has no 16-bit floats: training goes on in f32"
	case precision == BF16 || precision == F16:
		notice = fmt.Sprintf("%s has no matrix units for %s that can be reached: training goes on in f32%s", b.Device(), precision, instead(r, has))
	case has:
		notice = "this GPU has matrix units: --precision " + precisionOf(r.Rounding()[0]) + " trains several times as fast"
	}
	return rounds, notice, nil
}

// instead names what a device has in place of a type that it lacks.
func instead(r op.Rounder, has bool) string {
	if !has {
		return ""
	}
	return "; it has them for --precision " + precisionOf(r.Rounding()[0])
}

// precisionOf is the precision whose products round to t.
func precisionOf(t tensor.DType) string {
	if t == tensor.BF16 {
		return BF16
	}
	return F16
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
