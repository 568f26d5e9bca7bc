package kern

import (
	"fmt"
	"math"
	"testing"
)

// elementCase is an elementwise function with a float64 reference. ref gets the inputs at one index
// and returns the outputs and how far each may be off.
type elementCase struct {
	name    string
	in, out int
	scale   float64 // of the random inputs
	inPlace []int   // outputs that start as copies of the first inputs (out[i] = in[inPlace[i]])
	run     func(k Kernels, in, out [][]float32)
	ref     func(x []float64) (want, bound []float64)
}

const (
	u       = eps32
	expErr  = 1.3e-7 // relative error of exp
	tiniest = 1.2e-38
)

func one(want, bound float64) ([]float64, []float64) { return []float64{want}, []float64{bound} }

func sigma(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func silu64(x float64) float64 { return x * sigma(x) }

// gelu64 is ½x(1 + tanh z) written as x·σ(2z), because 1 + tanh z loses its digits below z = −5.
func gelu64(x float64) float64 {
	return x * sigma(2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))
}

// slope is a central difference: its own error is about 1e-9 for the functions here.
func slope(f func(float64) float64, x float64) float64 {
	const h = 1e-5
	return (f(x+h) - f(x-h)) / (2 * h)
}

// gatedForward and gatedBackward are the references of out = f(g)·u.
func gatedForward(f func(float64) float64) func(x []float64) ([]float64, []float64) {
	return func(x []float64) ([]float64, []float64) {
		want := f(x[0]) * x[1]
		steep := math.Abs(x[0]) * (1 + x[0]*x[0]) // the argument of σ is rounded, at worst like this
		return one(want, math.Abs(want)*(8*u+expErr+8*u*min(steep, 90))+tiniest*math.Abs(x[0]*x[1]))
	}
}

func gatedBackward(f func(float64) float64) func(x []float64) ([]float64, []float64) {
	return func(x []float64) ([]float64, []float64) {
		d, g, up := x[0], x[1], x[2]
		wantG, wantU := d*up*slope(f, g), d*f(g)
		steep := math.Abs(g) * (1 + g*g)
		return []float64{wantG, wantU}, []float64{
			math.Abs(d*up)*(20*u*(1+math.Abs(g))+1e-9+20*u*min(steep, 20)*math.Exp(-math.Abs(g))) + tiniest,
			math.Abs(wantU)*(8*u+expErr+8*u*min(steep, 90)) + tiniest*math.Abs(d*g),
		}
	}
}

var elementCases = []elementCase{
	{"Scale", 1, 1, 10, nil,
		func(k Kernels, in, out [][]float32) { k.Scale(out[0], in[0], 0.3) },
		func(x []float64) ([]float64, []float64) {
			w := x[0] * float64(float32(0.3))
			return one(w, u*math.Abs(w))
		}},
	{"Axpy", 2, 1, 10, []int{0},
		func(k Kernels, in, out [][]float32) { k.Axpy(out[0], -1.5, in[1]) },
		func(x []float64) ([]float64, []float64) {
			return one(x[0]-1.5*x[1], 2*u*(math.Abs(x[0])+1.5*math.Abs(x[1])))
		}},
	{"Add", 2, 1, 10, nil,
		func(k Kernels, in, out [][]float32) { k.Add(out[0], in[0], in[1]) },
		func(x []float64) ([]float64, []float64) { return one(x[0]+x[1], u*math.Abs(x[0]+x[1])) }},
	{"Mul", 2, 1, 10, nil,
		func(k Kernels, in, out [][]float32) { k.Mul(out[0], in[0], in[1]) },
		func(x []float64) ([]float64, []float64) { return one(x[0]*x[1], u*math.Abs(x[0]*x[1])) }},
	{"Exp", 1, 1, 40, nil,
		func(k Kernels, in, out [][]float32) { k.Exp(out[0], in[0]) },
		func(x []float64) ([]float64, []float64) {
			w := math.Exp(x[0])
			if w > math.MaxFloat32 {
				w = math.Inf(1)
			}
			return one(w, expErr*w+tiniest)
		}},
	{"ExpAffine", 1, 1, 5, nil,
		func(k Kernels, in, out [][]float32) { k.ExpAffine(out[0], in[0], 1.25, -2, 0.5) },
		func(x []float64) ([]float64, []float64) {
			e := 2 * math.Exp(x[0]-1.25)
			return one(0.5-e, e*(expErr+2*u+u*math.Abs(x[0]-1.25))+u*math.Abs(0.5-e))
		}},
	{"SumExp", 1, 1, 5, nil,
		func(k Kernels, in, out [][]float32) { k.SumExp(out[0], in[0], 0.125, 2) },
		func(x []float64) ([]float64, []float64) {
			e := math.Exp(x[0]*0.125 - 2)
			return one(e, e*(expErr+u*(math.Abs(x[0])*0.125+4)))
		}},
	{"SoftmaxGrad", 2, 1, 2, nil,
		func(k Kernels, in, out [][]float32) { k.SoftmaxGrad(out[0], in[0], in[1], 0.75, 0.125) },
		func(x []float64) ([]float64, []float64) {
			w := x[0] * (x[1] - 0.75) * 0.125
			return one(w, 3*u*math.Abs(w))
		}},
	{"SiluMul", 2, 1, 4, nil,
		func(k Kernels, in, out [][]float32) { k.SiluMul(out[0], in[0], in[1]) }, gatedForward(silu64)},
	{"GeluMul", 2, 1, 2, nil,
		func(k Kernels, in, out [][]float32) { k.GeluMul(out[0], in[0], in[1]) }, gatedForward(gelu64)},
	{"SiluMulBackward", 3, 2, 3, nil,
		func(k Kernels, in, out [][]float32) { k.SiluMulBackward(out[0], out[1], in[0], in[1], in[2]) },
		gatedBackward(silu64)},
	{"GeluMulBackward", 3, 2, 1.5, nil,
		func(k Kernels, in, out [][]float32) { k.GeluMulBackward(out[0], out[1], in[0], in[1], in[2]) },
		gatedBackward(gelu64)},
	{"AdamW", 4, 4, 1, []int{0, 1, 2, 3},
		func(k Kernels, _, out [][]float32) {
			for i, v := range out[3] {
				out[3][i] = v * v // a second moment is not negative
			}
			k.AdamW(out[0], out[1], out[2], out[3], adamwTest)
		}, adamwReference},
}

