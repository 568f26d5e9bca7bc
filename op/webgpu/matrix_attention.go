package webgpu

import (
	"strings"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// Attention on matrix units: matrix/attention*. It rounds queries, keys, values,
// the output's gradient and the weights to 16 bits where they enter a product;
// tensors in memory, sums and the softmax are float32.

// attentionPart is one of the kernels.
type attentionPart int

const (
	partForward attentionPart = iota
	partDQ
	partDKDV
	attentionParts
)

var (
	attentionNames   = [attentionParts]string{"attention_forward", "attention_dq", "attention_dkdv"}
	attentionKernels = [attentionParts]string{"matrix_attention_forward", "matrix_attention_dq", "matrix_attention_dkdv"}
)

var attentionSlots = [attentionParts][]gpu.Slot{
	partForward: slots("q k v doc_start", "out lse"),
	partDQ:      slots("q k v dout out lse doc_start", "dq stats"),
	partDKDV:    slots("q k v dout stats doc_start", "dk dv"),
}

// slots lists bindings that a kernel reads, bindings that it writes, and a uniform.
func slots(in, out string) (list []gpu.Slot) {
	for _, name := range strings.Fields(in) {
		list = append(list, gpu.Slot{Name: name})
	}
	for _, name := range strings.Fields(out) {
		list = append(list, gpu.Slot{Name: name, Kind: gpu.ReadWrite})
	}
	return append(list, gpu.Slot{Name: "dims", Kind: gpu.UniformSlot})
}

// matrixAttends reports whether attention with heads of d, and a document mask or
// not, runs on the matrix units.
func (b *Backend) matrixAttends(d int, doc bool) bool {
	_, ok := b.matrix.fragments[b.matrix.rounding]
	if !ok {
		return false
	}
	for part := range attentionParts {
		if _, ok := b.firstAttentionTile(part, d); !ok {
			return false
		}
	}
	return b.attentionRight(attentionProbe{b.matrix.rounding, d, doc})
}

// matrixAttentionKernel finds a kernel.
func (b *Backend) matrixAttentionKernel(part attentionPart, t matrix.AttentionTile, d int, doc bool) *kernel {
	input := b.matrix.rounding
	v := variant{name: attentionKernels[part]}
	v.c = [10]int32{int32(d), bit(doc), bit(input == tensor.BF16), int32(t.Subgroups), int32(t.Own), int32(t.Other), int32(t.Strip), bit(t.Early), bit(t.Convert)}
	k := b.kernel(v, nil)
	if k.module == nil {
		f := b.matrix.fragments[input]
		code, _ := matrix.Module(t.Kernel(attentionNames[part]), matrixInput(input)) // embedded; a test reads them all
		k.module = &gpu.Module{Code: code, Entry: "main", Subgroup: f.Threads, Slots: attentionSlots[part],
			Constants: t.Constants(f, d, doc, b.dev.Info().Kind == gpu.Software)}
	}
	return k
}

// attentionCall is one part of an attention: whose rows the workgroups own, what a
// pair of rows costs, and the bindings before the sizes.
type attentionCall struct {
	part     attentionPart
	q, k     op.Tensor
	scale    float32
	doc      bool
	heads    int // that rows are owned in: query or key heads
	pairWork int // operations for each of D
	bind     func(*call)
}

// runAttention runs a part with a tile.
func (b *Backend) runAttention(a attentionCall, t matrix.AttentionTile) error {
	seqs, steps, d := a.q.Dims[0], a.q.Dims[1], a.q.Dims[3]
	k := b.matrixAttentionKernel(a.part, t, d, a.doc)
	rows := t.Rows(b.matrix.fragments[b.matrix.rounding])
	flops := float64(a.pairWork) * float64(rows) * float64(steps) * float64(d) // at most, of a workgroup
	return b.slices(seqs*a.heads*ceil(steps, rows), flops, func(first, n int) error {
		c := b.begin(k)
		a.bind(c)
		c.attentionDims(a.q, a.k, first, a.scale)
		return c.groups(n)
	})
}

// matrixAttention is Attention on the matrix units.
func (b *Backend) matrixAttention(a op.Attention) error {
	part := attentionCall{part: partForward, q: a.Q, k: a.K, scale: a.Scale, doc: a.DocStart.Ok(), heads: a.Q.Dims[2], pairWork: 4}
	part.bind = func(c *call) {
		c.in(a.Q)
		c.in(a.K)
		c.in(a.V)
		c.inOr(a.DocStart)
		c.out(a.Out)
		c.out(a.LSE)
	}
	return b.runAttention(part, b.attentionTileFor(part))
}

// matrixAttentionBackward is AttentionBackward on the matrix units: DQ, and on the
// way the pairs of LSE and delta, then DK and DV.
func (b *Backend) matrixAttentionBackward(a op.AttentionBackward) error {
	heads, kvHeads := a.Q.Dims[2], a.K.Dims[2]
	stats := uint64(8 * a.LSE.Len())
	part := attentionCall{part: partDQ, q: a.Q, k: a.K, scale: a.Scale, doc: a.DocStart.Ok(), heads: heads, pairWork: 6}
	operands := func(c *call) {
		c.in(a.Q)
		c.in(a.K)
		c.in(a.V)
		c.in(a.DOut)
	}
	part.bind = func(c *call) {
		operands(c)
		c.in(a.Out)
		c.in(a.LSE)
		c.inOr(a.DocStart)
		c.out(a.DQ)
		c.scratch(scratchStats, stats, true)
	}
	if err := b.runAttention(part, b.attentionTileFor(part)); err != nil {
		return err
	}
	part.part, part.heads, part.pairWork = partDKDV, kvHeads, 8*heads/kvHeads
	part.bind = func(c *call) {
		operands(c)
		c.scratch(scratchStats, stats, false)
		c.inOr(a.DocStart)
		c.out(a.DK)
		c.out(a.DV)
	}
	return b.runAttention(part, b.attentionTileFor(part))
}
