package cpu

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

type embedTask struct {
	tokens []int32
	w      []float32
	w16    []uint16
	out    []float32
	c      int
}

func (t *embedTask) do(b *Backend, _, lo, hi int) {
	for n := lo; n < hi; n++ {
		dst, at := t.out[n*t.c:(n+1)*t.c], int(t.tokens[n])*t.c
		if t.w16 != nil {
			b.k.F16ToF32(dst, t.w16[at:at+t.c])
		} else {
			copy(dst, t.w[at:])
		}
	}
}

// Embedding is Out[n] = W[Tokens[n]].
func (b *Backend) Embedding(a op.Embedding) error {
	t := &b.tasks.embed
	t.tokens, t.out, t.c = ints(a.Tokens), floats(a.Out), a.W.Cols()
	if err := inRange("token", t.tokens, a.W.Dims[0]); err != nil {
		return err
	}
	if a.W.Type() == tensor.F16 {
		t.w16 = halves(a.W)
	} else {
		t.w = floats(a.W)
	}
	b.each(len(t.tokens), rowBlock(t.c), t)
	*t = embedTask{}
	return nil
}

// embedColumns is how many columns of the table one piece owns.
const embedColumns = 64

type embedBackTask struct {
	tokens   []int32
	dout, dw []float32
	c        int
}

// do adds columns [lo, hi) of every row, in the order of the rows.
func (t *embedBackTask) do(b *Backend, _, lo, hi int) {
	for n, id := range t.tokens {
		dst, src := t.dw[int(id)*t.c:], t.dout[n*t.c:]
		b.k.Add(dst[lo:hi], dst[lo:hi], src[lo:hi])
	}
}

// EmbeddingBackward undoes Embedding: DW[Tokens[n]] += DOut[n]. Pieces own
// columns, so that a token that occurs often is no bottleneck and every element
// is summed in the order of n.
func (b *Backend) EmbeddingBackward(a op.EmbeddingBackward) error {
	t := &b.tasks.embedBack
	t.tokens, t.dout, t.dw, t.c = ints(a.Tokens), floats(a.DOut), floats(a.DW), a.DW.Cols()
	if err := inRange("token", t.tokens, a.DW.Dims[0]); err != nil {
		return err
	}
	b.each(t.c, embedColumns, t)
	*t = embedBackTask{}
	return nil
}

// inRange checks ids before they are used as indices.
func inRange(what string, ids []int32, v int) error {
	for n, id := range ids {
		if uint64(uint32(id)) >= uint64(v) {
			return fmt.Errorf("%s of row %d is %d, want 0 to %d", what, n, id, v-1)
		}
	}
	return nil
}
