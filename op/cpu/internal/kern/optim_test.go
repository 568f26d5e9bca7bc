package kern

import (
	"fmt"
	"math"
	"testing"
)

func TestAdamWNonFinite(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for n := 1; n < 40; n++ {
			r := newRand(t, uint64(n))
			w, g, m, v := randomAt(r, n, 1, 1), randomAt(r, n, 2, 1), make([]float32, n), make([]float32, n)
			bad := []float32{nan32, posInf, negInf}
			for i := range g {
				if i%3 == 1 {
					g[i] = bad[i/3%3]
				}
			}
			clean := append([]float32(nil), g...)
			for i := range clean {
				if !isFinite(clean[i]) {
					clean[i] = 0
				}
			}
			w2, m2, v2 := append([]float32(nil), w...), make([]float32, n), make([]float32, n)
			h, before := adamwTest, append([]float32(nil), g...)
			k.AdamW(w2, clean, m2, v2, h)
			h.ZeroNonFinite = true
			k.AdamW(w, g, m, v, h)
			sameBits(t, "w", w, w2)
			sameBits(t, "m", m, m2)
			sameBits(t, "v", v, v2)
			sameBits(t, "g", g, before)
		}
	})
}

// TestAdamWPropagates: without ZeroNonFinite a NaN gradient reaches its weight, and only that.
func TestAdamWPropagates(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		n := 37
		r := newRand(t, 2)
		w, g, m, v := randomAt(r, n, 1, 1), randomAt(r, n, 2, 1), make([]float32, n), make([]float32, n)
		g[11] = nan32
		k.AdamW(w, g, m, v, adamwTest)
		for i := range w {
			if isFinite(w[i]) == (i == 11) || isFinite(m[i]) == (i == 11) || isFinite(v[i]) == (i == 11) {
				t.Fatalf("element %d: w %g, m %g, v %g", i, w[i], m[i], v[i])
			}
		}
	})
}

// TestAdamWFlushes: moments that decay below the normal numbers become 0, and numbers computed
// afterwards may be subnormal again.
func TestAdamWFlushes(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, n := range []int{1, 8, 37} {
			w, g, m, v := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
			for i := range w {
				w[i], m[i], v[i] = 1, 1.2e-38, 1.2e-38
			}
			k.AdamW(w, g, m, v, adamwTest)
			sameBits(t, "m", m, make([]float32, n))
			sameBits(t, "v", v, make([]float32, n))
			tiny := []float32{1e-30}
			k.Scale(tiny, tiny, 1e-10)
			within(t, "1e-30 times 1e-10", 0, float64(tiny[0]), 1e-40, 1e-45)
		}
	})
}

// state8 is a tensor with 8-bit moments.
type state8 struct {
	w, g   []float32
	m8     []int8
	v8     []uint8
	ms, vs []float32
}

func newState8(t *testing.T, n int, seed uint64) *state8 {
	r := newRand(t, seed)
	s := &state8{randomAt(r, n, 1, 1), randomAt(r, n, 3, 0.1), make([]int8, n), make([]uint8, n),
		make([]float32, Blocks(n)), make([]float32, Blocks(n))}
	for i := range s.m8 {
		s.m8[i], s.v8[i] = int8(r.IntN(255)-127), uint8(r.IntN(256))
	}
	for b := range s.ms {
		s.ms[b], s.vs[b] = 1e-3*float32(b+1), 1e-3
	}
	return s
}

func (s *state8) step(k Kernels, h AdamW) { k.AdamW8(s.w, s.g, s.m8, s.v8, s.ms, s.vs, h) }

