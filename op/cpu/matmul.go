package cpu

import (
	"tezgah/op"
	"tezgah/op/cpu/internal/kern"
	"tezgah/tensor"
)

// MatMul is C = op(A)·op(B), plus C with Acc, plus Residual when present. The
// kernels' native form adds to C, so a residual is copied into C first unless
// it is C already.
func (b *Backend) MatMul(a op.MatMul) error {
	c := floats(a.C)
	add := a.Acc
	if a.Residual.Ok() {
		res := floats(a.Residual)
		switch {
		case a.Acc:
			b.addTo(c, res)
		case &res[0] != &c[0]:
			b.copyBytes(tensor.Bytes(c), tensor.Bytes(res))
		}
		add = true
	}
	if a.B.Type() == tensor.F16 {
		b.matMulHalf(a, add)
		return nil
	}
	m, n, k := a.Sizes()
	b.engine.Gemm(formOf(a), m, n, k, floats(a.A), a.A.Cols(), floats(a.B), a.B.Cols(), c, n, add)
	return nil
}

func formOf(a op.MatMul) kern.Form {
	switch {
	case a.TransA:
		return kern.TN
	case a.TransB:
		return kern.NT
	}
	return kern.NN
}

// halfBlock is how many float16 weights are converted at a time: 4 MiB of
// float32, which the matrix product then reads from cache.
const halfBlock = 1 << 20

// matMulHalf is MatMul with float16 weights, some rows of B after another: they
// are a block of the sum for X·W and Xᵀ·dY, a block of columns of C for dY·Wᵀ.
func (b *Backend) matMulHalf(a op.MatMul, add bool) {
	m, n, k := a.Sizes()
	x, w, c := floats(a.A), halves(a.B), floats(a.C)
	if m <= halfRows && !a.TransA {
		b.fewRowsHalf(a, x, w, c, add)
		return
	}
	rows, cols := a.B.Dims[0], a.B.Dims[1]
	step := min(rows, max(1, halfBlock/cols))
	b.shared.weights = grow(b.shared.weights, step*cols)
	for lo := 0; lo < rows; lo += step {
		part := min(step, rows-lo)
		wide := b.shared.weights[:part*cols]
		b.widen(wide, memory16{bits: w[lo*cols : (lo+part)*cols]})
		switch {
		case a.TransB:
			b.engine.Gemm(kern.NT, m, part, k, x, k, wide, cols, c[lo:], n, add)
		case a.TransA:
			b.engine.Gemm(kern.TN, m, n, part, x[lo*m:], m, wide, cols, c, n, add || lo > 0)
		default:
			b.engine.Gemm(kern.NN, m, n, part, x[lo:], k, wide, cols, c, n, add || lo > 0)
		}
	}
}

// halfRows is the most rows for which float16 weights are used as soon as they
// are converted, in the first-level cache: a decoding step reads every weight
// once, two bytes instead of four.
const halfRows = 8

// A piece of a product with few rows is halfCols columns of C, made of as many
// columns of B (X·W) or rows of B (dY·Wᵀ).
const halfCols = 512

type fewRowsTask struct {
	x, c    []float32
	w       []uint16
	m, n, k int
	transB  bool
	add     bool
}

func (b *Backend) fewRowsHalf(a op.MatMul, x []float32, w []uint16, c []float32, add bool) {
	t := &b.tasks.fewRows
	m, n, k := a.Sizes()
	*t = fewRowsTask{x, c, w, m, n, k, a.TransB, add}
	b.each(n, halfCols, t)
	*t = fewRowsTask{}
}

func (t *fewRowsTask) do(b *Backend, worker, lo, hi int) {
	me := &b.workers[worker]
	if t.transB {
		me.row = grow(me.row, t.k)
		for j := lo; j < hi; j++ {
			b.k.F16ToF32(me.row, t.w[j*t.k:(j+1)*t.k])
			for i := range t.m {
				s := b.k.Dot(t.x[i*t.k:(i+1)*t.k], me.row)
				if t.add {
					s += t.c[i*t.n+j]
				}
				t.c[i*t.n+j] = s
			}
		}
		return
	}
	if !t.add {
		for i := range t.m {
			clear(t.c[i*t.n+lo : i*t.n+hi])
		}
	}
	me.row = grow(me.row, hi-lo)
	for l := range t.k {
		b.k.F16ToF32(me.row, t.w[l*t.n+lo:l*t.n+hi])
		for i := range t.m {
			b.k.Axpy(t.c[i*t.n+lo:i*t.n+hi], t.x[i*t.k+l], me.row)
		}
	}
}
