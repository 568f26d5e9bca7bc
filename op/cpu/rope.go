package cpu

import "tezgah/op"

type ropeTask struct {
	x, table []float32
	t, d     int // time and head size
	row      int // elements of one position, H·D
	pos      int
	inverse  bool
}

func (t *ropeTask) do(b *Backend, _, lo, hi int) {
	half := t.d / 2
	for n := lo; n < hi; n++ {
		angles := t.table[(t.pos+n%t.t)*t.d:][:t.d]
		b.k.Rope(t.x[n*t.row:(n+1)*t.row], angles[:half], angles[half:], t.inverse)
	}
}

// RoPE rotates every head of every position of X and then of X2.
func (b *Backend) RoPE(a op.RoPE) error {
	first, second := a.Split()
	b.rotate(first)
	if second.X.Ok() {
		b.rotate(second)
	}
	return nil
}

// rotate works in place, after X was copied to Out where that is another tensor;
// pieces are blocks of the B·T positions.
func (b *Backend) rotate(a op.RoPE) {
	if a.Out.Ok() && !samePlace(a.Out, a.X) {
		b.copyBytes(bytesOf(a.Out), bytesOf(a.X))
		a.X = a.Out
	}
	t := &b.tasks.rope
	*t = ropeTask{x: floats(a.X), table: floats(a.Table), t: a.X.Dims[1], d: a.X.Dims[3],
		row: a.X.Dims[2] * a.X.Dims[3], pos: a.Pos0, inverse: a.Inverse}
	b.each(a.X.Dims[0]*t.t, rowBlock(t.row), t)
	*t = ropeTask{}
}
