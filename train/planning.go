package train

// Settle fills in every default of a run whose data has passTokens tokens in
// one pass, as New does: batch, steps, warm-up, the distances of evaluations
// and checkpoints. The model's vocabulary must be set.
func (c Config) Settle(passTokens int64) Config {
	c = c.withDefaults()
	return c.withSteps(c.steps(passTokens))
}

// SaveModel writes the weights as they are now as the run's model.llm, as a run
// that has reached its end does by itself, and returns the file's path. It must
// not be called while Run runs.
func (t *Trainer) SaveModel() (string, error) { return t.saveModel() }
