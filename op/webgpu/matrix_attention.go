package webgpu

import (
	"strings"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// Attention on matrix units: matrix/attention*.glsl. It rounds queries, keys,
// values, the output's gradient and the weights to 16 bits where they enter a
// product; tensors in memory, sums and the softmax are float32.

// attentionPart is one of the kernels.
type attentionPart int

const (
	partForward attentionPart = iota
	partDQ
	partDKDV
	attentionParts
)

var attentionNames = [attentionParts]string{"attention_forward", "attention_dq", "attention_dkdv"}

// attentionTiles are the tiles to choose from, best first (measured on an NVIDIA
// H200 with heads of 64).
var attentionTiles = [attentionParts][]matrix.AttentionTile{
	partForward: {
		{Subgroups: 4, Own: 1, Other: 64, Strip: 64, Early: true, Convert: true},
		{Subgroups: 4, Own: 1, Other: 64, Strip: 64, Early: true},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 32},
		{Subgroups: 2, Own: 1, Other: 16, Strip: 16},
	},
	partDQ: {
		{Subgroups: 4, Own: 1, Other: 64, Strip: 32, Convert: true},
		{Subgroups: 4, Own: 1, Other: 64, Strip: 32},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 32},
		{Subgroups: 2, Own: 1, Other: 16, Strip: 16},
	},
	partDKDV: {
		{Subgroups: 4, Own: 1, Other: 64, Strip: 32, Convert: true},
		{Subgroups: 4, Own: 1, Other: 64, Strip: 32},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 32},
		{Subgroups: 2, Own: 1, Other: 16, Strip: 16},
	},
}

// attentionMemory is the most workgroup memory that a tile may take: more was seen
// to lose a device that announced it.
const attentionMemory = 48 << 10

// matrixAttentionTile chooses a tile for heads of d; !ok where there is none, or
// products must not round.
func (b *Backend) matrixAttentionTile(part attentionPart, d int) (t matrix.AttentionTile, ok bool) {
	f, ok := b.matrix.fragments[b.matrix.rounding]
	if !ok {
		return t, false
	}
	if fixed := b.matrix.attention[part]; fixed != nil {
		return *fixed, true
	}
	l, tiles := b.dev.Limits(), attentionTiles[part]
	if b.dev.Info().Kind == gpu.Software {
		tiles = tiles[len(tiles)-1:] // the least to compile
	}
	for _, t := range tiles {
		if (!t.Convert || b.dev.Info().Matrix2) && t.Fits(f, d, min(l.Invocations, l.WorkgroupSizeX), min(l.WorkgroupMemory, attentionMemory)) {
			return t, true
		}
	}
	return t, false
}

// matrixAttends reports whether attention with heads of d runs on the matrix units.
func (b *Backend) matrixAttends(d int) bool {
	for part := range attentionParts {
		if _, ok := b.matrixAttentionTile(part, d); !ok {
			return false
		}
	}
	return true
}

// matrixAttentionKernel finds a kernel and its tile. It reads the first six
// bindings (the forward pass four), writes the others, and ends with the sizes.
func (b *Backend) matrixAttentionKernel(part attentionPart, d int, doc bool) (*kernel, matrix.AttentionTile) {
	t, _ := b.matrixAttentionTile(part, d)
	input := b.matrix.rounding
	v := variant{name: "matrix_" + attentionNames[part]}
	v.c = [10]int32{int32(d), bit(doc), bit(input == tensor.BF16), int32(t.Subgroups), int32(t.Own), int32(t.Other), int32(t.Strip), bit(t.Early), bit(t.Convert)}
	k := b.kernel(v, nil)
	if k.module == nil {
		f := b.matrix.fragments[input]
		code, _ := matrix.Module(t.Kernel(attentionNames[part]), matrixInput(input)) // embedded; a test reads them all
		k.module = &gpu.Module{Code: code, Entry: "main", Subgroup: f.Threads, Constants: t.Constants(f, d, doc, b.dev.Info().Kind == gpu.Software), Slots: attentionSlots[part]}
	}
	return k, t
}

var attentionSlots = [attentionParts][]gpu.Slot{
	partForward: slots("q k v doc_start", "out lse"),
	partDQ:      slots("q k v dout stats doc_start", "dq"),
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

// matrixAttention is Attention on the matrix units.
func (b *Backend) matrixAttention(a op.Attention) error {
	dims := a.Q.Dims
	k, tile := b.matrixAttentionKernel(partForward, dims[3], a.DocStart.Ok())
	rows := tile.Rows(b.matrix.fragments[b.matrix.rounding])
	flops := 4 * float64(rows) * float64(dims[1]) * float64(dims[3]) // at most, of a workgroup
	return b.slices(dims[0]*dims[2]*ceil(dims[1], rows), flops, func(first, n int) error {
		c := b.begin(k)
		c.in(a.Q)
		c.in(a.K)
		c.in(a.V)
		c.inOr(a.DocStart)
		c.out(a.Out)
		c.out(a.LSE)
		c.attentionDims(a.Q, a.K, first, a.Scale)
		return c.groups(n)
	})
}

// matrixAttentionBackward gives DQ, or DK and DV, from the pairs of LSE and delta
// in scratch memory.
func (b *Backend) matrixAttentionBackward(a op.AttentionBackward, part attentionPart, stats uint64) error {
	dims, kvh := a.Q.Dims, a.K.Dims[2]
	k, tile := b.matrixAttentionKernel(part, dims[3], a.DocStart.Ok())
	rows := tile.Rows(b.matrix.fragments[b.matrix.rounding])
	heads, flops := dims[2], 6*float64(rows)*float64(dims[1])*float64(dims[3])
	if part == partDKDV {
		heads, flops = kvh, flops*8/6*float64(dims[2]/kvh)
	}
	return b.slices(dims[0]*heads*ceil(dims[1], rows), flops, func(first, n int) error {
		c := b.begin(k)
		c.in(a.Q)
		c.in(a.K)
		c.in(a.V)
		c.in(a.DOut)
		c.scratch(scratchStats, stats, false)
		c.inOr(a.DocStart)
		if part == partDQ {
			c.out(a.DQ)
		} else {
			c.out(a.DK)
			c.out(a.DV)
		}
		c.attentionDims(a.Q, a.K, first, a.Scale)
		return c.groups(n)
	})
}
