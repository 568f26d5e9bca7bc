package optest

import (
	"fmt"
	"math"

	"tezgah/op"
)

func gluCases() []Case {
	var cs []Case
	for _, act := range []op.Activation{op.SiLU, op.GeLUTanh} {
		for _, z := range []struct {
			n, f int
			std  float64
		}{{1, 1, 1}, {3, 7, 2}, {5, 257, 8}, {2, 1024, 60}, {4, 100, 1e-6}} {
			name := fmt.Sprintf("%v N%d F%d std %g", act, z.n, z.f, z.std)
			for _, alias := range []bool{false, true} {
				cs = append(cs, Case{Name: fmt.Sprintf("glu/%s out=up %t", name, alias), Op: op.GLU{Act: act}.Label(),
					body: func(e *env) { gluCase(e, z.n, z.f, z.std, act, alias) }})
			}
			for alias, what := range []string{"own outputs", "dgate=dout", "dup=dout"} {
				cs = append(cs, Case{Name: fmt.Sprintf("glu backward/%s %s", name, what), Op: op.GLUBackward{Act: act}.Label(),
					body: func(e *env) { gluBackwardCase(e, z.n, z.f, z.std, act, alias) }})
			}
		}
	}
	for _, half := range []bool{false, true} {
		cs = append(cs, Case{Name: fmt.Sprintf("gate up/N33 C40 F72 f16=%t", half), Op: "matmul_gate_up", F16: half,
			body: func(e *env) { gateUpCase(e, 33, 40, 72, half) }})
	}
	return cs
}

// actErr is the error allowed for act(x) and for act'(x). Both forms are
// x·σ(z) with one exp, whose relative error is expErr(z); a device may use tanh
// for GeLU instead, whose error is relative to 1 and so counts beside x.
func actErr(act op.Activation, x float64) (y, slope float64) {
	z := x
	if act == op.GeLUTanh {
		z = 2 * math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
	}
	z = math.Min(abs(z), 90) // beyond, exp has under- or overflowed
	sigma := 1 / (1 + math.Exp(z))
	rel := expErr(z)*sigma + 10*unit // of σ near 1; near 0 it is expErr itself, and σ is small
	y = abs(x)*rel + tiny
	slope = rel*(2+z) + tiny
	if act == op.GeLUTanh {
		y += 8 * unit * abs(x)
		slope = rel*(2+4*z) + 16*unit*(1+z)
	}
	return y, slope
}

func actOf(act op.Activation, x float64) (y, slope float64) {
	z, dz := x, 1.0
	if act == op.GeLUTanh {
		c := 2 * math.Sqrt(2/math.Pi)
		z, dz = c*(x+0.044715*x*x*x), c*(1+3*0.044715*x*x)
	}
	s := 1 / (1 + math.Exp(-z))
	if x < 0 && s == 0 {
		return 0, 0
	}
	return x * s, s + x*s*(1-s)*dz
}

func gluCase(e *env, n, f int, std float64, act op.Activation, alias bool) {
	gate, upv := e.in("gate", e.normal(std, n*f), n, f), e.normal(1, n*f)
	var up, out *tens
	if alias {
		up = e.acc("up", upv, n, f)
		out = up
	} else {
		up, out = e.in("up", upv, n, f), e.out("out", n, f)
	}
	e.run(func(s side) { s.GLU(op.GLU{Gate: s.t(gate), Up: s.t(up), Out: s.t(out), Act: act}) })
	g, want := gate.before(), e.want(out)
	e.compare(out, func(i int) float64 {
		y, _ := actErr(act, g[i])
		return y*abs(float64(upv[i])) + 2*unit*abs(want[i]) + tiny
	})
}

// gluBackwardCase lets alias name the output that shares dout's memory: 1 dgate,
// 2 dup.
func gluBackwardCase(e *env, n, f int, std float64, act op.Activation, alias int) {
	gate, up, d := e.in("gate", e.normal(std, n*f), n, f), e.in("up", e.normal(1, n*f), n, f), e.normal(1, n*f)
	var dgate, dup, dout *tens
	switch alias {
	case 0:
		dout, dgate, dup = e.in("dout", d, n, f), e.out("dgate", n, f), e.out("dup", n, f)
	case 1:
		dgate, dup = e.acc("dgate", d, n, f), e.out("dup", n, f)
		dout = dgate
	case 2:
		dgate, dup = e.out("dgate", n, f), e.acc("dup", d, n, f)
		dout = dup
	}
	e.run(func(s side) {
		s.GLUBackward(op.GLUBackward{Gate: s.t(gate), Up: s.t(up), DOut: s.t(dout), DGate: s.t(dgate), DUp: s.t(dup), Act: act})
	})
	g, u := gate.before(), up.before()
	e.compare(dup, func(i int) float64 {
		y, _ := actErr(act, g[i])
		act, _ := actOf(act, g[i])
		return (y+2*unit*abs(act))*abs(float64(d[i])) + tiny
	})
	e.compare(dgate, func(i int) float64 {
		_, err := actErr(act, g[i])
		_, slope := actOf(act, g[i])
		return (err+3*unit*abs(slope))*abs(float64(d[i])*u[i]) + tiny
	})
}

// gateUpCase runs the first half of the feed-forward block, fused where the
// backend can.
func gateUpCase(e *env, n, c, f int, half bool) {
	x := e.in("x", e.normal(1, n*c), n, c)
	wg, wu := e.weight("w_gate", half, e.normal(0.3, c*f), c, f), e.weight("w_up", half, e.normal(0.3, c*f), c, f)
	gate, up, out := e.out("gate", n, f), e.out("up", n, f), e.out("out", n, f)
	e.run(func(s side) {
		s.GateUp(op.GateUp{X: s.t(x), WGate: s.t(wg), WUp: s.t(wu), Gate: s.t(gate), Up: s.t(up), Out: s.t(out)})
	})
	magG := matmulMagnitude(n, f, c, x.before(), wg.before(), matmulForm{})
	magU := matmulMagnitude(n, f, c, x.before(), wu.before(), matmulForm{})
	errG := func(i int) float64 { return sumErr(c) * magG[i] }
	errU := func(i int) float64 { return sumErr(c) * magU[i] }
	e.compare(gate, errG)
	e.compare(up, errU)
	g, u, want := e.want(gate), e.want(up), e.want(out)
	e.compare(out, func(i int) float64 { // |silu'| ≤ 1.1
		y, _ := actErr(op.SiLU, g[i])
		act, _ := actOf(op.SiLU, g[i])
		return (y+1.1*errG(i))*abs(u[i]) + abs(act)*errU(i) + 2*unit*abs(want[i])
	})
}
