package checkpoint

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"tezgah/tensor"
)

// q8Values are the numbers that a reader gets from blocks of q8_0.
func q8Values(b []byte) (x []float32, scales []float32) {
	for ; len(b) >= 34; b = b[34:] {
		scale := tensor.FromF16(binary.LittleEndian.Uint16(b))
		scales = append(scales, scale)
		for _, q := range b[2:34] {
			x = append(x, float32(int8(q))*scale)
		}
	}
	return x, scales
}

// referenceQ8 is the value that a reader gets from llama.cpp's own quantizer:
// integers by the exact scale, multiplied by the one rounded to float16.
func referenceQ8(block []float32) []float32 {
	var largest float64
	for _, x := range block {
		largest = max(largest, math.Abs(float64(x)))
	}
	scale := float32(largest) / 127
	stored := tensor.FromF16(tensor.ToF16(scale))
	out := make([]float32, len(block))
	for i, x := range block {
		if scale > 0 {
			out[i] = float32(math.Round(float64(x*(1/scale)))) * stored
		}
	}
	return out
}

func squaredError(a, b []float32) (sum float64) {
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	return sum
}

// TestAppendQ8 checks the encoding on blocks whose answer is known.
func TestAppendQ8(t *testing.T) {
	x := make([]float32, 64+31) // the incomplete block is left out
	for i := range 32 {
		x[i] = 0.25 * float32(8*i-127) // multiples of a quarter: exact with the first scale
	}
	b := appendQ8(nil, x)
	if len(b) != 68 {
		t.Fatalf("%d bytes", len(b))
	}
	values, scales := q8Values(b)
	if scales[0] != 0.25 || !slices.Equal(values, x[:64]) {
		t.Errorf("scales %v, values %v", scales, values)
	}
	if !slices.Equal(b[34:], make([]byte, 34)) {
		t.Errorf("a block of zeros is %v", b[34:])
	}
}

// TestQ8Error: every value is the nearest multiple of the stored scale, and the
// squared error is below that of llama.cpp's quantizer, in no block above it.
// The ratio is that of weights of a usual size; where the scale is a subnormal
// float16 it is far lower, since there the rounding of the scale counts.
func TestQ8Error(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		size, most float64 // of the values; the ratio of the errors
	}{{0.02, 0.87}, {1, 0.87}, {3e4, 0.87}, {1e-4, 0.5}, {1e-6, 0.2}} {
		var ours, theirs float64
		for range 500 {
			x := make([]float32, q8Block)
			for i := range x {
				x[i] = float32(c.size * rng.NormFloat64())
			}
			values, scales := q8Values(appendQ8(nil, x))
			for i, v := range values {
				if d := math.Abs(float64(v) - float64(x[i])); d > 0.5001*float64(scales[0]) && math.Abs(float64(v)) < 126.9*float64(scales[0]) {
					t.Fatalf("%v became %v with scale %v", x[i], v, scales[0])
				}
			}
			a, b := squaredError(values, x), squaredError(referenceQ8(x), x)
			if a > b*(1+1e-5) {
				t.Fatalf("a block has squared error %v, llama.cpp's %v", a, b)
			}
			ours, theirs = ours+a, theirs+b
		}
		if ratio := ours / theirs; !(ratio < c.most) || ours == 0 {
			t.Errorf("values of size %v: squared error %.3f of llama.cpp's, want less than %v", c.size, ratio, c.most)
		} else {
			t.Logf("values of size %v: squared error %.3f of llama.cpp's", c.size, ratio)
		}
	}
}

// TestQ8Extremes: values that no scale fits become the nearest that it can say.
func TestQ8Extremes(t *testing.T) {
	for _, size := range []float32{math.MaxFloat32, 1e8, 1e-8, math.SmallestNonzeroFloat32} {
		x := make([]float32, q8Block)
		x[3], x[4] = size, -size
		values, scales := q8Values(appendQ8(nil, x))
		want := min(size, 127*65504)
		if !(scales[0] < math.MaxFloat32) || values[3] != -values[4] || values[3] > size && size > 1e-7 || values[3] < 0.99*want && size > 1e-7 || values[0] != 0 {
			t.Errorf("%v became %v with scale %v", size, values[3], scales[0])
		}
	}
}

func BenchmarkAppendQ8(b *testing.B) {
	x := make([]float32, 1<<16)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	var dst []byte
	b.SetBytes(4 << 16)
	for b.Loop() {
		dst = appendQ8(dst[:0], x)
	}
}
