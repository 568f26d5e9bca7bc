package webgpu

import "tezgah/op"

// GradNormSq is the first pass of the gradient norm.
func (b *Backend) GradNormSq(a op.GradNormSq) error {
	c := b.begin(b.plain("reduce_norm_sq"))
	c.in(a.G)
	c.out(a.Partials)
	n := a.G.Len()
	c.words(uint32(n))
	return c.groups(op.NormPartials(n))
}

// FinalizeGradStats is the second pass.
func (b *Backend) FinalizeGradStats(a op.FinalizeGradStats) error {
	c := b.begin(b.plain("finalize_grad_stats"))
	c.in(a.Partials)
	c.out(a.Stats)
	c.words(floatBits(a.MaxNorm))
	return c.groups(1)
}

// hyper binds the size, the hyperparameters and the bias corrections.
func (c *call) hyper(w op.Tensor, h op.AdamHyper) {
	c.words(uint32(w.Len()))
	hp, bias := c.b.optimizerSlots(optimizerKey{w.Buf.(*buffer).mem, w.Off})
	c.number(hp, floatBits(h.LR), floatBits(h.Beta1), floatBits(h.Beta2), floatBits(h.WeightDecay))
	mode := float32(0)
	if h.NonFinite == op.NonFiniteZero {
		mode = 1
	}
	c.number(bias, floatBits(h.Beta1Pow), floatBits(h.Beta2Pow), floatBits(h.Eps), floatBits(mode))
}

// AdamW updates weights and moments, clears the gradient and, when there is one,
// writes the f16 mirror.
func (b *Backend) AdamW(a op.AdamW) error {
	c := b.begin(b.plain(a.Label()))
	c.out(a.W)
	c.out(a.G)
	c.out(a.M)
	c.out(a.V)
	if a.W16.Ok() {
		c.out(a.W16)
	}
	c.in(a.Stats)
	c.hyper(a.W, a.AdamHyper)
	return c.threads(a.W.Len())
}

// AdamW8 is AdamW with 8-bit moments.
func (b *Backend) AdamW8(a op.AdamW8) error {
	name := "adamw_8bit_update"
	if a.W16.Ok() {
		name = "adamw_8bit_update_f16"
	}
	c := b.begin(b.plain(name))
	c.out(a.W)
	c.out(a.G)
	c.out(a.M)
	c.out(a.V)
	c.out(a.MScale)
	c.out(a.VScale)
	if a.W16.Ok() {
		c.out(a.W16)
	}
	c.in(a.Stats)
	c.hyper(a.W, a.AdamHyper)
	return c.groups((a.W.Len() + op.MomentBlock - 1) / op.MomentBlock)
}
