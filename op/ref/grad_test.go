package ref_test

import (
	"fmt"
	"math"
	"testing"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// world holds named float64 tensors on one reference backend.
type world struct {
	t *testing.T
	b *ref.Backend[float64]
	r *op.Runner
	n uint64 // tensors made, each a stream of the generator
}

func newWorld(t *testing.T) *world {
	b := ref.New[float64]()
	return &world{t: t, b: b, r: op.NewRunner(b)}
}

// make returns a tensor of normal values (seed 11), or of junk for outputs.
func (w *world) make(std float64, dims ...int) op.Tensor {
	w.n++
	x := op.Of(nil, 0, dims...)
	buf, err := w.b.Alloc(fmt.Sprintf("t%d", w.n), tensor.F32, x.Len())
	if err != nil {
		w.t.Fatal(err)
	}
	v := make([]float32, x.Len())
	tensor.NewRNG(11, w.n).Normal(v, 0, std)
	for i, f := range v {
		w.b.Data(buf)[i] = float64(f)
	}
	x.Buf = buf
	return x
}

func (w *world) junk(dims ...int) op.Tensor {
	x := w.make(1, dims...)
	for i := range w.b.Data(x.Buf) {
		w.b.Data(x.Buf)[i] = math.NaN()
	}
	return x
}

func (w *world) ints(v []int32, dims ...int) op.Tensor {
	x := op.Of(nil, 0, dims...)
	x.Buf, _ = w.b.Alloc("ints", tensor.I32, x.Len())
	op.WriteSlice(w.r, x, v)
	return x
}

func (w *world) data(x op.Tensor) []float64 { return w.b.Data(x.Buf) }

// zero makes a tensor of zeros, to be added to.
func (w *world) zero(dims ...int) op.Tensor {
	x := w.make(0, dims...)
	return x
}

// check compares the gradient dx that backward computed with central
// differences of the scalar Σ out·dout as x moves. With steps of 1e-5 the
// truncation error is about 1e-10 times the third derivative and rounding about
// 1e-11 times the sum, so 1e-7 of the gradient's scale leaves a margin of
// hundreds.
func (w *world) check(name string, x, dx op.Tensor, forward func() float64) {
	w.t.Helper()
	const h = 1e-5
	v, got := w.data(x), w.data(dx)
	var scale float64
	for _, g := range got {
		scale = math.Max(scale, math.Abs(g))
	}
	if !(scale > 0) {
		w.t.Fatalf("%s: the whole gradient is %v", name, scale)
	}
	for i := range v {
		keep := v[i]
		v[i] = keep + h
		up := forward()
		v[i] = keep - h
		down := forward()
		v[i] = keep
		want := (up - down) / (2 * h)
		if e := math.Abs(got[i] - want); !(e <= 1e-7*(scale+1)) {
			w.t.Fatalf("%s[%d] = %v, want %v by central differences, error %.3g", name, i, got[i], want, e)
		}
	}
	if err := w.r.Err(); err != nil {
		w.t.Fatal(err)
	}
}

func inner(a, b []float64) (s float64) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func TestRMSNormGradient(t *testing.T) {
	w := newWorld(t)
	n, c := 3, 7
	x, g, dy := w.make(1, n, c), w.make(1, c), w.make(1, n, c)
	y, rms, dx, dw := w.junk(n, c), w.junk(n), w.junk(n, c), w.zero(c)
	forward := func() float64 {
		w.r.RMSNorm(op.RMSNorm{X: x, W: g, Y: y, RMSInv: rms, Eps: 1e-3})
		return inner(w.data(y), w.data(dy))
	}
	forward()
	w.r.RMSNormBackward(op.RMSNormBackward{X: x, W: g, DY: dy, RMSInv: rms, DX: dx, DW: dw})
	w.check("dx", x, dx, forward)
	w.check("dw", g, dw, forward)
}

func TestMatMulGradient(t *testing.T) {
	w := newWorld(t)
	m, n, k := 3, 5, 4
	a, b, dc := w.make(1, m, k), w.make(1, k, n), w.make(1, m, n)
	c, da, db := w.junk(m, n), w.junk(m, k), w.junk(k, n)
	forward := func() float64 {
		w.r.MatMul(op.MatMul{A: a, B: b, C: c})
		return inner(w.data(c), w.data(dc))
	}
	w.r.MatMul(op.MatMul{A: dc, B: b, C: da, TransB: true})
	w.r.MatMul(op.MatMul{A: a, B: dc, C: db, TransA: true})
	w.check("da", a, da, forward)
	w.check("db", b, db, forward)
}

func TestRoPEGradient(t *testing.T) {
	w := newWorld(t)
	x, dout := w.make(1, 2, 3, 2, 6), w.make(1, 2, 3, 2, 6)
	table := w.make(0, 9, 6)
	for i, v := range ref.RoPETable(9, 6, 100) {
		w.data(table)[i] = float64(v)
	}
	y := w.junk(2, 3, 2, 6)
	forward := func() float64 {
		w.r.Copy(y, x)
		w.r.RoPE(op.RoPE{X: y, Table: table, Pos0: 5})
		return inner(w.data(y), w.data(dout))
	}
	dx := w.junk(2, 3, 2, 6)
	w.r.Copy(dx, dout)
	w.r.RoPE(op.RoPE{X: dx, Table: table, Pos0: 5, Inverse: true})
	w.check("dx", x, dx, forward)
}

func TestAttentionGradient(t *testing.T) {
	for _, masked := range []bool{false, true} {
		w := newWorld(t)
		b, s, h, kvh, d := 2, 5, 4, 2, 3
		q, k, v := w.make(1, b, s, h, d), w.make(1, b, s, kvh, d), w.make(1, b, s, kvh, d)
		out, lse, dout := w.junk(b, s, h, d), w.junk(b, h, s), w.make(1, b, s, h, d)
		var doc op.Tensor
		if masked {
			doc = w.ints([]int32{0, 0, 2, 2, 2, 0, 1, 1, 3, 4}, b, s)
		}
		forward := func() float64 {
			w.r.Attention(op.Attention{Q: q, K: k, V: v, Out: out, LSE: lse, DocStart: doc, Scale: 0.7})
			return inner(w.data(out), w.data(dout))
		}
		forward()
		dq, dk, dv := w.junk(b, s, h, d), w.junk(b, s, kvh, d), w.junk(b, s, kvh, d)
		w.r.AttentionBackward(op.AttentionBackward{Q: q, K: k, V: v, Out: out, LSE: lse, DocStart: doc,
			DOut: dout, Delta: w.junk(b, h, s), DQ: dq, DK: dk, DV: dv, Scale: 0.7})
		w.check("dq", q, dq, forward)
		w.check("dk", k, dk, forward)
		w.check("dv", v, dv, forward)
	}
}

func TestGLUGradient(t *testing.T) {
	for _, act := range []op.Activation{op.SiLU, op.GeLUTanh} {
		w := newWorld(t)
		gate, up, dout := w.make(2, 4, 5), w.make(1, 4, 5), w.make(1, 4, 5)
		out, dgate, dup := w.junk(4, 5), w.junk(4, 5), w.junk(4, 5)
		forward := func() float64 {
			w.r.GLU(op.GLU{Gate: gate, Up: up, Out: out, Act: act})
			return inner(w.data(out), w.data(dout))
		}
		w.r.GLUBackward(op.GLUBackward{Gate: gate, Up: up, DOut: dout, DGate: dgate, DUp: dup, Act: act})
		w.check(act.String()+" dgate", gate, dgate, forward)
		w.check(act.String()+" dup", up, dup, forward)
	}
}

func TestCrossEntropyGradient(t *testing.T) {
	w := newWorld(t)
	rows, v := 4, 6
	logits, targets := w.make(2, rows, v), w.ints([]int32{3, -1, 0, 5}, rows)
	work, loss := w.junk(rows, v), w.junk(rows)
	run := func(grad bool) {
		w.r.Copy(work, logits)
		w.r.CrossEntropy(op.CrossEntropy{Logits: work, Targets: targets, Loss: loss, LabelSmoothing: 0.125,
			ZLoss: 0.25, GradScale: 0.5, Ignore: -1, Grad: grad})
	}
	forward := func() float64 {
		run(false)
		return 0.5 * (w.data(loss)[0] + w.data(loss)[1] + w.data(loss)[2] + w.data(loss)[3])
	}
	run(true)
	dl := w.zero(rows, v)
	w.r.Copy(dl, work)
	w.check("dlogits", logits, dl, forward)
	for i, g := range w.data(dl)[v : 2*v] {
		if g != 0 {
			t.Errorf("gradient %d of an ignored row is %v", i, g)
		}
	}
}

func TestEmbeddingGradient(t *testing.T) {
	w := newWorld(t)
	tokens := w.ints([]int32{2, 0, 2, 4}, 4)
	table, dout := w.make(1, 5, 3), w.make(1, 4, 3)
	out, dw := w.junk(4, 3), w.zero(5, 3)
	forward := func() float64 {
		w.r.Embedding(op.Embedding{Tokens: tokens, W: table, Out: out})
		return inner(w.data(out), w.data(dout))
	}
	w.r.EmbeddingBackward(op.EmbeddingBackward{Tokens: tokens, DOut: dout, DW: dw})
	w.check("dw", table, dw, forward)
}
