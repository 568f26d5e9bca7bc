package kern

import (
	"fmt"
	"math"
	"testing"
)

// rmsNorm64 is the forward pass in float64.
func rmsNorm64(x, w []float64, eps float64) (y []float64, rmsInv float64) {
	var sq float64
	for _, v := range x {
		sq += v * v
	}
	rmsInv = 1 / math.Sqrt(sq/float64(len(x))+eps)
	for i, v := range x {
		y = append(y, v*rmsInv*w[i])
	}
	return y, rmsInv
}

func to64(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func dot64(a, b []float64) (s float64) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func TestRMSNorm(t *testing.T) {
	const eps = 1e-5
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, n := range []int{1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 65, 100, 512, 770, chunk + 3} {
			for _, scale := range []float64{1, 1e-3, 1e4} {
				r := newRand(t, uint64(n))
				x, w := randomAt(r, n, 1, scale), randomAt(r, n, 2, 1)
				y := junk(n, 3)
				inv := k.RMSNorm(y.s(), x, w, eps)
				want, wantInv := rmsNorm64(to64(x), to64(w), eps)
				rel := u * (float64(n)/4 + 8) // the sum has at least 4 lanes or is in float64
				within(t, "rms_inv", n, float64(inv), wantInv, rel*wantInv)
				for i := range want {
					within(t, fmt.Sprintf("RMSNorm, C %d", n), i, float64(y.s()[i]), want[i], rel*math.Abs(want[i]))
				}
				y.check(t, "RMSNorm")
			}
		}
	})
}

// TestRMSNormBackward takes central differences of Σ dy·y in float64 as its reference.
func TestRMSNormBackward(t *testing.T) {
	const eps = 1e-5
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, n := range []int{1, 2, 5, 8, 13, 16, 17, 33, 63, 100} {
			for _, add := range []bool{false, true} {
				testRMSNormBackward(t, k, n, eps, add)
			}
		}
	})
}

func testRMSNormBackward(t *testing.T, k Kernels, n int, eps float64, add bool) {
	r := newRand(t, uint64(n))
	x, w, dy := randomAt(r, n, 1, 1), randomAt(r, n, 2, 1), randomAt(r, n, 3, 1)
	x64, w64, dy64 := to64(x), to64(w), to64(dy)
	objective := func() float64 {
		y, _ := rmsNorm64(x64, w64, eps)
		return dot64(y, dy64)
	}
	diff := func(v *float64) float64 {
		const h = 1e-6
		old := *v
		*v = old + h
		up := objective()
		*v = old - h
		down := objective()
		*v = old
		return (up - down) / (2 * h)
	}
	dx, dw := junk(n, 1), junk(n, 2)
	oldX, oldW := randomAt(r, n, 0, 1), randomAt(r, n, 0, 1)
	copy(dw.s(), oldW)
	if add {
		copy(dx.s(), oldX)
	} else {
		clear(oldX)
	}
	_, inv := rmsNorm64(x64, w64, eps)
	k.RMSNormBackward(dx.s(), dw.s(), dy, x, w, float32(inv), add)
	for i := range n {
		size := inv * (1 + math.Abs(x64[i])*inv) * 4 * math.Sqrt(float64(n)) * (1 + inv)
		within(t, fmt.Sprintf("dx, C %d, add %v", n, add), i, float64(dx.s()[i]), float64(oldX[i])+diff(&x64[i]), 1e-7+40*u*size)
		within(t, fmt.Sprintf("dw, C %d", n), i, float64(dw.s()[i]), float64(oldW[i])+diff(&w64[i]), 1e-7+40*u*size)
	}
	dx.check(t, "dx")
	dw.check(t, "dw")

	only := junk(n, 1)
	copy(only.s(), oldX)
	k.RMSNormBackward(only.s(), nil, dy, x, w, float32(inv), add)
	for i, v := range only.s() {
		if v != dx.s()[i] {
			t.Errorf("C %d, add %v: dx[%d] is %v without dw and %v with it", n, add, i, v, dx.s()[i])
		}
	}
	only.check(t, "dx alone")
}

