package optest

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// operandCases hold operand tensors of 16 bits against op.Rounder's words: what an
// operation stores is what it stores in float32, rounded to nearest. Most cases
// make both on the device and compare bits, NaN, infinities and overflow included.
func operandCases() []Case {
	var cs []Case
	for _, t := range []tensor.DType{tensor.BF16, tensor.F16} {
		cs = append(cs, normOperandCases(t)...)
		cs = append(cs, gluOperandCases(t)...)
		cs = append(cs, ropeOperandCases(t)...)
		cs = append(cs, lossOperandCases(t)...)
		cs = append(cs, productOperandCases(t)...)
		cs = append(cs, attentionOperandCases(t)...)
	}
	return append(cs,
		Case{Name: "rmsnorm backward/copy F32", Op: "rmsnorm_backward", body: func(e *env) { normCopyCase(e, 5, 36, true, false) }},
		Case{Name: "rmsnorm backward/copy F32 of odd rows", Op: "rmsnorm_backward", body: func(e *env) { normCopyCase(e, 3, 7, false, true) }},
		Case{Name: "rope/out F32", Op: "rope_forward", body: func(e *env) { ropeOutCase(e, 2, 5, 3, 1, 6, false) }},
		Case{Name: "rope/out F32 inverse", Op: "rope_backward", body: func(e *env) { ropeOutCase(e, 2, 9, 2, 4, 16, true) }},
		Case{Name: "loss/dlogits F32", Op: "cross_entropy", body: func(e *env) { lossOperandCase(e, 5, 7, 0.1, 1e-2) }},
		Case{Name: "loss/dlogits F32 of whole vectors", Op: "cross_entropy", body: func(e *env) { lossOperandCase(e, 3, 256, 0, 0) }},
		Case{Name: "cast/to bf16", Op: "cast_f32_to_bf16", Operands: tensor.BF16, body: castToBrain},
		Case{Name: "cast/from bf16", Op: "cast_bf16_to_f32", Operands: tensor.BF16, body: castFromBrain})
}

// operandBits is x as an operand tensor of a type holds it.
func operandBits(t tensor.DType, x float32) uint16 {
	switch {
	case t == tensor.BF16:
		return tensor.ToBF16(x)
	case x >= 65520: // halfway between the largest float16 and the next step
		return 0x7c00
	case x <= -65520:
		return 0xfc00
	}
	return tensor.ToF16(x)
}

// roundTo rounds x to a type, in which it stays finite if it can.
func roundTo(t tensor.DType, x float32) float32 {
	switch t {
	case tensor.BF16:
		return tensor.FromBF16(tensor.ToBF16(x))
	case tensor.F16:
		return tensor.FromF16(operandBits(t, x))
	}
	return x
}

// halfStep is half the distance between the numbers of a type around x.
func halfStep(t tensor.DType, x float64) float64 {
	bits, least := 24, -126
	switch t {
	case tensor.BF16:
		bits = 8
	case tensor.F16:
		bits, least = 11, -14
	}
	_, exp := math.Frexp(x)
	return math.Ldexp(1, max(exp-1, least)-bits)
}

// sameRounded says that an operand tensor holds the bits of another tensor of the
// device, rounded.
func (e *env) sameRounded(x, exact *tens) { e.nearlyRounded(x, exact, nil) }

// nearlyRounded is sameRounded of values that may differ by bound before they are
// rounded.
func (e *env) nearlyRounded(x, exact *tens, bound func(i int) float64) {
	if e.res.Err != nil {
		return
	}
	want := exact.after()
	for i, v := range want {
		want[i] = float64(roundTo(x.typ, float32(v)))
	}
	e.compareTo(x.label, x, x.after(), want, func(i int) float64 {
		if bound == nil || math.IsNaN(want[i]) || math.IsInf(want[i], 0) {
			return 0
		}
		return bound(i) + 2*halfStep(x.typ, want[i])
	})
}

