// Package model is the decoder-only transformer: its configuration and
// presets, its parameters in contiguous mega-buffers, and its forward and
// backward pass as a readable list of calls on an op.Runner.
//
// The architecture is that of LLaMA (Touvron et al., 2023): pre-norm RMSNorm,
// rotary positions, grouped-query attention, a gated feed-forward block, no
// biases. The package does not know which backend computes, how weights are
// updated (optim), where batches come from (corpus) or how files look
// (checkpoint).
//
// Open config.go first, then block.go, which is one layer forward and
// backward side by side, then graph.go, which strings layers together. lora.go
// and adapter.go train small matrices beside frozen weights.
//
// Dimensions: B batch, T time, N = B·T rows, C d_model, H query heads, KVH
// key/value heads, D head size, F feed-forward size, L layers, V vocabulary.
package model

// IgnoreIndex is the target that counts for nothing: its row has loss 0 and
// gradient 0.
const IgnoreIndex int32 = -1

// CountTargets counts the targets that are not IgnoreIndex. The gradient scale
// of an optimizer step is 1 over the sum of it over all micro-steps.
func CountTargets(targets []int32) int {
	n := 0
	for _, t := range targets {
		if t != IgnoreIndex {
			n++
		}
	}
	return n
}
