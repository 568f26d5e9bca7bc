package webgpu

import "tezgah/op"

// Embedding is Out[n] = W[Tokens[n]].
func (b *Backend) Embedding(a op.Embedding) error {
	name := "embedding_forward"
	if isHalf(a.W) {
		name = "embedding_forward_w16"
	}
	c := b.begin(b.plain(name))
	c.in(a.Tokens)
	c.in(a.W)
	c.out(a.Out)
	n := a.Out.Len()
	c.words(uint32(a.Out.Dims[0]), uint32(a.W.Cols()), uint32(a.W.Dims[0]))
	return c.threads(n)
}

// EmbeddingBackward is DW[Tokens[n]] += DOut[n], in order of n.
func (b *Backend) EmbeddingBackward(a op.EmbeddingBackward) error {
	c := b.begin(b.plain("embedding_backward"))
	c.in(a.Tokens)
	c.in(a.DOut)
	c.out(a.DW)
	n, cols := a.DOut.Dims[0], a.DW.Cols()
	c.words(uint32(n), uint32(cols), uint32(a.DW.Dims[0]))
	return c.groups(n * ((cols + 255) / 256))
}
