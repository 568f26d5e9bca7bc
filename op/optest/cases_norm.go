package optest

import (
	"fmt"
	"math"

	"tezgah/op"
)

func normCases() []Case {
	var cs []Case
	for _, z := range []struct {
		n, c     int
		std, eps float64
	}{{1, 1, 1, 1e-5}, {3, 7, 1, 1e-5}, {17, 64, 1, 1e-6}, {2, 256, 1, 1e-5}, {5, 257, 3, 1e-5}, {130, 32, 1, 1e-5},
		{3, 1000, 1e15, 1e-5}, {4, 1030, 1e-13, 1e-28}, {2, 96, 0, 1e-5}, {2, 4100, 1, 1e-5},
		{37, 768, 1, 1e-5}, {9, 2052, 1, 1e-5}, {2, 8196, 1, 1e-5}} {
		name := fmt.Sprintf("N%d C%d std %g", z.n, z.c, z.std)
		for _, half := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("rmsnorm/%s f16=%t", name, half), Op: "rmsnorm_forward", F16: half,
				body: func(e *env) { normCase(e, z.n, z.c, z.std, z.eps, half) }})
		}
		if z.std > 0 && z.std < 1e10 {
			for _, add := range []bool{false, true} {
				for _, frozen := range []bool{false, true} {
					cs = append(cs, Case{Name: fmt.Sprintf("rmsnorm backward/%s add=%t frozen=%t", name, add, frozen), Op: "rmsnorm_backward",
						body: func(e *env) { normBackwardCase(e, z.n, z.c, z.std, z.eps, add, frozen) }})
				}
			}
		}
	}
	return append(cs, Case{Name: "rmsnorm backward/N2048 C768", Op: "rmsnorm_backward", Large: true,
		body: func(e *env) { normBackwardCase(e, 2048, 768, 1, 1e-5, true, false) }})
}

func normCase(e *env, n, c int, std, eps float64, half bool) {
	x, w := e.in("x", e.normal(std, n*c), n, c), e.weight("w", half, e.normal(1, c), c)
	y, rms := e.out("y", n, c), e.out("rms_inv", n)
	e.run(func(s side) {
		s.RMSNorm(op.RMSNorm{X: s.t(x), W: s.t(w), Y: s.t(y), RMSInv: s.t(rms), Eps: float32(eps)})
	})
	// The mean has sumErr and three roundings; the root halves a relative error
	// and inverseSqrt is allowed two units in the last place.
	rel := (sumErr(c)+3*unit)/2 + 2*ulp + unit
	want, wantRMS := e.want(y), e.want(rms)
	e.compare(rms, func(i int) float64 { return rel * wantRMS[i] })
	e.compare(y, func(i int) float64 { return (rel+2*unit)*abs(want[i]) + tiny })
}

// normBackwardCase is with DW, or without it where the gain is frozen.
func normBackwardCase(e *env, n, c int, std, eps float64, add, frozen bool) {
	xv, wv, dyv := e.normal(std, n*c), e.normal(1, c), e.normal(1, n*c)
	inv := make([]float32, n)
	for r := range inv {
		ss := 0.0
		for _, v := range xv[r*c : (r+1)*c] {
			ss += float64(v) * float64(v)
		}
		inv[r] = float32(1 / math.Sqrt(ss/float64(c)+eps))
	}
	x, w, dy, rms := e.in("x", xv, n, c), e.in("w", wv, c), e.in("dy", dyv, n, c), e.in("rms_inv", inv, n)
	dx := e.out("dx", n, c)
	var dw *tens
	if !frozen {
		dw = e.acc("dw", e.normal(1, c), c)
	}
	if add {
		dx = e.acc("dx", e.normal(1, n*c), n, c)
	}
	e.run(func(s side) {
		s.RMSNormBackward(op.RMSNormBackward{X: s.t(x), W: s.t(w), DY: s.t(dy), RMSInv: s.t(rms), DX: s.t(dx), DW: s.t(dw), AddDX: add})
	})
	magDX, magDW := normBackwardMagnitudes(x.before(), w.before(), dy.before(), rms.before())
	if add {
		for i, v := range dx.before() {
			magDX[i] += 4 * unit * abs(v)
		}
	}
	e.compare(dx, func(i int) float64 { return magDX[i] + tiny })
	if !frozen {
		old := dw.before()
		e.compare(dw, func(i int) float64 { return (sumErr(n) + 3*unit) * (magDW[i] + abs(old[i])) })
	}
}

// normBackwardMagnitudes returns the error allowed for dx, whose sum A is of C
// products of three, and Σ |x·rms_inv·dy| for dw.
func normBackwardMagnitudes(x, w, dy, rms []float64) (dx, dw []float64) {
	c := len(w)
	dx, dw = make([]float64, len(x)), make([]float64, c)
	for r, s := range rms {
		var a float64
		for i := range c {
			a += abs(w[i] * x[r*c+i] * dy[r*c+i])
			dw[i] += abs(x[r*c+i] * s * dy[r*c+i])
		}
		for i := range c {
			dx[r*c+i] = 6*unit*abs(w[i]*dy[r*c+i]*s) + (sumErr(c)+10*unit)*abs(x[r*c+i])*s*s*s*a/float64(c)
		}
	}
	return dx, dw
}
