package optest

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

// productOperandCases multiply operand tensors, also with float32 on the other side,
// and write them.
func productOperandCases(t tensor.DType) (cs []Case) {
	sizes := [][3]int{{64, 64, 32}, {33, 70, 45}, {128, 96, 160}, {1, 5, 3}, {2, 68, 40}, {37, 4, 52}, {4, 52, 37}, {40, 24, 1100}}
	sides := []string{"", "a", "b", "a and b", "c", "a and c", "b and c", "a, b and c"}
	for _, z := range sizes {
		for i, f := range matmulForms()[:12] {
			for side := 1; side < 8; side++ {
				writes := side >= 4
				if f.half && side != 4 && side != 5 || !f.half && writes && (i >= 3 || side == 5 || side == 6) {
					continue // C has 16 bits in plain products alone
				}
				label := op.MatMul{TransA: f.transA, TransB: f.transB}.Label()
				cs = append(cs, Case{Name: fmt.Sprintf("%s/%s M%d N%d K%d %s %v", label, f.name, z[0], z[1], z[2], sides[side], t),
					Op: fmt.Sprintf("%s %v units", label, t), Round: t, Operands: t, F16: f.half,
					body: func(e *env) { matmulSides(e, z[0], z[1], z[2], f, 1, side) }})
			}
		}
	}
	for _, z := range [][3]int{{33, 40, 64}, {12, 7, 2}} {
		cs = append(cs, Case{Name: fmt.Sprintf("matmul/M%d N%d K%d c %v to the bit", z[0], z[1], z[2], t), Op: fmt.Sprintf("matmul %v units", t), Round: t, Operands: t,
			body: func(e *env) { matmulRoundingCase(e, z[0], z[1], z[2]) }})
	}
	for _, out16 := range []bool{false, true} {
		cs = append(cs, Case{Name: fmt.Sprintf("gate up/N33 C40 F72 %v, gate and up %t", t, out16), Op: "matmul_gate_up", Round: t, Operands: t,
			body: func(e *env) { gateUpOperandCase(e, 33, 40, 72, out16) }})
	}
	return append(cs,
		Case{Name: fmt.Sprintf("gate up/N3 C5 F7 %v, gate and up true", t), Op: "matmul_gate_up", Round: t, Operands: t,
			body: func(e *env) { gateUpOperandCase(e, 3, 5, 7, true) }},
		Case{Name: fmt.Sprintf("matmul group/M35 K48 c %v and F32", t), Op: fmt.Sprintf("matmul %v units", t), Round: t, Operands: t,
			body: func(e *env) { groupOperandCase(e, 35, 48, []int{40, 24, 33}) }})
}

// matmulRoundingCase has sums of two terms that float32 holds exactly, so that C's
// rounding is all there is: ties between two numbers of either type, numbers beyond
// float16 or nearly so, small ones, NaN.
func matmulRoundingCase(e *env, m, n, k int) {
	terms := [][2]float32{{1, 0x1p-8}, {1, 0x3p-8}, {1, 0x1p-11}, {1, 0x3p-11}, {256, 0x1p-3}, {65504, 16}, {-65504, -16}, {65504, 15},
		{0x1p-14, 0x1p-14}, {0x1p-13, 0x1p-14}, {3e38, 0x1p100}, {nan32, 1}, {-1, 0x1p-9}}
	av, bv := make([]float32, m*k), make([]float32, k*n)
	for i := range m {
		av[i*k], av[i*k+1] = terms[i%len(terms)][0], terms[i%len(terms)][1]
	}
	for j := range n {
		bv[j] = float32([]float64{1, -1, 2, 0x1p-10, -256}[j%5])
		bv[n+j] = bv[j]
	}
	a, b, c := e.operand("a", heldBy(e.operands, av), m, k), e.operand("b", bv, k, n), e.outOperand("c", m, n)
	e.run(func(s side) { s.MatMul(op.MatMul{A: s.t(a), B: s.t(b), C: s.t(c)}) })
	e.exact(c)
}

// groupOperandCase writes an operand tensor, float32 and an operand tensor.
func groupOperandCase(e *env, m, k int, widths []int) {
	a := e.operand("a", e.normal(1, m*k), m, k)
	var bs, cs, exact []*tens
	for i, n := range widths {
		bs = append(bs, e.in("b", e.normal(1, k*n), k, n))
		cs, exact = append(cs, e.outIf(i != 1, "c", m, n)), append(exact, e.out("exact", m, n))
	}
	e.run(func(s side) {
		var items []op.MatMul
		for i := range widths {
			items = append(items, op.MatMul{A: s.t(a), B: s.t(bs[i]), C: s.t(cs[i])})
			if s.ref {
				s.MatMul(op.MatMul{A: s.t(a), B: s.t(bs[i]), C: s.t(exact[i])})
			}
		}
		s.MatMulGroup(items)
	})
	for i, n := range widths {
		mag := matmulMagnitude(m, n, k, a.before(), bs[i].before(), matmulForm{})
		e.nearRounded(cs[i], exact[i], func(x int) float64 { return sumErr(k) * mag[x] })
	}
}

