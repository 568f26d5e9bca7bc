package cpu

import (
	"fmt"

	"tezgah/op"
	"tezgah/op/cpu/internal/kern"
)

type lossTask struct {
	logits, loss []float32
	targets      []int32
	v            int
	ce           kern.CrossEntropy
	scale        float32
	ignore       int32
	grad         bool
}

func (t *lossTask) do(b *Backend, _, lo, hi int) {
	for n := lo; n < hi; n++ {
		row, target := t.logits[n*t.v:(n+1)*t.v], t.targets[n]
		switch {
		case target == t.ignore:
			t.loss[n] = 0
			if t.grad {
				clear(row)
			}
		case t.grad:
			t.loss[n] = t.ce.LossGrad(b.k, row, int(target), t.scale)
		default:
			t.loss[n] = t.ce.Loss(b.k, row, int(target))
		}
	}
}

// CrossEntropy computes the rows' losses and, with Grad, turns the logits, or their
// copy in DLogits, into their gradients while a row is in cache.
func (b *Backend) CrossEntropy(a op.CrossEntropy) error {
	if a.DLogits.Ok() && !samePlace(a.DLogits, a.Logits) {
		b.copyBytes(bytesOf(a.DLogits), bytesOf(a.Logits))
		a.Logits = a.DLogits
	}
	t := &b.tasks.loss
	*t = lossTask{logits: floats(a.Logits), loss: floats(a.Loss), targets: ints(a.Targets), v: a.Logits.Cols(),
		ce: kern.CrossEntropy{Smoothing: a.LabelSmoothing, ZLoss: a.ZLoss}, scale: a.GradScale, ignore: a.Ignore, grad: a.Grad}
	defer func() { *t = lossTask{} }()
	for n, id := range t.targets {
		if id != a.Ignore && uint64(uint32(id)) >= uint64(t.v) {
			return fmt.Errorf("target of row %d is %d, want 0 to %d, or %d to leave the row out", n, id, t.v-1, a.Ignore)
		}
	}
	b.each(len(t.loss), rowBlock(t.v), t)
	return nil
}