// nearRounded says that an operand tensor, or one in float32, is a rounding of what
// the reference has in exact, give or take bound.
func (e *env) nearRounded(x, exact *tens, bound func(i int) float64) {
	if e.res.Err != nil {
		return
	}
	want := e.want(exact)
	e.compareTo(x.label, x, x.after(), want, func(i int) float64 { return bound(i) + halfStep(x.typ, want[i]) })
}

// wild puts values that are not finite, or not in float16, at places spread over v,
// and ties between two numbers of either type.
func wild(v []float32) []float32 {
	odd := []float32{float32(math.Inf(1)), float32(math.Inf(-1)), nan32, math.Float32frombits(0xffc12345), 1e30, -1e30, 65519.996, 65520, -65536,
		1 + 1.0/256, 1 + 3.0/256, 1 + 1.0/2048, 1 + 3.0/2048, 0x1p-24, 0x1.8p-24, 0x1p-15, float32(math.Copysign(0, -1))}
	step := max(1, len(v)/len(odd))
	for i, x := range odd {
		if at := i * step; at < len(v) {
			v[at] = x
		}
	}
	return v
}

func normOperandCases(t tensor.DType) (cs []Case) {
	for _, z := range []struct{ n, c int }{{1, 1}, {3, 7}, {4, 6}, {17, 64}, {5, 257}, {3, 1030}, {37, 768}, {2, 4100}, {3, 2052}, {2, 8196}, {3, 5003}} {
		for _, half := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("rmsnorm/N%d C%d f16=%t y %v", z.n, z.c, half, t), Op: "rmsnorm_forward", F16: half, Operands: t,
				body: func(e *env) { normOperandCase(e, z.n, z.c, half) }})
		}
		for _, add := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("rmsnorm backward/N%d C%d add=%t copy %v", z.n, z.c, add, t), Op: "rmsnorm_backward", Operands: t,
				body: func(e *env) { normCopyCase(e, z.n, z.c, add, z.n%2 == 0) }})
		}
	}
	return append(cs, Case{Name: fmt.Sprintf("rmsnorm backward/N2100 C12 copy %v", t), Op: "rmsnorm_backward", Operands: t,
		body: func(e *env) { normCopyCase(e, 2100, 12, true, false) }})
}

// normCopyCase has gradients that bring every kind of value into dx, whose copy must
// not change dx or dw.
func normCopyCase(e *env, n, c int, add, frozen bool) {
	x, w, dy := e.in("x", e.normal(1, n*c), n, c), e.in("w", e.normal(1, c), c), e.in("dy", e.normal(1, n*c), n, c)
	rms, old := e.in("rms_inv", e.normal(1, n), n), wild(e.normal(1, n*c))
	dx, exact := e.acc("dx", old, n, c), e.acc("exact", old, n, c)
	dxCopy := e.outOperand("dx_copy", n, c)
	var dw, exactDW *tens
	if !frozen {
		gain := e.normal(1, c)
		dw, exactDW = e.acc("dw", gain, c), e.acc("exact_dw", gain, c)
	}
	e.run(func(s side) {
		a := op.RMSNormBackward{X: s.t(x), W: s.t(w), DY: s.t(dy), RMSInv: s.t(rms), DX: s.t(exact), DW: s.t(exactDW), AddDX: add}
		s.RMSNormBackward(a)
		a.DX, a.DXCopy, a.DW = s.t(dx), s.t(dxCopy), s.t(dw)
		s.RMSNormBackward(a)
	})
	e.sameRounded(dxCopy, dx)
	e.sameRounded(dx, exact)
	if !frozen {
		e.sameRounded(dw, exactDW)
	}
}

// normOperandCase has gains that bring every kind of value into y.
func normOperandCase(e *env, n, c int, half bool) {
	x, w := e.in("x", e.normal(1, n*c), n, c), e.weight("w", half, wild(e.normal(1, c)), c)
	y, rms := e.out("y", n, c), e.out("rms_inv", n)
	y16, rms16 := e.outOperand("y16", n, c), e.out("rms_inv16", n)
	e.run(func(s side) {
		s.RMSNorm(op.RMSNorm{X: s.t(x), W: s.t(w), Y: s.t(y), RMSInv: s.t(rms), Eps: 1e-5})
		s.RMSNorm(op.RMSNorm{X: s.t(x), W: s.t(w), Y: s.t(y16), RMSInv: s.t(rms16), Eps: 1e-5})
	})
	e.sameRounded(y16, y)
	e.sameRounded(rms16, rms)
}

