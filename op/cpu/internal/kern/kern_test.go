package kern

import (
	"math"
	"math/rand/v2"
	"testing"
)

const eps32 = 1.0 / (1 << 24) // unit roundoff of float32

var nan32 = float32(math.NaN())

// eachLevel runs a test once for every level this machine has.
func eachLevel(t *testing.T, f func(t *testing.T, k Kernels)) {
	t.Helper()
	for _, l := range Available() {
		k, err := For(l)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(l.String(), func(t *testing.T) { f(t, k) })
	}
}

// testLengths has every vector remainder and both sides of the chunk limit.
func testLengths() []int {
	var ns []int
	for n := range 70 {
		ns = append(ns, n)
	}
	return append(ns, 127, 128, 129, 255, 256, 257, 1000, chunk-1, chunk, chunk+1, 2*chunk+77)
}

// guard surrounds a slice with sentinels, to see writes outside of it.
type guard struct {
	all []float32
	off int
	n   int
}

const sentinel = float32(-12345.75)

// junk returns a guarded slice of n NaNs that starts off elements after an aligned address.
func junk(n, off int) guard {
	g := guard{alignedFloats(n + off + 40), off + 16, n}
	for i := range g.all {
		g.all[i] = sentinel
	}
	for i := range g.s() {
		g.s()[i] = nan32
	}
	return g
}

func (g guard) s() []float32 { return g.all[g.off : g.off+g.n : g.off+g.n] }

func (g guard) check(t *testing.T, what string) {
	t.Helper()
	for i, v := range g.all {
		if (i < g.off || i >= g.off+g.n) && v != sentinel {
			t.Fatalf("%s: wrote %g at index %d of a slice of %d", what, v, i-g.off, g.n)
		}
	}
}

// randomAt returns n normal numbers times scale, off elements after an aligned address.
func randomAt(r *rand.Rand, n, off int, scale float64) []float32 {
	s := alignedFloats(n + off)[off:]
	for i := range s {
		s[i] = float32(r.NormFloat64() * scale)
	}
	return s
}

func newRand(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// within fails the test unless |got−want| ≤ bound, or both are the same NaN or infinity.
func within(t *testing.T, what string, i int, got, want, bound float64) {
	if got == want || math.Abs(got-want) <= bound || math.IsNaN(want) && math.IsNaN(got) {
		return
	}
	t.Helper()
	t.Fatalf("%s: element %d is %.9g, want %.9g, off by %.3g with %.3g allowed", what, i, got, want, got-want, bound)
}

// sameBits fails the test unless a and b are identical.
func sameBits(t *testing.T, what string, a, b []float32) {
	t.Helper()
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			t.Fatalf("%s: element %d is %g, want the same bits as %g", what, i, a[i], b[i])
		}
	}
}
