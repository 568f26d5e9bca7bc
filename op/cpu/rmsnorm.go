package cpu

import "tezgah/op"

type normTask struct {
	x, w, y, rms []float32
	c            int
	eps          float32
}

func (t *normTask) do(b *Backend, _, lo, hi int) {
	for n := lo; n < hi; n++ {
		row := n * t.c
		t.rms[n] = b.k.RMSNorm(t.y[row:row+t.c], t.x[row:row+t.c], t.w, t.eps)
	}
}

// RMSNorm normalises each row; pieces are blocks of rows.
func (b *Backend) RMSNorm(a op.RMSNorm) error {
	t := &b.tasks.norm
	*t = normTask{x: floats(a.X), w: b.weights(a.W), y: floats(a.Y), rms: floats(a.RMSInv), c: a.X.Cols(), eps: a.Eps}
	b.each(len(t.rms), rowBlock(t.c), t)
	*t = normTask{}
	return nil
}

type normBackTask struct {
	x, w, dy, rms, dx []float32
	partial           []float32 // (pieces, C); nil without DW
	c, block          int
	addDX             bool
}

func (t *normBackTask) do(b *Backend, _, lo, hi int) {
	var dw []float32
	if t.partial != nil {
		dw = t.partial[lo/t.block*t.c:][:t.c]
		clear(dw)
	}
	for n := lo; n < hi; n++ {
		at, end := n*t.c, (n+1)*t.c
		b.k.RMSNormBackward(t.dx[at:end], dw, t.dy[at:end], t.x[at:end], t.w, t.rms[n], t.addDX)
	}
}

// normPieces is the most pieces that the rows are cut into, each with a partial
// sum of dw of its own.
const normPieces = 64

// RMSNormBackward undoes RMSNorm. Each block of rows sums its part of dw where
// it is wanted, and the parts are added to DW in the order of the blocks.
func (b *Backend) RMSNormBackward(a op.RMSNormBackward) error {
	t := &b.tasks.normBack
	*t = normBackTask{x: floats(a.X), w: floats(a.W), dy: floats(a.DY), rms: floats(a.RMSInv), dx: floats(a.DX),
		c: a.X.Cols(), addDX: a.AddDX}
	rows := len(t.rms)
	t.block = max(8, (rows+normPieces-1)/normPieces)
	pieces := (rows + t.block - 1) / t.block
	if a.DW.Ok() {
		b.shared.partial = grow(b.shared.partial, pieces*t.c)
		t.partial = b.shared.partial
	}
	b.each(rows, t.block, t)
	if a.DW.Ok() {
		b.addRows(floats(a.DW), t.partial, pieces)
	}
	*t = normBackTask{}
	if a.DXCopy.Ok() && !samePlace(a.DXCopy, a.DX) {
		b.copyBytes(bytesOf(a.DXCopy), bytesOf(a.DX))
	}
	return nil
}

type columnsTask struct {
	dst, src []float32
	rows     int
}

func (t *columnsTask) do(b *Backend, _, lo, hi int) {
	for r := range t.rows {
		b.k.Add(t.dst[lo:hi], t.dst[lo:hi], t.src[r*len(t.dst)+lo:][:hi-lo])
	}
}

// addRows adds the rows of src (rows, len(dst)) to dst, in order.
func (b *Backend) addRows(dst, src []float32, rows int) {
	t := &b.tasks.columns
	*t = columnsTask{dst, src, rows}
	b.each(len(dst), 1024, t)
	*t = columnsTask{}
}
