package ref

import (
	"fmt"

	"tezgah/op"
)

// Embedding is Out[n] = W[Tokens[n]].
func (r *Backend[T]) Embedding(a op.Embedding) error {
	w, out, c := r.float(a.W), r.float(a.Out), a.W.Cols()
	for n, id := range r.int32(a.Tokens) {
		if err := inVocabulary("token", n, id, a.W.Dims[0]); err != nil {
			return err
		}
		copy(out[n*c:(n+1)*c], w[int(id)*c:])
	}
	return nil
}

// EmbeddingBackward undoes Embedding: DW[Tokens[n]] += DOut[n].
func (r *Backend[T]) EmbeddingBackward(a op.EmbeddingBackward) error {
	dw, dout, c := r.float(a.DW), r.float(a.DOut), a.DW.Cols()
	for n, id := range r.int32(a.Tokens) {
		if err := inVocabulary("token", n, id, a.DW.Dims[0]); err != nil {
			return err
		}
		for i := range c {
			dw[int(id)*c+i] += dout[n*c+i]
		}
	}
	return nil
}

func inVocabulary(what string, row int, id int32, v int) error {
	if id < 0 || int(id) >= v {
		return fmt.Errorf("%s of row %d is %d, want 0 to %d", what, row, id, v-1)
	}
	return nil
}
