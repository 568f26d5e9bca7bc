package webgpu

import (
	"math"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// TestEmbeddingOutsideTheTable: a row whose id is not in the table is NaN, and its
// neighbours are right, in rows of whole vectors and others.
func TestEmbeddingOutsideTheTable(t *testing.T) {
	b := open(t, gpu.Options{}, Options{})
	defer b.Close()
	r := op.NewRunner(b)
	alloc := func(typ tensor.DType, dims ...int) op.Tensor {
		x := op.Of(nil, 0, dims...)
		buf, err := b.Alloc("x", typ, x.Len())
		if err != nil {
			t.Fatal(err)
		}
		x.Buf = buf
		return x
	}
	const V = 5
	ids := []int32{4, -1, 2, V, math.MaxInt32, 0, math.MinInt32}
	for _, c := range []int{7, 12} {
		tokens, w, out := alloc(tensor.I32, len(ids)), alloc(tensor.F32, V, c), alloc(tensor.F32, len(ids), c)
		table, got := make([]float32, V*c), make([]float32, len(ids)*c)
		for i := range table {
			table[i] = float32(i + 1)
		}
		op.WriteSlice(r, tokens, ids)
		op.WriteSlice(r, w, table)
		r.Embedding(op.Embedding{Tokens: tokens, W: w, Out: out})
		if err := op.ReadSlice(r, got, out); err != nil {
			t.Fatal(err)
		}
		for i, x := range got {
			id := ids[i/c]
			inside := id >= 0 && id < V
			if inside && x != table[int(id)*c+i%c] || !inside && x == x {
				t.Errorf("C %d: channel %d of id %d is %v", c, i%c, id, x)
			}
		}
	}
}
