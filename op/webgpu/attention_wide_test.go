package webgpu

import (
	"math"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// TestAttentionOf16BitsWithoutUnits: attention in WGSL takes tensors of 16 bits too,
// and gives the bits that it gives on the same numbers in float32, rounded once.
func TestAttentionOf16BitsWithoutUnits(t *testing.T) {
	b := newBoard(t, gpu.Options{})
	b.matrix.rounding = tensor.F32 // no units
	const steps, h, kvh, d = 21, 4, 2, 12
	nq, nk := steps*h*d, steps*kvh*d
	draw := func(n int, stream uint64) []float32 {
		v := make([]float32, n)
		tensor.NewRNG(stream, 1).Normal(v, 0, 1)
		for i := range v {
			v[i] = tensor.FromBF16(tensor.ToBF16(v[i]))
		}
		return v
	}
	q, k, v, dout, out := draw(nq, 1), draw(nk, 2), draw(nk, 3), draw(nq, 4), draw(nq, 5)
	put := func(narrow bool, v []float32, heads int) op.Tensor {
		if !narrow {
			x := op.Of(b.buffer(tensor.F32, len(v)), 0, 1, steps, heads, d)
			op.WriteSlice(b.r, x, v)
			return x
		}
		x := op.Of(b.buffer(tensor.BF16, len(v)), 0, 1, steps, heads, d)
		w := make([]uint16, len(v))
		for i := range v {
			w[i] = tensor.ToBF16(v[i])
		}
		op.WriteSlice(b.r, x, w)
		return x
	}
	run := func(narrow bool) (res [5][]float32) {
		a := op.Attention{Q: put(narrow, q, h), K: put(narrow, k, kvh), V: put(narrow, v, kvh), Out: put(narrow, make([]float32, nq), h),
			LSE: op.Of(b.buffer(tensor.F32, h*steps), 0, 1, h, steps), Scale: 0.25}
		if err := b.Attention(a); err != nil {
			t.Fatal(err)
		}
		back := op.AttentionBackward{Q: a.Q, K: a.K, V: a.V, Out: put(narrow, out, h), LSE: a.LSE, DOut: put(narrow, dout, h), Scale: 0.25,
			Delta: op.Of(b.buffer(tensor.F32, h*steps), 0, 1, h, steps), DQ: put(false, make([]float32, nq), h),
			DK: put(false, make([]float32, nk), kvh), DV: put(narrow, make([]float32, nk), kvh)}
		if err := b.AttentionBackward(back); err != nil {
			t.Fatal(err)
		}
		for i, x := range []op.Tensor{a.Out, a.LSE, back.DQ, back.DK, back.DV} {
			if !is16(x) {
				res[i] = b.read(x)
				continue
			}
			w := make([]uint16, x.Len())
			if err := op.ReadSlice(b.r, w, x); err != nil {
				t.Fatal(err)
			}
			for _, n := range w {
				res[i] = append(res[i], tensor.FromBF16(n))
			}
		}
		return res
	}
	want, got := run(false), run(true)
	for i, name := range []string{"out", "lse", "dq", "dk", "dv"} {
		size := 0.0
		for j, w := range want[i] {
			if name == "out" || name == "dv" {
				w = tensor.FromBF16(tensor.ToBF16(w))
			}
			if got[i][j] != w {
				t.Fatalf("%s[%d] is %v, want %v", name, j, got[i][j], w)
			}
			size += math.Abs(float64(w))
		}
		if size == 0 {
			t.Errorf("%s is all zeros", name)
		}
	}
}
