package webgpu

import "tezgah/op"

// embeddingSteps is how many vec4s a thread of embedding_forward_vec copies.
const embeddingSteps = 4

// Embedding is Out[n] = W[Tokens[n]].
func (b *Backend) Embedding(a op.Embedding) error {
	half, n := isHalf(a.W), a.Out.Len()
	var k *kernel
	groups := ceil(n, 256)
	switch {
	case a.W.Cols()%4 == 0:
		k = b.kernel(variant{name: "embedding_forward_vec", c: [10]int32{bit(half)}}, func() []define {
			return []define{flag("W16", half), u("STEPS", embeddingSteps)}
		})
		groups = ceil(n/4, 256*embeddingSteps)
	case half:
		k = b.plain("embedding_forward_w16")
	default:
		k = b.plain("embedding_forward")
	}
	c := b.begin(k)
	c.in(a.Tokens)
	c.in(a.W)
	c.out(a.Out)
	c.words(uint32(a.Out.Dims[0]), uint32(a.W.Cols()), uint32(a.W.Dims[0]))
	return c.groups(groups)
}

// How embedding_backward cuts its work; see the kernel. Every slice of the
// vocabulary reads all ids, so there are no more slices than fill a large GPU.
const (
	embeddingLanes     = 32
	embeddingSlices    = 128
	embeddingSliceRows = 32 // rows that make a slice worth a workgroup
)

// EmbeddingBackward is DW[Tokens[n]] += DOut[n], in an order that follows from
// the tokens.
func (b *Backend) EmbeddingBackward(a op.EmbeddingBackward) error {
	n, items := a.DOut.Dims[0], a.DW.Cols()
	vec := items%4 == 0
	if vec {
		items /= 4
	}
	v := variant{name: "embedding_backward"}
	v.c[0] = bit(vec)
	c := b.begin(b.kernel(v, func() []define { return []define{flag("VEC", vec), u("LANES", embeddingLanes)} }))
	c.in(a.Tokens)
	c.in(a.DOut)
	c.out(a.DW)
	slices := 1
	for slices < embeddingSlices && 2*slices*embeddingSliceRows <= n {
		slices *= 2
	}
	c.words(uint32(n), uint32(items), uint32(a.DW.Dims[0]), uint32(slices))
	return c.groups(ceil(items, embeddingLanes) * slices)
}