func ropeOperandCases(t tensor.DType) (cs []Case) {
	for _, z := range []struct{ b, t, h, kvh, d int }{{1, 1, 1, 1, 2}, {2, 5, 3, 2, 6}, {1, 33, 4, 1, 64}, {3, 7, 5, 5, 48}, {1, 1, 8, 4, 80},
		{1, 4, 2, 1, 16}, {3, 3, 1, 1, 10}, {2, 3, 6, 2, 24}} {
		for _, inverse := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("rope/B%d T%d H%d KVH%d D%d inverse=%t out %v", z.b, z.t, z.h, z.kvh, z.d, inverse, t),
				Op: op.RoPE{Inverse: inverse}.Label(), Operands: t, body: func(e *env) { ropeOutCase(e, z.b, z.t, z.h, z.kvh, z.d, inverse) }})
		}
	}
	return cs
}

// ropeOutCase rotates in place, to a tensor of its own, and two tensors at once: both
// to others, and only the second.
func ropeOutCase(e *env, b, t, h, kvh, d int, inverse bool) {
	const pos = 3
	v, v2 := wild(e.normal(1, b*t*h*d)), wild(e.normal(1, b*t*kvh*d))
	table := e.in("table", ref.RoPETable(pos+t, d, 10000), pos+t, d)
	x, inPlace, again := e.in("x", v, b, t, h, d), e.acc("in_place", v, b, t, h, d), e.acc("again", v, b, t, h, d)
	x2, inPlace2 := e.in("x2", v2, b, t, kvh, d), e.acc("in_place2", v2, b, t, kvh, d)
	out, both := e.outOperand("out", b, t, h, d), e.outOperand("both", b, t, h, d)
	both2, second := e.outOperand("both2", b, t, kvh, d), e.outOperand("second", b, t, kvh, d)
	e.run(func(s side) {
		turn := func(x, out, x2, out2 *tens) {
			s.RoPE(op.RoPE{X: s.t(x), Out: s.t(out), X2: s.t(x2), Out2: s.t(out2), Table: s.t(table), Pos0: pos, Inverse: inverse})
		}
		turn(inPlace, nil, nil, nil)
		turn(inPlace2, nil, nil, nil)
		turn(x, out, nil, nil)
		turn(x, both, x2, both2)
		turn(again, nil, x2, second)
	})
	for _, o := range []*tens{out, both, again} {
		e.nearlyRounded(o, inPlace, turnedTwice(v, d))
	}
	for _, o := range []*tens{both2, second} {
		e.nearlyRounded(o, inPlace2, turnedTwice(v2, d))
	}
}

// turnedTwice is how far two kernels may differ on v, heads of d: one may fuse a
// multiplication with the addition and the other not.
func turnedTwice(v []float32, d int) func(i int) float64 {
	return func(i int) float64 {
		partner := i + d/2
		if i%d >= d/2 {
			partner = i - d/2
		}
		return 0x1p-22 * (math.Abs(float64(v[i])) + math.Abs(float64(v[partner])))
	}
}

func lossOperandCases(t tensor.DType) (cs []Case) {
	for _, z := range []struct{ rows, v int }{{1, 1}, {3, 2}, {5, 7}, {4, 256}, {3, 257}, {3, 1000}, {2, 4100}, {2, 4098}, {3, 14004}, {2, 17000}, {300, 12}, {2, 33000}, {2, 65537}} {
		cs = append(cs, Case{Name: fmt.Sprintf("loss/R%d V%d dlogits %v", z.rows, z.v, t), Op: "cross_entropy", Operands: t,
			body: func(e *env) { lossOperandCase(e, z.rows, z.v, 0.1, 1e-2) }})
	}
	return append(cs, Case{Name: fmt.Sprintf("loss/plain R3 V516 dlogits %v", t), Op: "cross_entropy", Operands: t,
		body: func(e *env) { lossOperandCase(e, 3, 516, 0, 0) }})
}

