package optest

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

// gluTypes says which tensors of a gated unit are of 16 bits.
type gluTypes struct {
	in, dout, out bool // gate and up; dout; the results
}

func (g gluTypes) String() string {
	name := ""
	for _, x := range []struct {
		on   bool
		text string
	}{{g.in, " in"}, {g.dout, " dout"}, {g.out, " out"}} {
		if x.on {
			name += x.text
		}
	}
	return name
}

// gluOperandCases have each mixture of types in whole vectors and in pairs, and the
// two that a model uses, with and without gradients of 16 bits, in more shapes.
func gluOperandCases(t tensor.DType) (cs []Case) {
	sizes := []struct{ n, f int }{{5, 257}, {33, 68}, {1, 1}, {1, 2}, {3, 7}, {2, 1026}, {2, 1024}}
	for _, act := range []op.Activation{op.SiLU, op.GeLUTanh} {
		for i, z := range sizes {
			for mix := 1; mix < 8; mix++ {
				g := gluTypes{in: mix&1 != 0, dout: mix&2 != 0, out: mix&4 != 0}
				if i > 1 && !(g.out && g.in == g.dout) {
					continue
				}
				name := fmt.Sprintf("%v N%d F%d %v%v", act, z.n, z.f, t, g)
				if !g.dout {
					cs = append(cs, Case{Name: "glu/" + name, Op: op.GLU{Act: act}.Label(), Operands: t, body: func(e *env) { gluOperandCase(e, z.n, z.f, act, g) }})
				}
				cs = append(cs, Case{Name: "glu backward/" + name, Op: op.GLUBackward{Act: act}.Label(), Operands: t,
					body: func(e *env) { gluBackwardOperandCase(e, z.n, z.f, act, g) }})
			}
		}
		for _, z := range sizes[:3] {
			name := fmt.Sprintf("%v N%d F%d %v", act, z.n, z.f, t)
			cs = append(cs,
				Case{Name: "glu/" + name + " out=up", Op: op.GLU{Act: act}.Label(), Operands: t, body: func(e *env) { gluInPlaceCase(e, z.n, z.f, act) }},
				Case{Name: "glu backward/" + name + " dgate=dout", Op: op.GLUBackward{Act: act}.Label(), Operands: t,
					body: func(e *env) { gluBackwardInPlaceCase(e, z.n, z.f, act, true) }},
				Case{Name: "glu backward/" + name + " dup=dout", Op: op.GLUBackward{Act: act}.Label(), Operands: t,
					body: func(e *env) { gluBackwardInPlaceCase(e, z.n, z.f, act, false) }})
		}
	}
	return cs
}

// either is the narrow tensor where it is asked for, else the other.
func either(narrow bool, x, wide *tens) *tens {
	if narrow {
		return x
	}
	return wide
}

// operandPair makes an input in float32 that holds what an operand tensor of the
// case's type does, and that tensor.
func (e *env) operandPair(label string, v []float32, dims ...int) (wide, narrow *tens) {
	v = heldBy(e.operands, v)
	return e.in(label, v, dims...), e.operand(label+"16", v, dims...)
}

// gluOperandCase holds mixed types against the same in float32.
func gluOperandCase(e *env, n, f int, act op.Activation, g gluTypes) {
	gate, gate16 := e.operandPair("gate", e.normal(4, n*f), n, f)
	up, up16 := e.operandPair("up", wild(e.normal(1, n*f)), n, f)
	exact := e.out("exact", n, f)
	out := e.outIf(g.out, "out", n, f)
	e.run(func(s side) {
		s.GLU(op.GLU{Gate: s.t(gate), Up: s.t(up), Out: s.t(exact), Act: act})
		s.GLU(op.GLU{Gate: s.t(either(g.in, gate16, gate)), Up: s.t(either(g.in, up16, up)), Out: s.t(out), Act: act})
	})
	e.sameRounded(out, exact)
}

// outIf is outOperand, or else out.
func (e *env) outIf(operand bool, label string, dims ...int) *tens {
	if operand {
		return e.outOperand(label, dims...)
	}
	return e.out(label, dims...)
}

func gluBackwardOperandCase(e *env, n, f int, act op.Activation, g gluTypes) {
	gate, gate16 := e.operandPair("gate", e.normal(4, n*f), n, f)
	up, up16 := e.operandPair("up", e.normal(1, n*f), n, f)
	dout, dout16 := e.operandPair("dout", wild(e.normal(1, n*f)), n, f)
	dgate, dup := e.out("exact_dgate", n, f), e.out("exact_dup", n, f)
	dgate2, dup2 := e.outIf(g.out, "dgate", n, f), e.outIf(g.out, "dup", n, f)
	e.run(func(s side) {
		s.GLUBackward(op.GLUBackward{Gate: s.t(gate), Up: s.t(up), DOut: s.t(dout), DGate: s.t(dgate), DUp: s.t(dup), Act: act})
		s.GLUBackward(op.GLUBackward{Gate: s.t(either(g.in, gate16, gate)), Up: s.t(either(g.in, up16, up)),
			DOut: s.t(either(g.dout, dout16, dout)), DGate: s.t(dgate2), DUp: s.t(dup2), Act: act})
	})
	e.sameRounded(dgate2, dgate)
	e.sameRounded(dup2, dup)
}

// gluInPlaceCase writes over up, all of 16 bits.
func gluInPlaceCase(e *env, n, f int, act op.Activation) {
	gate, gate16 := e.operandPair("gate", e.normal(4, n*f), n, f)
	upv := heldBy(e.operands, wild(e.normal(1, n*f)))
	up, up16, exact := e.in("up", upv, n, f), e.accOperand("up16", upv, n, f), e.out("exact", n, f)
	e.run(func(s side) {
		s.GLU(op.GLU{Gate: s.t(gate), Up: s.t(up), Out: s.t(exact), Act: act})
		s.GLU(op.GLU{Gate: s.t(gate16), Up: s.t(up16), Out: s.t(up16), Act: act})
	})
	e.sameRounded(up16, exact)
}

// gluBackwardInPlaceCase writes dgate or dup over dout, all of 16 bits.
func gluBackwardInPlaceCase(e *env, n, f int, act op.Activation, toGate bool) {
	gate, gate16 := e.operandPair("gate", e.normal(4, n*f), n, f)
	up, up16 := e.operandPair("up", e.normal(1, n*f), n, f)
	d := heldBy(e.operands, wild(e.normal(1, n*f)))
	dout, dout16, other := e.in("dout", d, n, f), e.accOperand("dout16", d, n, f), e.outOperand("other", n, f)
	dgate, dup := e.out("exact_dgate", n, f), e.out("exact_dup", n, f)
	e.run(func(s side) {
		s.GLUBackward(op.GLUBackward{Gate: s.t(gate), Up: s.t(up), DOut: s.t(dout), DGate: s.t(dgate), DUp: s.t(dup), Act: act})
		s.GLUBackward(op.GLUBackward{Gate: s.t(gate16), Up: s.t(up16), DOut: s.t(dout16), DGate: s.t(either(toGate, dout16, other)),
			DUp: s.t(either(toGate, other, dout16)), Act: act})
	})
	e.sameRounded(either(toGate, dout16, other), dgate)
	e.sameRounded(either(toGate, other, dout16), dup)
}