// gateUpOperandCase reads an operand tensor and writes one, with narrow also gate and
// up, from which out is then computed.
func gateUpOperandCase(e *env, n, c, f int, narrow bool) {
	x := e.operand("x", e.normal(1, n*c), n, c)
	wg, wu := e.in("w_gate", e.normal(0.3, c*f), c, f), e.in("w_up", e.normal(0.3, c*f), c, f)
	gate, up := e.out("exact_gate", n, f), e.out("exact_up", n, f)
	gate2, up2 := e.outIf(narrow, "gate", n, f), e.outIf(narrow, "up", n, f)
	out, out16 := e.out("exact", n, f), e.outOperand("out16", n, f)
	e.run(func(s side) {
		if s.ref {
			s.MatMul(op.MatMul{A: s.t(x), B: s.t(wg), C: s.t(gate)})
			s.MatMul(op.MatMul{A: s.t(x), B: s.t(wu), C: s.t(up)})
		}
		s.GateUp(op.GateUp{X: s.t(x), WGate: s.t(wg), WUp: s.t(wu), Gate: s.t(gate2), Up: s.t(up2), Out: s.t(out16)})
		s.GLU(op.GLU{Gate: s.t(gate2), Up: s.t(up2), Out: s.t(out)})
	})
	for i, p := range []struct{ got, exact, w *tens }{{gate2, gate, wg}, {up2, up, wu}} {
		mag := matmulMagnitude(n, f, c, x.before(), []*tens{wg, wu}[i].before(), matmulForm{})
		e.nearRounded(p.got, p.exact, func(x int) float64 { return sumErr(c) * mag[x] })
	}
	e.sameRounded(out16, out)
}

// attnTypes says which tensors of an attention are of 16 bits.
type attnTypes struct{ in, out bool } // q, k and v; out, dout and dv

func attentionOperandCases(t tensor.DType) (cs []Case) {
	sizes := []attnSize{{1, 1, 1, 1, 32, 0, 1}, {2, 5, 3, 3, 2, 2, 1}, {1, 7, 2, 1, 16, 0, 1}, {2, 33, 4, 2, 64, 3, 1}, {1, 65, 2, 1, 64, 0, 1},
		{1, 40, 6, 2, 80, 5, 1}, {1, 129, 2, 1, 32, 0, 1}, {1, 100, 2, 2, 64, 0, 4}, {2, 9, 3, 1, 7, 0, 1},
		{1, 129, 2, 1, 128, 0, 1}} // the last takes minutes to compile for a processor
	for i, z := range sizes {
		for _, a := range []attnTypes{{true, true}, {true, false}, {false, true}} {
			if i > 3 && !(a.in && a.out) {
				continue
			}
			name, large := fmt.Sprintf("%v %v in %t out %t", z, t, a.in, a.out), i == len(sizes)-1
			cs = append(cs,
				Case{Name: "attention/" + name, Op: "attention_forward", Large: large, Round: t, Operands: t, body: func(e *env) { attentionOperandCase(e, z, a) }},
				Case{Name: "attention backward/" + name, Op: "attention_backward", Large: large, Round: t, Operands: t,
					body: func(e *env) { attentionBackwardOperandCase(e, z, a) }})
		}
	}
	return append(cs, Case{Name: fmt.Sprintf("attention backward/dv beyond float16 %v", t), Op: "attention_backward", Round: t, Operands: t, body: attentionOverflowCase})
}

// attentionOverflowCase has three queries that see their keys alike, so that dv of the
// first key is 11/6 of dout: an infinity in float16, where loss scaling must find it.
func attentionOverflowCase(e *env) {
	const T, D, size = 3, 16, 61440
	zeros := func(label string) *tens { return e.operand(label, make([]float32, T*D), 1, T, 1, D) }
	q, k, v, out := zeros("q"), zeros("k"), zeros("v"), zeros("out")
	big := make([]float32, T*D)
	for i := range big {
		big[i] = float32(size - i%2*2*size)
	}
	dout, lse := e.operand("dout", big, 1, T, 1, D), e.in("lse", []float32{0, float32(math.Log(2)), float32(math.Log(3))}, 1, 1, T)
	delta, dq, dk, dv := e.out("delta", 1, 1, T), e.out("dq", 1, T, 1, D), e.out("dk", 1, T, 1, D), e.outOperand("dv", 1, T, 1, D)
	e.run(func(s side) {
		s.AttentionBackward(op.AttentionBackward{Q: s.t(q), K: s.t(k), V: s.t(v), Out: s.t(out), LSE: s.t(lse), DOut: s.t(dout),
			Delta: s.t(delta), DQ: s.t(dq), DK: s.t(dk), DV: s.t(dv), Scale: 0.25})
	})
	e.exact(dq)
	e.exact(dk)
	e.compare(dv, func(int) float64 { return 2 * size * 0x1p-8 }) // of weights and results; nothing allows for a number in place of an infinity
}

