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

// adamKernel is the kernel of one form of AdamW, which also writes a mirror where there
// is one; label is the call's.
func (b *Backend) adamKernel(name, label string, mirror op.Tensor) *kernel {
	has := mirror.Ok()
	brain := has && isBrain(mirror)
	k := b.kernel(variant{name: name, c: [10]int32{bit(has), bit(brain)}}, func() []define {
		return []define{flag("MIRROR", has), flag("BF16", brain)}
	})
	k.label = label
	return k
}

// AdamW updates weights and moments and, when there is one, writes the 16-bit mirror.
func (b *Backend) AdamW(a op.AdamW) error {
	c := b.begin(b.adamKernel("adamw_update", a.Label(), a.W16))
	c.out(a.W)
	c.in(a.G)
	c.out(a.M)
	c.out(a.V)
	c.in(a.Stats)
	c.hyper(a.W, a.AdamHyper)
	if a.W16.Ok() {
		c.out(a.W16)
	}
	return c.threads(a.W.Len())
}

// AdamW8 is AdamW with 8-bit moments.
func (b *Backend) AdamW8(a op.AdamW8) error {
	c := b.begin(b.adamKernel("adamw_8bit_update", a.Label(), a.W16))
	c.out(a.W)
	c.in(a.G)
	c.out(a.M)
	c.out(a.V)
	c.out(a.MScale)
	c.out(a.VScale)
	c.in(a.Stats)
	c.hyper(a.W, a.AdamHyper)
	if a.W16.Ok() {
		c.out(a.W16)
	}
	return c.groups((a.W.Len() + op.MomentBlock - 1) / op.MomentBlock)
}
