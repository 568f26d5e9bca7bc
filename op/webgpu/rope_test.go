package webgpu

import (
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// TestRoPEOfTwoTensors counts kernels: one for two tensors where the form for whole
// vectors does both, else one each. That they are right is the suite's to see.
func TestRoPEOfTwoTensors(t *testing.T) {
	b := open(t, gpu.Options{}, Options{})
	defer b.Close()
	if ok, err := b.StartTiming(); err != nil || !ok {
		t.Skip("no timestamps: kernels are not counted")
	}
	alloc := func(typ tensor.DType, dims ...int) op.Tensor {
		x := op.Of(nil, 0, dims...)
		buf, err := b.Alloc("x", typ, x.Len())
		if err != nil {
			t.Fatal(err)
		}
		x.Buf = buf
		return x
	}
	const B, T, H, KVH = 2, 5, 6, 3
	for _, c := range []struct {
		name      string
		d, want   int
		out, out2 tensor.DType
	}{
		{"in place", 16, 1, tensor.F32, tensor.F32},
		{"to 16 bits", 16, 1, tensor.BF16, tensor.BF16},
		{"to two types", 16, 2, tensor.F32, tensor.BF16},
		{"heads of odd halves", 6, 2, tensor.BF16, tensor.BF16},
	} {
		a := op.RoPE{X: alloc(tensor.F32, B, T, H, c.d), X2: alloc(tensor.F32, B, T, KVH, c.d), Table: alloc(tensor.F32, T, c.d)}
		if c.out != tensor.F32 {
			a.Out = alloc(c.out, B, T, H, c.d)
		}
		if c.out2 != tensor.F32 {
			a.Out2 = alloc(c.out2, B, T, KVH, c.d)
		}
		before := b.Started()
		if err := b.RoPE(a); err != nil {
			t.Fatal(err)
		}
		if n := b.Started() - before; n != c.want {
			t.Errorf("%s: %d kernels, want %d", c.name, n, c.want)
		}
	}
	if _, err := b.StopTiming(); err != nil {
		t.Fatal(err)
	}
}