// lossOperandCase computes gradients beside the logits, which stay. The second row,
// if there is one, is ignored; of three the last has a NaN, and the ignored one too,
// where nobody looks.
func lossOperandCase(e *env, rows, v int, alpha, beta float32) {
	const ignore, gradScale = -100, 0.125
	ids := e.intn(v, rows)
	values := e.normal(2, rows*v)
	if rows > 1 {
		ids[1] = ignore
	}
	if rows > 2 {
		values[rows*v-1], values[v] = nan32, nan32
	}
	logits, targets := e.in("logits", values, rows, v), e.ids("targets", ids, rows)
	inPlace, exactLoss := e.acc("in_place", values, rows, v), e.out("exact_loss", rows)
	dlogits, loss := e.outOperand("dlogits", rows, v), e.out("loss", rows)
	a := op.CrossEntropy{LabelSmoothing: alpha, ZLoss: beta, GradScale: gradScale, Ignore: ignore, Grad: true}
	e.run(func(s side) {
		a.Targets = s.t(targets)
		a.Logits, a.Loss, a.DLogits = s.t(inPlace), s.t(exactLoss), op.Tensor{}
		s.CrossEntropy(a)
		a.Logits, a.Loss, a.DLogits = s.t(logits), s.t(loss), s.t(dlogits)
		s.CrossEntropy(a)
	})
	if e.res.Err != nil {
		return
	}
	bounds := make([]lossErr, rows)
	for r := range bounds {
		if ids[r] != ignore && !(rows > 2 && r == rows-1) {
			bounds[r] = lossBounds(logits.before()[r*v:(r+1)*v], int(ids[r]), float64(alpha), float64(beta))
		}
	}
	hasNaN := func(r int) bool { return rows > 2 && r == rows-1 }
	e.compare(loss, func(r int) float64 {
		if hasNaN(r) {
			return math.Inf(1)
		}
		return bounds[r].loss
	})
	e.nearRounded(dlogits, inPlace, func(i int) float64 {
		switch {
		case hasNaN(i / v):
			return math.Inf(1)
		case bounds[i/v].grad == nil:
			return 0
		}
		return gradScale * bounds[i/v].grad[i%v]
	})
	if rows > 2 {
		e.notFinite(loss, rows-1, rows)
		e.notFinite(dlogits, (rows-1)*v, rows*v)
	}
}

// notFinite says that one of some elements at least is NaN or infinite: WGSL lets a
// device take NaN for any other number, but none may hide that there was one.
func (e *env) notFinite(x *tens, from, to int) {
	if e.res.Err != nil {
		return
	}
	for _, v := range x.after()[from:to] {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
	}
	e.fail(fmt.Errorf("%s: elements %d to %d are finite, though a NaN went in", x.label, from, to))
}

// castToBrain has the values of castToHalf, of which none is too large.
func castToBrain(e *env) {
	v := wild(e.normal(1e3, 501))
	src, dst := e.in("src", v, len(v)), e.outOperand("dst", len(v))
	e.run(func(s side) { s.Cast(op.Cast{Dst: s.t(dst), Src: s.t(src)}) })
	e.exact(dst)
	e.sameRounded(dst, src)
}

// castFromBrain converts every bfloat16 there is that is normal or zero, and one
// value more, so that the last word is half used.
func castFromBrain(e *env) {
	v := make([]float32, 1<<16+1)
	for i := range v {
		if v[i] = tensor.FromBF16(uint16(i)); i&0x7f80 == 0 {
			v[i] = float32(i) // denormal: devices may flush it
		}
	}
	src, dst := e.operand("src", v, len(v)), e.out("dst", len(v))
	e.run(func(s side) { s.Cast(op.Cast{Dst: s.t(dst), Src: s.t(src)}) })
	e.exact(dst)
}
