package op

// A Rotator turns what a call computes by RoPE's angles on its way to memory, where it
// can: the result before that never gets there.
type Rotator interface {
	// RotatesGroup reports whether MatMulGroupRoPE can do it.
	RotatesGroup(items []MatMul, a RoPE) bool
	// MatMulGroupRoPE is MatMulGroup and then RoPE, whose X and X2 are Cs of the items
	// and are not written, unless they are Out and Out2.
	MatMulGroupRoPE(items []MatMul, a RoPE) error
	// RotatesGradients reports whether AttentionBackwardRoPE can do it.
	RotatesGradients(a AttentionBackward, turn RoPE) bool
	// AttentionBackwardRoPE is AttentionBackward and then RoPE, whose X is DQ and X2 DK;
	// these are not written, unless they are Out and Out2.
	AttentionBackwardRoPE(a AttentionBackward, turn RoPE) error
}

// MatMulGroupRoPE runs MatMulGroup and then RoPE on results of it: X and X2 are the C
// of two items, seen by heads. Where Out and Out2 are others, nobody may read X and X2
// afterwards.
func (r *Runner) MatMulGroupRoPE(items []MatMul, a RoPE) {
	if r.err != nil || r.rotator == nil || a.check() != nil || !r.rotator.RotatesGroup(items, a) {
		r.MatMulGroup(items)
		r.RoPE(a)
		return
	}
	var c Cost
	for i := range items {
		p := &items[i]
		if r.err = r.operands(p.check(), p.Label(), p.A, activation(p.B), p.C); r.err != nil {
			return
		}
		c = c.plus(p.cost())
	}
	if r.begin(r.operands(nil, a.Label(), a.Out, a.Out2)) {
		r.end("matmul_group", c.plus(turned(a)), r.rotator.MatMulGroupRoPE(items, a))
	}
}

// AttentionBackwardRoPE runs AttentionBackward and then RoPE on its DQ, which is X, and
// DK, which is X2. Where Out and Out2 are others, nobody may read DQ and DK afterwards.
func (r *Runner) AttentionBackwardRoPE(a AttentionBackward, turn RoPE) {
	if r.err != nil || r.rotator == nil || a.check() != nil || turn.check() != nil || !r.rotator.RotatesGradients(a, turn) {
		r.AttentionBackward(a)
		r.RoPE(turn)
		return
	}
	check := r.operands(nil, a.Label(), a.Q, a.K, a.V, a.Out, a.DOut, a.DV)
	if r.begin(r.operands(check, turn.Label(), turn.Out, turn.Out2)) {
		r.end(a.Label(), a.cost().plus(turned(turn)), r.rotator.AttentionBackwardRoPE(a, turn))
	}
}

// turned is what a rotation adds to the cost of the call that it is part of: its
// arithmetic, and that results of another size are written in place of X and X2.
func turned(a RoPE) Cost {
	c := Cost{FLOPs: a.cost().FLOPs}
	for _, w := range [][2]Tensor{{a.X, a.Out}, {a.X2, a.Out2}} {
		if w[1].Ok() {
			c.Bytes += bytesOf(w[1]) - bytesOf(w[0])
		}
	}
	return c
}
