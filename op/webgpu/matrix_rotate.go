package webgpu

import (
	"slices"

	"tezgah/op"
	"tezgah/op/webgpu/matrix"
)

// RoPE on the matrix units: queries and keys are turned as a product writes them, and
// their gradients as attention's backward pass does, so that nothing reads them once
// more for it.

// rotatedTo is where a rotation's result goes.
func rotatedTo(a op.RoPE) op.Tensor {
	if a.Out.Ok() {
		return a.Out
	}
	return a.X
}

// turnOf is the rotation that belongs to a product's C, with the place where the
// result goes as (N, heads·D); ok is false when there is none.
func turnOf(a op.RoPE, c op.Tensor) (to op.Tensor, ok bool) {
	first, second := a.Split()
	for _, r := range []op.RoPE{first, second} {
		if r.X.Ok() && samePlace(r.X, c) && r.X.Len() == c.Len() {
			return rotatedTo(r).Reshape(c.Dims[0], c.Dims[1]), true
		}
	}
	return to, false
}

// RotatesGroup reports whether products on the matrix units can turn what they write.
func (b *Backend) RotatesGroup(items []op.MatMul, a op.RoPE) bool {
	m, n, k := items[0].Sizes()
	if !b.matrix.worth(m, n, k) || a.Pos0 != 0 || a.Inverse || a.X.Dims[3]%8 != 0 {
		return false
	}
	found := 0
	for len(items) > 0 {
		n := b.groupSize(items)
		_, turned, ok := b.turnedLaunch(items[:n], a)
		if !ok {
			return false
		}
		found, items = found+turned, items[n:]
	}
	return found == 1+int(bit(a.X2.Ok()))
}

// turnedLaunch is the launch of products that share A, in which those that a turns are
// turned; it is not ready yet. turned is how many these are, ok whether one dispatch
// can do it.
func (b *Backend) turnedLaunch(items []op.MatMul, a op.RoPE) (l launch, turned int, ok bool) {
	m, width, k := items[0].Sizes()
	for _, p := range items[1:] {
		_, n, _ := p.Sizes()
		width += n
	}
	l = launch{form: b.formOf(items[0]), splits: matrixSplits(m, width, k, b.dev.Limits().BindingSize), turn: a}
	l.form.group = len(items)
	for i, p := range items {
		if _, is := turnOf(a, p.C); is {
			l.form.turned |= 1 << i
			turned++
		}
	}
	if turned == 0 {
		return l, 0, true
	}
	l.form.head = a.X.Dims[3]
	if l.splits > 1 || !isDirect(items) || items[0].Acc || items[0].Residual.Ok() {
		return l, turned, false
	}
	l.tile, ok = b.headTile(l.form, m, width, k)
	return l, turned, ok
}

// headTile is the tile of products of these sizes in all, or where that has no whole
// heads in the part of a subgroup the first that has.
func (b *Backend) headTile(f productForm, m, width, k int) (t matrix.Tile, ok bool) {
	whole := func(t matrix.Tile) bool { return t.WN%f.head == 0 }
	if t = b.matrixTile(shapeOf(f, m, width, k, 1)); whole(t) {
		return t, true
	}
	all := b.matrixTiles(b.matrix.fragments[f.input])
	if i := slices.IndexFunc(all, whole); i >= 0 {
		return all[i], true
	}
	return t, false
}

// MatMulGroupRoPE runs products that share A, of which some are turned.
func (b *Backend) MatMulGroupRoPE(items []op.MatMul, a op.RoPE) error {
	for len(items) > 0 {
		n := b.groupSize(items)
		l, turned, _ := b.turnedLaunch(items[:n], a)
		if turned == 0 {
			if err := b.matrixTogether(items[:n]); err != nil {
				return err
			}
		} else if err := b.runTurned(&l, items[:n], a); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// runTurned runs a launch whose results go where the rotation says.
func (b *Backend) runTurned(l *launch, items []op.MatMul, a op.RoPE) error {
	var moved [maxProducts]op.MatMul
	for i := range items {
		moved[i] = items[i]
		if to, is := turnOf(a, items[i].C); is {
			moved[i].C = to
		}
		if err := b.takeTerm(l, i, moved[i]); err != nil {
			return err
		}
	}
	return b.launch(l, moved[:len(items)])
}

// RotatesGradients reports whether attention's backward pass on the matrix units can
// turn DQ and DK as it writes them: both in DV's type, in whole fragments.
func (b *Backend) RotatesGradients(a op.AttentionBackward, turn op.RoPE) bool {
	d := a.Q.Dims[3]
	f, ok := b.matrix.fragments[b.matrix.rounding]
	if !ok || turn.Pos0 != 0 || !turn.Inverse || a.Q.Dims[1]%f.M != 0 || d%(2*f.N) != 0 || !turn.X2.Ok() ||
		!samePlace(turn.X, a.DQ) || !samePlace(turn.X2, a.DK) {
		return false
	}
	first, second := turn.Split()
	return rotatedTo(first).Type() == a.DV.Type() && rotatedTo(second).Type() == a.DV.Type() &&
		b.matrixAttends(d, a.DocStart.Ok(), is16(a.DV)) && b.attentionConverts(a.Q, a.K, a.V, a.DOut, a.Out)
}

// AttentionBackwardRoPE is AttentionBackward with DQ and DK turned back.
func (b *Backend) AttentionBackwardRoPE(a op.AttentionBackward, turn op.RoPE) error {
	return b.matrixAttentionBackward(a, turn)
}
