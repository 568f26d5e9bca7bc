package optest

import "math"

// Tolerances are computed, from these pieces.
//
// One float32 operation rounds by at most unit, relative to its result. Sums of
// n terms in any order are allowed sumErr(n) relative to the sum of the terms'
// magnitudes: the worst case is (n−1)·unit, and for n in the hundreds and more
// rounding errors of both signs make 8·√n·unit a bound that fails with
// probability below 1e−13 (Higham and Mary, "A New Approach to Probabilistic
// Rounding Error Analysis", 2019). Elementary functions are allowed what the
// WebGPU Shading Language specification allows them (its section on floating
// point accuracy), so that every conforming device can pass; the kernels of the
// CPU backend are several times better.
const (
	unit = 1.0 / (1 << 24) // half a unit in the last place of 1
	ulp  = 2 * unit
	// tiny is the smallest normal float32: devices may flush what is smaller.
	tiny = 0x1p-126
)

// sumErr is the relative error allowed for a sum of n products.
func sumErr(n int) float64 {
	return (math.Min(float64(n), 8*math.Sqrt(float64(n))) + 2) * unit
}

// expErr is the relative error allowed for exp(x): 3 + 2·|x| units in the last
// place.
func expErr(x float64) float64 { return (3 + 2*math.Abs(x)) * ulp }

// logErr is the absolute error allowed for log(x), x ≥ 1: 2^−21 up to 2, three
// units in the last place beyond.
func logErr(x float64) float64 { return 0x1p-21 + 3*ulp*math.Abs(math.Log(x)) }

func abs(x float64) float64 { return math.Abs(x) }

// wide converts to float64.
func wide(v []float32) []float64 {
	w := make([]float64, len(v))
	for i, x := range v {
		w[i] = float64(x)
	}
	return w
}