func TestRope(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, half := range []int{1, 2, 3, 8, 15, 16, 17, 32, 40} {
			const heads = 3
			r := newRand(t, uint64(half))
			g := junk(2*half*heads, 3)
			x := g.s()
			copy(x, randomAt(r, len(x), 0, 1))
			old := append([]float32(nil), x...)
			cos, sin := make([]float32, half), make([]float32, half)
			for i := range cos {
				a := r.Float64() * 7
				cos[i], sin[i] = float32(math.Cos(a)), float32(math.Sin(a))
			}
			k.Rope(x, cos, sin, false)
			for h := range heads {
				for i := range half {
					p, q := h*2*half+i, h*2*half+half+i
					a, b, c, s := float64(old[p]), float64(old[q]), float64(cos[i]), float64(sin[i])
					bound := 3 * u * (math.Abs(a) + math.Abs(b))
					within(t, "rope", p, float64(x[p]), a*c-b*s, bound)
					within(t, "rope", q, float64(x[q]), b*c+a*s, bound)
				}
			}
			k.Rope(x, cos, sin, true)
			for i, v := range x {
				within(t, "rope there and back", i, float64(v), float64(old[i]), 20*u)
			}
			g.check(t, "rope")
		}
		k.Rope([]float32{1, 2, 3}, nil, nil, false)
	})
}

// crossEntropy64 is the loss in float64.
func crossEntropy64(l []float64, target int, alpha, beta float64) float64 {
	m, sum, mean := math.Inf(-1), 0.0, 0.0
	for _, v := range l {
		m = max(m, v)
	}
	for _, v := range l {
		sum += math.Exp(v - m)
		mean += v / float64(len(l))
	}
	lse := m + math.Log(sum)
	return lse - (1-alpha)*l[target] - alpha*mean + beta*lse*lse
}

func TestCrossEntropy(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, v := range []int{1, 2, 7, 8, 17, 33, 64, 257} {
			for _, ce := range []CrossEntropy{{}, {Smoothing: 0.1}, {ZLoss: 1e-2}, {Smoothing: 0.2, ZLoss: 1e-3}} {
				testCrossEntropy(t, k, ce, v)
			}
		}
	})
}

func testCrossEntropy(t *testing.T, k Kernels, ce CrossEntropy, v int) {
	const scale = 0.25
	r := newRand(t, uint64(v))
	g := junk(v, 1)
	l := g.s()
	copy(l, randomAt(r, v, 0, 3))
	l64, target := to64(l), r.IntN(v)
	alpha, beta := float64(ce.Smoothing), float64(ce.ZLoss)
	want := crossEntropy64(l64, target, alpha, beta)
	bound := u * (40 + float64(v)/4)
	within(t, "loss", v, float64(ce.Loss(k, l, target)), want, bound)
	within(t, "loss with gradient", v, float64(ce.LossGrad(k, l, target, scale)), want, bound)
	for i := range l {
		f := func(x float64) float64 {
			old := l64[i]
			l64[i] = x
			defer func() { l64[i] = old }()
			return crossEntropy64(l64, target, alpha, beta)
		}
		within(t, fmt.Sprintf("dl, V %d, α %g, β %g", v, alpha, beta), i, float64(l[i]), scale*slope(f, l64[i]), 1e-9+bound)
	}
	g.check(t, "cross-entropy")
}

func TestLogSumExpExtremes(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, c := range []struct {
			l    []float32
			want float64
		}{
			{nil, math.Inf(-1)}, {[]float32{5}, 5}, {[]float32{3e38, 3e38}, 3e38}, {[]float32{-3e38, 0}, 0},
			{[]float32{negInf, 1}, 1}, {[]float32{nan32, 1}, math.NaN()}, {[]float32{1, posInf}, math.NaN()},
			{[]float32{1000, 1000}, 1000 + math.Ln2},
		} {
			got, _ := k.LogSumExp(c.l)
			within(t, fmt.Sprintf("LogSumExp(%v)", c.l), 0, float64(got), float64(float32(c.want)), 1e-4)
		}
	})
}

func TestSoftmaxOfLongRow(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		n := 2*chunk + 5
		x := randomAt(newRand(t, 5), n, 0, 2)
		lse, _ := k.LogSumExp(x)
		k.SumExp(x, x, 1, lse)
		within(t, "sum of probabilities", 0, k.Sum(x), 1, 2e-5)
	})
}
