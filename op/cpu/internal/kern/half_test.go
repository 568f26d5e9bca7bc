package kern

import (
	"math"
	"sort"
	"testing"
)

// halves lists every finite half-precision number from 0 up with its value, written from the format
// and not by the code under test.
func finiteHalves() []float64 {
	var v []float64
	for e := range 31 {
		for m := range 1024 {
			if e == 0 {
				v = append(v, float64(m)*0x1p-24)
			} else {
				v = append(v, math.Ldexp(1024+float64(m), e-25))
			}
		}
	}
	return v
}

// nearestHalf is the code of the half-precision number nearest to x ≥ 0, ties to the even code.
func nearestHalf(table []float64, x float64) uint16 {
	i := sort.SearchFloat64s(table, x)
	switch {
	case i == len(table):
		return uint16(i - 1)
	case i == 0 || table[i] == x:
		return uint16(i)
	}
	below, above := x-table[i-1], table[i]-x
	if below < above || below == above && (i-1)%2 == 0 {
		return uint16(i - 1)
	}
	return uint16(i)
}

func TestF16ToF32(t *testing.T) {
	table := finiteHalves()
	eachLevel(t, func(t *testing.T, k Kernels) {
		src := make([]uint16, 1<<16)
		for i := range src {
			src[i] = uint16(i)
		}
		dst := make([]float32, len(src))
		k.F16ToF32(dst, src)
		for i, v := range dst {
			want, mag := 0.0, i&0x7fff
			switch {
			case mag < len(table):
				want = table[mag]
			case mag == 0x7c00:
				want = math.Inf(1)
			default:
				want = math.NaN()
			}
			if i >= 0x8000 {
				want = -want
			}
			within(t, "f16 to f32", i, float64(v), want, 0)
		}
	})
}

func TestF32ToF16(t *testing.T) {
	table := finiteHalves()
	eachLevel(t, func(t *testing.T, k Kernels) {
		r := newRand(t, 4)
		src := []float32{0, 65504, 65519, 65520, 65536, 1e30, posInf, math.MaxFloat32, 1e-8, 0x1p-25, 0x1.000002p-25, 0x1p-24, 6.1e-5}
		for i := 0; i < len(table)-1; i += 7 { // exact values, ties, and their neighbours
			tie := float32((table[i] + table[i+1]) / 2)
			src = append(src, float32(table[i]), tie, math.Nextafter32(tie, 0), math.Nextafter32(tie, 1e9))
		}
		for range 20000 {
			src = append(src, float32(math.Exp(r.NormFloat64()*6)))
		}
		for _, v := range append([]float32(nil), src...) {
			src = append(src, -v)
		}
		dst := make([]uint16, len(src))
		k.F32ToF16(dst, src)
		for i, v := range src {
			want := nearestHalf(table, math.Abs(float64(v)))
			if math.Signbit(float64(v)) {
				want |= 0x8000
			}
			if dst[i] != want {
				t.Fatalf("f32 to f16 of %g: got %#04x, want %#04x", v, dst[i], want)
			}
		}
	})
}

func TestHalfNaNAndLengths(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		for n := range 50 {
			src, back := randomAt(newRand(t, 1), n, 1, 1), junk(n, 1)
			if n > 0 {
				src[n-1] = nan32
			}
			dst := make([]uint16, n+1)
			dst[n] = 0xbeef
			k.F32ToF16(dst[:n], src)
			k.F16ToF32(back.s(), dst[:n])
			for i, v := range back.s() {
				within(t, "there and back", i, float64(v), float64(src[i]), math.Abs(float64(src[i]))*0x1p-11+0x1p-25)
			}
			if dst[n] != 0xbeef {
				t.Fatalf("n %d: wrote beyond the end", n)
			}
			back.check(t, "f16 to f32")
		}
	})
}
