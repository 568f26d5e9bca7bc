package train

import (
	"slices"

	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// Settle fills in every default of a run whose data has passTokens tokens in
// one pass, as New does: batch, steps, warm-up, the distances of evaluations
// and checkpoints. The model's vocabulary must be set.
func (c Config) Settle(passTokens int64) Config {
	c = c.withDefaults()
	return c.withSteps(c.steps(passTokens))
}

// PredictMemory says what the run will allocate on a device with these limits,
// whose products can round to these types (op.Rounder), without allocating it. An
// error means that it would fail, and says why.
func (c Config) PredictMemory(lim op.Limits, rounding []tensor.DType) (model.Plan, error) {
	t := Trainer{cfg: c.withDefaults()}
	operands := roundTo(t.cfg.Precision)
	if !slices.Contains(rounding, operands) {
		operands = tensor.F32
	}
	return model.PredictMemory(t.cfg.Model, t.paramOptions(lim, operands), t.graphOptions(), lim, operands)
}

// SaveModel writes the weights as they are now as the run's model.llm, as a run
// that has reached its end does by itself, and returns the file's path. It must
// not be called while Run runs.
func (t *Trainer) SaveModel() (string, error) { return t.saveModel() }