// TestAdamW8 compares one step with AdamW on the decoded moments: the weights must agree to
// rounding, the new codes must be one of the two neighbours of the exact value.
func TestAdamW8(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for _, n := range []int{1, 15, 16, 255, 256, 257, 1000} {
			s := newState8(t, n, uint64(n))
			w, g := append([]float32(nil), s.w...), append([]float32(nil), s.g...)
			m, v := make([]float32, n), make([]float32, n)
			for i := range m {
				root := float32(s.v8[i]) * s.vs[i/BlockSize]
				m[i], v[i] = float32(s.m8[i])*s.ms[i/BlockSize], root*root
			}
			s.step(k, adamwTest)
			Kernels{}.AdamW(w, g, m, v, adamwTest)
			sameBits(t, "g", s.g, g)
			for i := range w {
				within(t, fmt.Sprintf("w, n %d", n), i, float64(s.w[i]), float64(w[i]), 1e-6)
				ms, vs := float64(s.ms[i/BlockSize]), float64(s.vs[i/BlockSize])
				within(t, fmt.Sprintf("m, n %d", n), i, float64(s.m8[i])*ms, float64(m[i]), 1.001*ms)
				within(t, fmt.Sprintf("√v, n %d", n), i, float64(s.v8[i])*vs, math.Sqrt(float64(v[i])), 1.001*vs)
				if s.v8[i] == 0 && v[i] > 0 {
					t.Fatalf("n %d: v[%d] is %g and has code 0", n, i, v[i])
				}
			}
			checkScales(t, s, m, v)
		}
	})
}

// checkScales wants each block's largest moment at the end of its range.
func checkScales(t *testing.T, s *state8, m, v []float32) {
	t.Helper()
	for b := range s.ms {
		var maxM, maxV float64
		for i := b * BlockSize; i < min(len(m), (b+1)*BlockSize); i++ {
			maxM = max(maxM, math.Abs(float64(m[i])))
			maxV = max(maxV, math.Sqrt(float64(v[i])))
		}
		within(t, "scale of m", b, float64(s.ms[b])*127, maxM, 1e-5*maxM)
		within(t, "scale of √v", b, float64(s.vs[b])*255, maxV, 1e-5*maxV)
	}
}

// TestAdamW8ZeroBlock: nothing comes from nothing, and a block wakes up when its gradient does.
func TestAdamW8ZeroBlock(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		s := &state8{make([]float32, 512), make([]float32, 512), make([]int8, 512), make([]uint8, 512), make([]float32, 2), make([]float32, 2)}
		for i := range s.w {
			s.w[i] = 1
		}
		s.g[300] = 1
		s.step(k, adamwTest)
		if s.ms[0] != 0 || s.vs[0] != 0 || s.m8[7] != 0 || s.v8[7] != 0 {
			t.Errorf("block of zeros: scales %g, %g, codes %d, %d, want 0", s.ms[0], s.vs[0], s.m8[7], s.v8[7])
		}
		if s.m8[300] != 127 || s.v8[300] != 255 || s.m8[301] != 0 {
			t.Errorf("block with one gradient: codes %d, %d and %d beside it, want 127, 255 and 0", s.m8[300], s.v8[300], s.m8[301])
		}
		decayed := 1 - adamwTest.LR*adamwTest.WeightDecay
		within(t, "weight without gradient", 0, float64(s.w[0]), float64(decayed), 2*u)
	})
}

// TestAdamW8Decays: moments without a gradient shrink as β1ᵗ and β2^(t/2) on average, which codes
// rounded to nearest would not.
func TestAdamW8Decays(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		const n, steps = 4096, 20
		s := newState8(t, n, 6)
		for i := range s.w {
			s.m8[i], s.v8[i] = 4, 16
			if i%BlockSize == 0 {
				s.m8[i], s.v8[i] = 127, 255
			}
		}
		for b := range s.ms {
			s.ms[b], s.vs[b] = 1, 1
		}
		h := adamwTest
		h.LR = 1e-4
		for range steps {
			clear(s.g)
			for i := 0; i < n; i += BlockSize { // keep the largest of the block where it is
				s.g[i] = 127 / h.Clip
			}
			s.step(k, h)
		}
		var m, root float64
		for i := range s.w {
			if i%BlockSize != 0 {
				m += float64(s.m8[i]) * float64(s.ms[i/BlockSize])
				root += float64(s.v8[i]) * float64(s.vs[i/BlockSize])
			}
		}
		count := float64(n - n/BlockSize)
		within(t, "mean m", 0, m/count, 4*math.Pow(0.9, steps), 0.05)
		within(t, "mean √v", 0, root/count, 16*math.Pow(0.95, steps/2.0), 0.4)
	})
}

func TestAdamW8ChecksScales(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("one scale for 257 weights did not panic")
		}
	}()
	s := newState8(t, 257, 1)
	Kernels{}.AdamW8(s.w, s.g, s.m8, s.v8, s.ms[:1], s.vs, adamwTest)
}
