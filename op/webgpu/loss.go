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
	return lossShape{keep: min(8, ceil(v/4, 256)), batch: 2, groups: 528}
}

// CrossEntropy computes each row's loss and, with Grad, the gradient in the place
// of the logits, or of their copy in DLogits.
func (b *Backend) CrossEntropy(a op.CrossEntropy) error {
	if a.DLogits.Ok() && !samePlace(a.DLogits, a.Logits) {
		if err := b.Copy(a.DLogits, a.Logits); err != nil {
			return err
		}
		a.Logits = a.DLogits
	}
	rows, v := a.Logits.Dims[0], a.Logits.Dims[1]
	k, groups := b.plain("cross_entropy"), rows
	shape := chooseLoss(v)
	if b.loss != nil {
		shape = *b.loss
	}
	if v%4 == 0 && shape.keep > 0 {
		k, groups = b.kernel(variant{name: "cross_entropy_vec", c: [10]int32{int32(shape.keep), int32(shape.batch)}}, func() []define {
			return []define{u("KEEP", shape.keep), u("BATCH", shape.batch)}
		}), min(rows, shape.groups)
	}
	c := b.begin(k)
	c.out(a.Logits)
	c.in(a.Targets)
	c.out(a.Loss)
	c.words(uint32(rows), uint32(v), uint32(a.Ignore), uint32(bit(a.Grad)),
		floatBits(a.LabelSmoothing), floatBits(a.ZLoss))
	c.number(slotLossScale, floatBits(a.GradScale))
	return c.groups(groups)
}
