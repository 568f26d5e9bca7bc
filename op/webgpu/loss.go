package webgpu

import "tezgah/op"

// CrossEntropy computes each row's loss and, with Grad, the gradient in the
// logits' place.
func (b *Backend) CrossEntropy(a op.CrossEntropy) error {
	c := b.begin(b.plain("cross_entropy"))
	c.out(a.Logits)
	c.in(a.Targets)
	c.out(a.Loss)
	rows := a.Logits.Dims[0]
	c.words(uint32(rows), uint32(a.Logits.Dims[1]), uint32(a.Ignore), uint32(bit(a.Grad)),
		floatBits(a.LabelSmoothing), floatBits(a.ZLoss))
	c.number(slotLossScale, floatBits(a.GradScale))
	return c.groups(rows)
}