var adamwTest = AdamW{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Clip: 0.5, Bias1: 0.271, Bias2: 0.1426}

// adamwReference gets (w, g, m, √v); g stays as it is.
func adamwReference(x []float64) (want, bound []float64) {
	h := adamwTest
	f := func(v float32) float64 { return float64(v) }
	g := x[1] * f(h.Clip)
	v0 := float64(float32(x[3]) * float32(x[3]))
	m := f(h.Beta1)*x[2] + (1-f(h.Beta1))*g
	v := f(h.Beta2)*v0 + (1-f(h.Beta2))*g*g
	step := f(h.LR) * (m / f(h.Bias1)) / (math.Sqrt(v/f(h.Bias2)) + f(h.Eps))
	w := x[0] - step - f(h.LR)*f(h.WeightDecay)*x[0]
	size := math.Abs(f(h.Beta1)*x[2]) + (1-f(h.Beta1))*math.Abs(g)
	return []float64{w, x[1], m, v}, []float64{
		4*u*math.Abs(x[0]) + 12*u*math.Abs(step)*size/max(math.Abs(m), 1e-30), 0, 4 * u * size, 6 * u * v,
	}
}

func (c *elementCase) arrays(t *testing.T, n, off int, seed uint64) (in [][]float32, out []guard) {
	r := newRand(t, seed)
	for i := range c.in {
		in = append(in, randomAt(r, n, (off+i)%5, c.scale))
	}
	for o := range c.out {
		g := junk(n, (off+2*o)%7)
		if c.inPlace != nil {
			copy(g.s(), in[c.inPlace[o]])
		}
		out = append(out, g)
	}
	return in, out
}

func slices2(g []guard) (s [][]float32) {
	for _, x := range g {
		s = append(s, x.s())
	}
	return s
}

func TestElementwise(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, c := range elementCases {
			for _, n := range testLengths() {
				if n > 1000 && n != chunk+1 {
					continue
				}
				in, out := c.arrays(t, n, n, uint64(n))
				c.run(k, in, slices2(out))
				c.check(t, n, in, out)
			}
		}
	})
}

func (c *elementCase) check(t *testing.T, n int, in [][]float32, out []guard) {
	t.Helper()
	x := make([]float64, c.in)
	for i := range n {
		for j := range x {
			x[j] = float64(in[j][i])
		}
		want, bound := c.ref(x)
		for o := range out {
			if got := float64(out[o].s()[i]); !(math.Abs(got-want[o]) <= bound[o]) {
				within(t, fmt.Sprintf("%s, n %d, output %d, inputs %v", c.name, n, o, x), i, got, want[o], bound[o])
			}
		}
	}
	for _, g := range out {
		g.check(t, c.name)
	}
}

// TestElementwiseCuts wants the same bits from a slice computed whole and computed in pieces.
func TestElementwiseCuts(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		const n = 203
		for _, c := range elementCases {
			in, whole := c.arrays(t, n, 0, 3)
			c.run(k, in, slices2(whole))
			in, pieces := c.arrays(t, n, 1, 3)
			for lo, size := 0, 1; lo < n; size = size%37 + 5 {
				hi := min(n, lo+size)
				var a, b [][]float32
				for _, x := range in {
					a = append(a, x[lo:hi])
				}
				for _, x := range pieces {
					b = append(b, x.s()[lo:hi])
				}
				c.run(k, a, b)
				lo = hi
			}
			for o := range whole {
				sameBits(t, c.name+" in pieces", pieces[o].s(), whole[o].s())
			}
		}
	})
}

