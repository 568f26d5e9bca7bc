package webgpu

import (
	"slices"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// TestSumsMakeOperandsFirst wants no product of a sum to stand between two
// conversions: each would wait for the other.
func TestSumsMakeOperandsFirst(t *testing.T) {
	b := matrixBackend(t)
	defer b.Close()
	input := b.Rounding()[len(b.Rounding())-1]
	if err := b.RoundProducts(input); err != nil {
		t.Fatal(err)
	}
	const m, n = 40, 36
	c := tensorOn(t, b, tensor.F32, m, n)
	var a op.MatMulSum
	for _, k := range []int{64, 33, 45} {
		a = append(a, op.MatMul{A: tensorOn(t, b, tensor.F32, m, k), B: tensorOn(t, b, tensor.F32, n, k), C: c, TransB: true})
	}
	if ok, err := b.StartTiming(); err != nil || !ok {
		t.Skipf("no clock: %v", err)
	}
	if err := b.MatMulSum(a); err != nil {
		t.Fatal(err)
	}
	times, err := b.StopTiming()
	if err != nil {
		t.Fatal(err)
	}
	conversions, products := 0, 0
	for _, x := range times {
		switch {
		case strings.HasPrefix(x.Kernel, matrixProductName):
			products++
		case products > 0:
			t.Errorf("%s runs after a product", x.Kernel)
		default:
			conversions++
		}
	}
	if conversions != 6 || products == 0 {
		t.Errorf("%d conversions and %d products, want 6 and some", conversions, products)
	}
}

// tensorOn allocates a tensor that is freed with the backend.
func tensorOn(t *testing.T, b op.Backend, typ tensor.DType, dims ...int) op.Tensor {
	t.Helper()
	x := op.Of(nil, 0, dims...)
	var err error
	if x.Buf, err = b.Alloc("test", typ, x.Len()); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestSumsTakeWhatScratchHolds counts the products of a sum whose operands are made
// together: no more than there are places for, of either size.
func TestSumsTakeWhatScratchHolds(t *testing.T) {
	b := pretend(t, gpu.Discrete, Options{Tune: TuneOff})
	if err := b.RoundProducts(tensor.BF16); err != nil {
		t.Fatal(err)
	}
	const wide = largeOperand / 2 / 4096
	for _, c := range []struct {
		name    string
		m, n, k int
		a, b    tensor.DType
		turned  bool
		items   int
		want    []int // products of each part
	}{
		{"small", 64, 96, 128, tensor.F32, tensor.F32, true, 3, []int{3}},
		{"many small", 64, 96, 128, tensor.F32, tensor.F32, true, 9, []int{4, 4, 1}},
		{"as they lie", 4096, wide, 4096, tensor.BF16, tensor.BF16, false, 4, []int{4}},
		{"large weights", 4096, wide, 4096, tensor.BF16, tensor.F32, true, 4, []int{3, 1}},
		{"large both", wide, wide, 4096, tensor.F32, tensor.F32, true, 3, []int{1, 1, 1}},
		{"large weights, padded", 4096, wide, 4096 + 2, tensor.BF16, tensor.BF16, true, 4, []int{3, 1}},
	} {
		h, err := b.Rehearse()
		if err != nil {
			t.Fatal(err)
		}
		r := h.(*Backend)
		sum := make(op.MatMulSum, c.items)
		for i := range sum {
			sum[i] = op.MatMul{A: tensorOn(t, r, c.a, c.m, c.k), B: tensorOn(t, r, c.b, c.k, c.n), C: tensorOn(t, r, tensor.F32, c.m, c.n)}
			if c.turned {
				sum[i].B, sum[i].TransB = sum[i].B.Reshape(c.n, c.k), true
			}
			sum[i].C = sum[0].C
		}
		var got []int
		for from := 0; from < len(sum); {
			n, err := r.matrixTerms(sum, from)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			got = append(got, n)
			from += n
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: parts of %v products, want %v", c.name, got, c.want)
		}
		r.Close()
	}
}

// TestSumOfShortAndLongTerms adds a product whose Bᵀ is read as it lies and one so long
// that it is turned first.
func TestSumOfShortAndLongTerms(t *testing.T) {
	b := matrixBackend(t)
	defer b.Close()
	input := b.Rounding()[len(b.Rounding())-1]
	if err := b.RoundProducts(input); err != nil {
		t.Fatal(err)
	}
	const m, n, short, long = 32, 36, 64, 8224
	fill := func(rows, cols int, value func(row int) float32) op.Tensor {
		x, v := tensorOn(t, b, input, rows, cols), make([]float32, rows*cols)
		for i := range v {
			v[i] = value(i / cols)
		}
		if err := b.Write(x, gpu.Bytes(rounded(v, input))); err != nil {
			t.Fatal(err)
		}
		return x
	}
	one, row := func(int) float32 { return 1 }, func(r int) float32 { return float32(r) }
	c := tensorOn(t, b, tensor.F32, m, n)
	for _, ks := range [][]int{{short, long}, {long, short, long}} {
		var a op.MatMulSum
		total := 0
		for _, k := range ks {
			a = append(a, op.MatMul{A: fill(m, k, one), B: fill(n, k, row), TransB: true, C: c})
			total += k
		}
		if err := b.MatMulSum(a); err != nil {
			t.Fatal(err)
		}
		got := make([]float32, m*n)
		if err := b.Read(gpu.Bytes(got), c); err != nil {
			t.Fatal(err)
		}
		for i, x := range got {
			if want := float32(total * (i % n)); x != want {
				t.Fatalf("K of %v: element %d is %v, want %v", ks, i, x, want)
			}
		}
	}
}