// inIf is operand, or else in.
func (e *env) inIf(operand bool, label string, v []float32, dims ...int) *tens {
	if operand {
		return e.operand(label, v, dims...)
	}
	return e.in(label, v, dims...)
}

func (e *env) qkvOperand(z attnSize, operand bool) (q, k, v *tens) {
	return e.inIf(operand, "q", e.normal(z.std, z.b*z.t*z.h*z.d), z.b, z.t, z.h, z.d),
		e.inIf(operand, "k", e.normal(z.std, z.b*z.t*z.kvh*z.d), z.b, z.t, z.kvh, z.d),
		e.inIf(operand, "v", e.normal(1, z.b*z.t*z.kvh*z.d), z.b, z.t, z.kvh, z.d)
}

// units lets the bounds allow for products that round to t. What is stored has been
// rounded to it, and is multiplied as it is.
func (m *attnMath) units(t tensor.DType) {
	m.rounding, m.least = 0x1p-11, 0x1p-25
	if t == tensor.BF16 {
		m.rounding, m.least = 0x1p-8, 0
	}
}

func attentionOperandCase(e *env, z attnSize, a attnTypes) {
	q, k, v := e.qkvOperand(z, a.in)
	doc, starts := e.mask(z)
	exact, out, lse := e.out("exact", z.b, z.t, z.h, z.d), e.outIf(a.out, "out", z.b, z.t, z.h, z.d), e.out("lse", z.b, z.h, z.t)
	e.run(func(s side) {
		p := op.Attention{Q: s.t(q), K: s.t(k), V: s.t(v), Out: s.t(out), LSE: s.t(lse), DocStart: s.t(doc), Scale: z.scale()}
		s.Attention(p)
		if p.Out = s.t(exact); s.ref {
			s.Attention(p)
		}
	})
	if e.res.Err != nil {
		return
	}
	m := newAttnMath(z, q, k, v, starts)
	m.units(e.operands)
	errOut, errLSE := m.forward()
	e.nearRounded(out, exact, func(i int) float64 { return errOut[i] })
	e.compare(lse, func(i int) float64 { return errLSE[i] })
}

func attentionBackwardOperandCase(e *env, z attnSize, a attnTypes) {
	q, k, v := e.qkvOperand(z, a.in)
	doc, starts := e.mask(z)
	m := newAttnMath(z, q, k, v, starts)
	outv, lsev := m.reference()
	out, lse := e.inIf(a.out, "out", rounded(outv, e.operands), z.b, z.t, z.h, z.d), e.in("lse", lsev, z.b, z.h, z.t)
	dout := e.inIf(a.out, "dout", e.normal(1, z.b*z.t*z.h*z.d), z.b, z.t, z.h, z.d)
	delta, exact := e.out("delta", z.b, z.h, z.t), e.out("exact", z.b, z.t, z.kvh, z.d)
	dq, dk, dv := e.out("dq", z.b, z.t, z.h, z.d), e.out("dk", z.b, z.t, z.kvh, z.d), e.outIf(a.out, "dv", z.b, z.t, z.kvh, z.d)
	e.run(func(s side) {
		p := op.AttentionBackward{Q: s.t(q), K: s.t(k), V: s.t(v), Out: s.t(out), LSE: s.t(lse), DocStart: s.t(doc),
			DOut: s.t(dout), Delta: s.t(delta), DQ: s.t(dq), DK: s.t(dk), DV: s.t(dv), Scale: z.scale()}
		s.AttentionBackward(p)
		if p.DV = s.t(exact); s.ref {
			s.AttentionBackward(p)
		}
	})
	if e.res.Err != nil {
		return
	}
	m.units(e.operands)
	m.out, m.lse, m.dout = out.before(), lse.before(), dout.before()
	errDQ, errDK, errDV := m.backward()
	e.compare(dq, func(i int) float64 { return errDQ[i] })
	e.compare(dk, func(i int) float64 { return errDK[i] })
	e.nearRounded(dv, exact, func(i int) float64 { return errDV[i] })
}

// heldBy rounds v to a type in place, but leaves nothing that is denormal there,
// which devices may read as 0.
func heldBy(t tensor.DType, v []float32) []float32 {
	for i, x := range rounded(v, t) {
		if t == tensor.F16 && math.Abs(float64(x)) < 0x1p-14 {
			v[i] = 0
		}
	}
	return v
}
