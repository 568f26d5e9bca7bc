package webgpu

import "tezgah/op"

// lossShape is how cross_entropy_vec works: the vec4s of a row that a thread
// keeps in registers, those on their way at a time, and the most workgroups.
type lossShape struct {
	keep, batch, groups int
}

// chooseLoss looks at V alone. Four workgroups on each multiprocessor of a large
// GPU keep its memory busy; fewer and more are both slower.
func chooseLoss(v int) lossShape {
	return lossShape{keep: min(8, ceil(v/4, 256)), batch: 4, groups: 528}
}

// rowQuads is how many vec4s of a row a thread of cross_entropy_row keeps in registers.
const rowQuads = 8

// rowShape is how cross_entropy_row works: the threads of a workgroup, the vec4s of a
// row that each keeps, and the most workgroups.
type rowShape struct {
	threads, quads, groups int
}

// chooseRow is the smallest workgroup that keeps a row of v logits, so that several fit
// on a multiprocessor; ok is false where the device has none so large. Of workgroups
// there are about twice as many as a large GPU runs at a time.
func (b *Backend) chooseRow(v int) (s rowShape, ok bool) {
	if s.threads = 256; b.lossRow != nil {
		s = *b.lossRow
	}
	l := b.dev.Limits()
	for ; s.threads > 0 && s.threads <= min(l.Invocations, l.WorkgroupSizeX, 1024); s.threads *= 2 {
		if s.quads = ceil(v/4, s.threads); v%4 == 0 && s.quads <= rowQuads {
			if s.groups == 0 {
				s.groups = 264 * 1024 / s.threads
			}
			return s, true
		}
	}
	return s, false
}

// CrossEntropy computes each row's loss and, with Grad, the gradient: in DLogits
// where that has 16 bits, else in the place of the logits, or of their copy in
// DLogits.
func (b *Backend) CrossEntropy(a op.CrossEntropy) error {
	if a.DLogits.Ok() && is16(a.DLogits) {
		return b.crossEntropy16(a)
	}
	if a.DLogits.Ok() && !samePlace(a.DLogits, a.Logits) {
		if err := b.Copy(a.DLogits, a.Logits); err != nil {
			return err
		}
		a.Logits = a.DLogits
	}
	k, groups, ok := b.lossOfVecs(a, false)
	if !ok {
		k, groups = b.plain("cross_entropy"), a.Logits.Dims[0]
	}
	c := b.begin(k)
	c.out(a.Logits)
	c.in(a.Targets)
	c.out(a.Loss)
	c.lossNumbers(a, a.Grad)
	return c.groups(groups)
}

// crossEntropy16 writes a gradient of 16 bits: from a row in registers, in two passes
// over a row of whole vec4s, or else pair by pair from every row's lse.
func (b *Backend) crossEntropy16(a op.CrossEntropy) error {
	k, groups, ok := b.lossOfVecs(a, true)
	if !ok {
		return b.crossEntropyPairs(a)
	}
	c := b.begin(k)
	c.in(a.Logits)
	c.in(a.Targets)
	c.out(a.Loss)
	c.out(a.DLogits)
	c.lossNumbers(a, true)
	return c.groups(groups)
}

// lossOfVecs is the kernel for rows of whole vec4s and how many workgroups of it: a row
// in registers where there is a gradient and a workgroup is large enough, else two
// passes. ok is false for other rows.
func (b *Backend) lossOfVecs(a op.CrossEntropy, out16 bool) (k *kernel, groups int, ok bool) {
	rows, v, brain := a.Logits.Dims[0], a.Logits.Dims[1], out16 && isBrain(a.DLogits)
	if s, ok := b.chooseRow(v); ok && a.Grad {
		return b.rowKernel(s, out16, brain), min(rows, s.groups), true
	}
	if s := b.lossShape(v); v%4 == 0 && s.keep > 0 {
		return b.lossKernel(s, out16, brain), min(rows, s.groups), true
	}
	return nil, 0, false
}

// lossShape is chooseLoss, unless a benchmark or test fixes the shape.
func (b *Backend) lossShape(v int) lossShape {
	if b.loss != nil {
		return *b.loss
	}
	return chooseLoss(v)
}

// rowKernel is cross_entropy_row of a shape.
func (b *Backend) rowKernel(s rowShape, out16, brain bool) *kernel {
	v := variant{name: "cross_entropy_row", c: [10]int32{int32(s.threads), int32(s.quads), bit(out16), bit(brain)}}
	return b.kernel(v, func() []define {
		return []define{u("WG", s.threads), u("QUADS", s.quads), flag("OUT16", out16), flag("BF16", brain)}
	})
}

// lossKernel is cross_entropy_vec of a shape.
func (b *Backend) lossKernel(s lossShape, out16, brain bool) *kernel {
	v := variant{name: "cross_entropy_vec", c: [10]int32{int32(s.keep), int32(s.batch), bit(out16), bit(brain)}}
	return b.kernel(v, func() []define {
		return []define{u("KEEP", s.keep), u("BATCH", s.batch), flag("OUT16", out16), flag("BF16", brain)}
	})
}

// crossEntropyPairs is crossEntropy16 for any V.
func (b *Backend) crossEntropyPairs(a op.CrossEntropy) error {
	rows, v := a.Logits.Dims[0], a.Logits.Dims[1]
	lse := uint64(4 * rows)
	c := b.begin(b.kernel(variant{name: "cross_entropy", c: [10]int32{1}}, func() []define { return []define{flag("LSE", true)} }))
	c.out(a.Logits) // only read without a gradient
	c.in(a.Targets)
	c.out(a.Loss)
	c.lossNumbers(a, false)
	c.scratch(scratchWide, lse, true)
	if err := c.groups(rows); err != nil {
		return err
	}
	c = b.begin(b.pairs("cross_entropy_to16", a.DLogits))
	c.in(a.Logits)
	c.in(a.Targets)
	c.scratch(scratchWide, lse, false)
	c.out(a.DLogits)
	c.lossNumbers(a, true)
	return c.threads(ceil(rows*v, 2))
}

// lossNumbers binds the numbers that all kernels of the loss read.
func (c *call) lossNumbers(a op.CrossEntropy, grad bool) {
	c.words(uint32(a.Logits.Dims[0]), uint32(a.Logits.Dims[1]), uint32(a.Ignore), uint32(bit(grad)),
		floatBits(a.LabelSmoothing), floatBits(a.ZLoss))
	c.number(slotLossScale, floatBits(a.GradScale))
}