func TestExpSpecial(t *testing.T) {
	inf := math.Inf(1)
	x := []float32{nan32, posInf, negInf, 0, float32(math.Copysign(0, -1)), 1e30, -1e30, 88.7228, 88.73, 89, 1000,
		-87.3, -87.34, -88, -104, -1000, 1e-40, math.MaxFloat32, -math.MaxFloat32, 1, -1, 0.34657, 0.34658}
	eachLevel(t, func(t *testing.T, k Kernels) {
		got := make([]float32, len(x))
		k.Exp(got, x)
		for i, v := range x {
			want := math.Exp(float64(v))
			if want > math.MaxFloat32 {
				want = inf
			}
			within(t, fmt.Sprintf("exp(%g)", v), i, float64(got[i]), want, expErr*min(want, math.MaxFloat32)+tiniest)
			if v < -87.34 && got[i] != 0 {
				t.Errorf("exp(%g) is %g, want 0", v, got[i])
			}
		}
	})
}

func TestReductions(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, n := range testLengths() {
			r := newRand(t, uint64(n))
			a, b, c := randomAt(r, n, n%5, 3), randomAt(r, n, n%3, 1), randomAt(r, n, 1, 1)
			var dot, dotSize, dot3, dot3Size, sum, sumSize, sq float64
			largest := math.Inf(-1)
			for i := range n {
				x, y, z := float64(a[i]), float64(b[i]), float64(c[i])
				dot, dotSize = dot+x*y, dotSize+math.Abs(x*y)
				dot3, dot3Size = dot3+x*y*z, dot3Size+math.Abs(x*y*z)
				sum, sumSize, sq = sum+x, sumSize+math.Abs(x), sq+x*x
				largest = max(largest, x)
			}
			f := float64(n)
			within(t, "Dot", n, float64(k.Dot(a, b)), dot, (f+2)*u*dotSize)
			if n > 0 && n <= chunk {
				within(t, "dot3", n, float64(k.dot3(a, b, c)), dot3, (f+3)*u*dot3Size)
			}
			within(t, "Sum", n, k.Sum(a), sum, f*0x1p-52*sumSize)
			within(t, "Max", n, float64(k.Max(a)), largest, 0)
			got, bad := k.SumSq(a)
			within(t, "SumSq", n, got, sq, f*0x1p-52*sq)
			if bad != 0 {
				t.Fatalf("SumSq, n %d: %d elements are not finite, want 0", n, bad)
			}
		}
	})
}

// TestMaxNegative sees that lanes beyond the end do not count as zeros.
func TestMaxNegative(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for n := 1; n < 70; n++ {
			x := randomAt(newRand(t, 1), n, 0, 0)
			for i := range x {
				x[i] = -float32(i) - 5
			}
			x[0], x[n-1] = x[n-1], x[0] // the largest stands last
			if got := k.Max(x); got != -5 {
				t.Fatalf("n %d: got %g, want -5", n, got)
			}
			x[n/2] = nan32
			if n > 2 {
				if got := k.Max(x); got != -5 {
					t.Fatalf("n %d with a NaN: got %g, want -5", n, got)
				}
			}
		}
	})
}

func TestSumSqNonFinite(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, n := range []int{1, 7, 8, 9, 16, 31, 33, 100, chunk + 9} {
			r := newRand(t, uint64(n))
			x := randomAt(r, n, 1, 1)
			var want float64
			bad := 0
			for i := range x {
				switch r.IntN(4) {
				case 0:
					x[i] = []float32{nan32, posInf, negInf, math.Float32frombits(0xffbfffff)}[r.IntN(4)]
					bad++
				case 1:
					x[i] *= 1e30
				}
				if isFinite(x[i]) {
					want += float64(x[i]) * float64(x[i])
				}
			}
			got, gotBad := k.SumSq(x)
			within(t, "SumSq", n, got, want, float64(n)*0x1p-52*want)
			if gotBad != bad {
				t.Fatalf("n %d: %d elements are not finite, want %d", n, gotBad, bad)
			}
		}
	})
}

func TestSumExpSum(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, n := range testLengths() {
			if n > 1000 {
				continue
			}
			x := randomAt(newRand(t, uint64(n)), n, n%4, 3)
			dst := junk(n, n%3)
			var want float64
			for _, v := range x {
				want += math.Exp(float64(v)/2 - 1)
			}
			got := k.SumExp(dst.s(), x, 0.5, 1)
			within(t, "SumExp", n, float64(got), want, want*(expErr+u*(float64(n)+10)))
			dst.check(t, "SumExp")
		}
	})
}
