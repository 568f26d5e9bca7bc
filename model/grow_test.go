package model

import (
	"math"
	"strings"
	"testing"

	"tezgah/tensor"
)

// TestGrow: old tokens keep their numbers, new ones have mean and deviation of
// the old, number by number; both layouts agree, and seeds matter.
func TestGrow(t *testing.T) {
	const C, oldV, newV = 3, 50, 4050
	means, stds := []float64{2, -1, 0}, []float64{0.5, 0.02, 3}
	emb := make([]float32, oldV*C)
	for c := range C {
		v := make([]float32, oldV)
		tensor.NewRNG(5, uint64(c)).Normal(v, 0, stds[c])
		for i := range v {
			emb[i*C+c] = v[i] + float32(means[c])
		}
	}
	got := must[[]float32](t)(GrowRows(emb, oldV, newV, C, 7))
	sameBits(t, "old rows", got[:oldV*C], emb)
	for c := range C {
		m0, s0 := stats(emb, c, C)
		m1, s1 := stats(got[oldV*C:], c, C)
		// 4,000 draws: five standard errors of a mean and of a deviation.
		if n := float64(newV - oldV); math.Abs(m1-m0) > 5*s0/math.Sqrt(n) || math.Abs(s1-s0) > 5*s0/math.Sqrt(2*n) {
			t.Errorf("number %d: new rows have mean %v and deviation %v, the old ones %v and %v", c, m1, s1, m0, s0)
		}
	}
	sameBits(t, "again", must[[]float32](t)(GrowRows(emb, oldV, newV, C, 7)), got)
	other := must[[]float32](t)(GrowRows(emb, oldV, newV, C, 8))
	if other[oldV*C] == got[oldV*C] {
		t.Error("another seed gives the same numbers")
	}
	cols := must[[]float32](t)(GrowCols(transposed(emb, oldV, C), oldV, newV, C, 7))
	sameBits(t, "columns", transposed(cols, C, newV), got)
	sameBits(t, "no growth", must[[]float32](t)(GrowRows(emb, oldV, oldV, C, 7)), emb)
}

// stats are mean and standard deviation of column c of (·, C).
func stats(w []float32, c, C int) (mean, std float64) {
	n := float64(len(w) / C)
	for i := c; i < len(w); i += C {
		mean += float64(w[i]) / n
	}
	for i := c; i < len(w); i += C {
		std += (float64(w[i]) - mean) * (float64(w[i]) - mean) / n
	}
	return mean, math.Sqrt(std)
}

func transposed(w []float32, rows, cols int) []float32 {
	out := make([]float32, len(w))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = w[i*cols+j]
		}
	}
	return out
}

func TestGrowErrors(t *testing.T) {
	for _, c := range []struct {
		n, oldV, newV, C int
		want             string
	}{
		{6, 3, 2, 2, "from 3 to 2 tokens"}, {5, 3, 4, 2, "got 5 numbers, want 6"}, {0, 0, 4, 2, "from 0 to 4"},
		{6, 3, 1 << 40, 2, "at most"}, {0, 3, 4, 0, "above 0"}, {6, -3, 4, -2, "above 0"},
	} {
		for _, f := range []func([]float32, int, int, int, uint64) ([]float32, error){GrowRows, GrowCols} {
			if _, err := f(make([]float32, c.n), c.oldV, c.newV, c.C, 1); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: got error %v", c, err)
			}
		}
	}
}
