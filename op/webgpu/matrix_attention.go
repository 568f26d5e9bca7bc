package webgpu

import (
	"strings"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// Attention on matrix units: matrix/attention*. It reads queries, keys, values, the
// output and its gradient as 16-bit floats, converted before where they are not, and
// rounds the weights where they enter a product; sums and the softmax are float32.

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
	partDQ:      slots("q k v dout out lse doc_start angles", "dq stats"),
	partDKDV:    slots("q k v dout stats doc_start angles", "dk dv"),
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

// matrixAttends reports whether attention with heads of d, a document mask or not,
// and results of 16 bits or not runs on the matrix units.
func (b *Backend) matrixAttends(d int, doc, half bool) bool {
	_, ok := b.matrix.fragments[b.matrix.rounding]
	if !ok {
		return false
	}
	for part := range attentionParts {
		if _, ok := b.firstAttentionTile(part, d); !ok {
			return false
		}
	}
	return b.attentionRight(attentionProbe{b.matrix.rounding, d, doc, half})
}

// matrixAttentionKernel finds the kernel of a call with a tile.
func (b *Backend) matrixAttentionKernel(a attentionCall, t matrix.AttentionTile) *kernel {
	input, d := b.matrix.rounding, a.q.Dims[3]
	v := variant{name: attentionKernels[a.part]}
	v.c = [10]int32{int32(d), bit(a.doc), bit(input == tensor.BF16), int32(t.Subgroups), int32(t.Own), int32(t.Other), int32(t.Strip), bit(t.Early) | bit(t.Convert)<<1, bit(a.half) | bit(a.turned)<<1}
	k := b.kernel(v, nil)
	if k.module == nil {
		f := b.matrix.fragments[input]
		code, _ := matrix.Module(t.Kernel(attentionNames[a.part]), matrixInput(input)) // embedded; a test reads them all
		form := matrix.AttentionForm{D: d, Doc: a.doc, Lockstep: b.dev.Info().Kind == gpu.Software, Half: a.half, Turned: a.turned}
		k.module = &gpu.Module{Code: code, Entry: "main", Subgroup: f.Threads, Slots: attentionSlots[a.part], Constants: t.Constants(f, form)}
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
	half     bool // out, or dv and what is turned, in 16 bits
	turned   bool // dq and dk are turned back
	heads    int  // that rows are owned in: query or key heads
	pairWork int  // operations for each of D
	bind     func(*call)
}

// runAttention runs a part with a tile.
func (b *Backend) runAttention(a attentionCall, t matrix.AttentionTile) error {
	seqs, steps, d := a.q.Dims[0], a.q.Dims[1], a.q.Dims[3]
	k := b.matrixAttentionKernel(a, t)
	rows := t.Rows(b.matrix.fragments[b.matrix.rounding])
	flops := float64(a.pairWork) * float64(rows) * float64(steps) * float64(d) // at most, of a workgroup
	return b.slices(seqs*a.heads*ceil(steps, rows), flops, func(first, n int) error {
		c := b.begin(k)
		a.bind(c)
		c.attentionDims(a.q, a.k, first, a.scale)
		return c.groups(n)
	})
}

// attentionConverts reports whether tensors of attention are, or can be made, 16-bit
// floats. What is converted must find room in the ring of small operands.
func (b *Backend) attentionConverts(tensors ...op.Tensor) bool {
	for _, t := range tensors {
		if t.Type() != b.matrix.rounding && 2*uint64(t.Len()) >= largeOperand {
			return false
		}
	}
	return true
}

// attentionOperands are tensors (B, T, heads, D) as 16-bit floats, at most five.
func (b *Backend) attentionOperands(tensors ...op.Tensor) (o [5]operand, err error) {
	for i, t := range tensors {
		rows, cols := t.Dims[0]*t.Dims[1], t.Dims[2]*t.Dims[3]
		if o[i], err = b.operandOf(factor{t: t.Reshape(rows, cols), rows: rows, cols: cols}); err != nil {
			return o, err
		}
	}
	return o, nil
}

// matrixAttention is Attention on the matrix units.
func (b *Backend) matrixAttention(a op.Attention) error {
	in, err := b.attentionOperands(a.Q, a.K, a.V)
	if err != nil {
		return err
	}
	part := attentionCall{part: partForward, q: a.Q, k: a.K, scale: a.Scale, doc: a.DocStart.Ok(), half: is16(a.Out), heads: a.Q.Dims[2], pairWork: 4}
	part.bind = func(c *call) {
		for _, o := range in[:3] {
			c.reads(o)
		}
		c.inOr(a.DocStart)
		c.out(a.Out)
		c.out(a.LSE)
	}
	return b.runAttention(part, b.attentionTileFor(part))
}

// matrixAttentionBackward is AttentionBackward on the matrix units: DQ, and on the
// way the pairs of LSE and delta, then DK and DV. With a turn, DQ and DK go turned back
// to where that says.
func (b *Backend) matrixAttentionBackward(a op.AttentionBackward, turn op.RoPE) error {
	heads, kvHeads, dq, dk := a.Q.Dims[2], a.K.Dims[2], a.DQ, a.DK
	stats := uint64(8 * a.LSE.Len())
	in, err := b.attentionOperands(a.Q, a.K, a.V, a.DOut, a.Out)
	if err != nil {
		return err
	}
	part := attentionCall{part: partDQ, q: a.Q, k: a.K, scale: a.Scale, doc: a.DocStart.Ok(), heads: heads, pairWork: 6}
	if part.turned = turn.X.Ok(); part.turned {
		first, second := turn.Split()
		dq, dk, part.half = rotatedTo(first), rotatedTo(second), is16(a.DV)
	}
	part.bind = func(c *call) {
		for _, o := range in {
			c.reads(o)
		}
		c.in(a.LSE)
		c.inOr(a.DocStart)
		c.inOr(turn.Table)
		c.out(dq)
		c.scratch(scratchStats, stats, true)
	}
	if err := b.runAttention(part, b.attentionTileFor(part)); err != nil {
		return err
	}
	part.part, part.heads, part.pairWork, part.half = partDKDV, kvHeads, 8*heads/kvHeads, is16(a.DV)
	part.bind = func(c *call) {
		for _, o := range in[:4] {
			c.reads(o)
		}
		c.scratch(scratchStats, stats, false)
		c.inOr(a.DocStart)
		c.inOr(turn.Table)
		c.out(dk)
		c.out(a.DV)
	}
	return b.runAttention(part, b.attentionTileFor(part))
}
