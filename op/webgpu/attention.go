package webgpu

import (
	"math/bits"

	"tezgah/gpu"
	"tezgah/op"
)

// attentionShape holds the tile sizes of the forward kernel for a head size.
type attentionShape struct {
	rows, keys, chunk int
	shared            bool // q in workgroup memory instead of registers
}

// attentionTile chooses tiles that fit the device's workgroup memory. A thread
// keeps a query's q and output in registers up to D 96; larger heads read q
// from workgroup memory.
func (b *Backend) attentionTile(dq int) attentionShape {
	limit := b.dev.Limits().WorkgroupMemory - 256
	s := attentionShape{rows: 64, keys: 16, chunk: 8, shared: dq > 24}
	if b.dev.Info().Kind == gpu.Software {
		s.chunk = 4 // half as much to compile
	}
	for b.dev.Limits().Invocations < s.rows {
		s.rows /= 2
	}
	bytes := func() int {
		n := 2 * s.keys
		if s.shared {
			n += s.rows
		}
		return n * dq * 16
	}
	for bytes() > limit && s.keys > s.chunk {
		s.keys /= 2
	}
	for bytes() > limit && s.rows > 8 {
		s.rows /= 2
	}
	for bytes() > limit && s.chunk > 1 {
		s.chunk /= 2
		s.keys = s.chunk
	}
	return s
}

// headDefines are the constants of all attention kernels.
func headDefines(d int) []define { return []define{u("D", d), u("DQ", (d+3)/4)} }

// Attention computes the output and LSE by tiles.
func (b *Backend) Attention(a op.Attention) error {
	d, doc := a.Q.Dims[3], a.DocStart.Ok()
	if b.matrixAttends(d, doc, is16(a.Out)) && b.attentionConverts(a.Q, a.K, a.V) {
		return b.matrixAttention(a)
	}
	if any16(a.Q, a.K, a.V, a.Out) {
		return b.wideAttention(a)
	}
	dq := (d + 3) / 4
	s := b.attentionTile(dq)
	if b.forward != nil {
		s = *b.forward
	}
	v := variant{name: "attention_forward"}
	v.c = [10]int32{int32(d), bit(doc), int32(s.rows), int32(s.keys), int32(s.chunk)}
	k := b.kernel(v, func() []define {
		slots := 1
		if s.shared {
			slots = dq * s.rows
		}
		return append(headDefines(d), u("ROWS", s.rows), u("KEYS", s.keys), u("CHUNK", s.chunk),
			flag("HAS_DOC", doc), flag("Q_SHARED", s.shared), u("Q_SLOTS", slots))
	})
	dims := a.Q.Dims
	items := dims[0] * dims[2] * ((dims[1] + s.rows - 1) / s.rows)
	flops := 4 * float64(s.rows) * float64(dims[1]) * float64(d) // at most, of a workgroup
	return b.slices(items, flops, func(first, n int) error {
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

// attentionDims binds the sizes that forward and backward share.
func (c *call) attentionDims(q, k op.Tensor, first int, scale float32) {
	c.words(uint32(q.Dims[0]), uint32(q.Dims[1]), uint32(q.Dims[2]), uint32(k.Dims[2]), uint32(first), floatBits(scale))
}

// slices runs a 1-D kernel of n workgroups in parts that stay within the
// device's budget for a dispatch.
func (b *Backend) slices(n int, flopsEach float64, run func(first, n int) error) error {
	part := max(1, int(min(float64(n), b.tuner.budget/flopsEach)))
	for first := 0; first < n; first += part {
		if err := run(first, min(part, n-first)); err != nil {
			return err
		}
	}
	return nil
}

// backwardShape holds the tile sizes of the backward kernels.
type backwardShape struct {
	og, tg, si int
	du, ru     int // steps that are written out
}

// backwardTile chooses the largest tiles that fit the device's workgroup memory.
func (b *Backend) backwardTile(dq int) backwardShape {
	limit := b.dev.Limits().WorkgroupMemory - 256
	stride := dq | 1
	for _, s := range [][3]int{{8, 16, 2}, {8, 16, 1}, {4, 16, 1}, {4, 8, 1}, {2, 16, 1}, {2, 8, 1}, {1, 8, 1}, {1, 4, 1}} {
		og, tg, si := s[0], s[1], s[2]
		own, other := 4*og, tg*si
		if bytes := (2*(own+other)*stride + 2*other*og + other) * 16; bytes <= limit {
			return b.writtenOut(backwardShape{og: og, tg: tg, si: si}, dq)
		}
	}
	return b.writtenOut(backwardShape{og: 1, tg: 2, si: 1}, dq)
}

// writtenOut sets how far loops are written out: real GPUs gain, a software GPU
// compiles for seconds.
func (b *Backend) writtenOut(s backwardShape, dq int) backwardShape {
	s.du, s.ru = 1, 1
	if b.dev.Info().Kind == gpu.Software {
		return s
	}
	for s.du < 8 && dq%(2*s.du) == 0 {
		s.du *= 2
	}
	for s.ru < 8 && s.tg*s.si%(2*s.ru) == 0 {
		s.ru *= 2
	}
	return s
}

func (b *Backend) backwardKernel(name string, d int, doc bool) (*kernel, backwardShape) {
	dq := (d + 3) / 4
	s := b.backwardTile(dq)
	if b.backward != nil {
		s = *b.backward
	}
	v := variant{name: name}
	v.c = [10]int32{int32(d), bit(doc), int32(s.og), int32(s.tg), int32(s.si), int32(s.du), int32(s.ru)}
	return b.kernel(v, func() []define {
		dj := (dq + s.tg - 1) / s.tg
		return append(headDefines(d), u("STRIDE", dq|1), u("OG", s.og), u("TG", s.tg), u("SI", s.si),
			u("DJ", dj), u("SUMS", 4*dj), u("PAIRS", 4*s.si), u("DU", s.du), u("RU", s.ru), flag("HAS_DOC", doc))
	}), s
}

// AttentionBackward gives DQ, DK and DV. Delta is not used: the kernels read it
// together with LSE, as pairs in scratch memory.
func (b *Backend) AttentionBackward(a op.AttentionBackward) error {
	dims, kvh, doc := a.Q.Dims, a.K.Dims[2], a.DocStart.Ok()
	d, rows := dims[3], dims[0]*dims[1]*dims[2]
	if b.matrixAttends(d, doc, is16(a.DV)) && b.attentionConverts(a.Q, a.K, a.V, a.DOut, a.Out) {
		return b.matrixAttentionBackward(a, op.RoPE{})
	}
	if any16(a.Q, a.K, a.V, a.DOut, a.Out, a.DV) {
		return b.wideAttentionBackward(a)
	}
	stats := uint64(8 * rows)
	k, _ := b.backwardKernel("attention_backward_delta", d, false)
	c := b.begin(k)
	c.in(a.Out)
	c.in(a.DOut)
	c.in(a.LSE)
	c.scratch(scratchStats, stats, true)
	c.attentionDims(a.Q, a.K, 0, a.Scale)
	if err := c.groups((rows + 15) / 16); err != nil {
		return err
	}
	operands := func(c *call) {
		c.in(a.Q)
		c.in(a.K)
		c.in(a.V)
		c.in(a.DOut)
		c.scratch(scratchStats, stats, false)
		c.inOr(a.DocStart)
	}
	k, s := b.backwardKernel("attention_backward_dq", d, doc)
	tiles := (dims[1] + 4*s.og - 1) / (4 * s.og)
	flops := 6 * float64(4*s.og) * float64(dims[1]) * float64(d)
	err := b.slices(dims[0]*dims[2]*tiles, flops, func(first, n int) error {
		c := b.begin(k)
		operands(c)
		c.out(a.DQ)
		c.attentionDims(a.Q, a.K, first, a.Scale)
		return c.groups(n)
	})
	if err != nil {
		return err
	}
	k, s = b.backwardKernel("attention_backward_dkdv", d, doc)
	flops *= 8.0 / 6 * float64(dims[2]/kvh)
	return b.slices(dims[0]*kvh*tiles, flops, func(first, n int) error {
		c := b.begin(k)
		operands(c)
		c.out(a.DK)
		c.out(a.DV)
		c.attentionDims(a.Q, a.K, first, a.Scale)
		return c.groups(n)
	})
}

// KVAppend copies new keys and values into the caches.
func (b *Backend) KVAppend(a op.KVAppend) error {
	d := a.K.Dims
	p, n := a.KCache.Dims[1], a.K.Len()
	c := b.begin(b.plain("kv_append"))
	c.in(a.K)
	c.in(a.V)
	c.out(a.KCache)
	c.out(a.VCache)
	c.words(uint32(n), uint32(d[1]), uint32(p), uint32(d[2]*d[3]))
	c.number(slotKVAppend, uint32(a.Pos%p))
	return c.threads(n)
}

// decodeSpan is the number of slots one workgroup of attention_decode takes.
const decodeSpan = 64

// AttentionDecode is attention for one query per sequence, spans of slots side
// by side and then together.
func (b *Backend) AttentionDecode(a op.AttentionDecode) error {
	d := a.Q.Dims[2]
	heads, dq := a.Q.Dims[0]*a.Q.Dims[1], (d+3)/4
	spans := (a.Len + decodeSpan - 1) / decodeSpan
	most := (a.KCache.Dims[1] + decodeSpan - 1) / decodeSpan
	parts := uint64(4 * heads * most * (d + 2))
	v := variant{name: "attention_decode"}
	v.c[0] = int32(d)
	c := b.begin(b.kernel(v, func() []define {
		groups := min(decodeSpan, 1<<(bits.Len(uint(256/dq))-1))
		return append(headDefines(d), u("GROUPS", groups))
	}))
	c.in(a.Q)
	c.in(a.KCache)
	c.in(a.VCache)
	c.scratch(scratchDecode, parts, true)
	c.words(uint32(a.Q.Dims[1]), uint32(a.KCache.Dims[2]), uint32(a.KCache.Dims[1]), floatBits(a.Scale))
	c.number(slotDecode, uint32(a.Len))
	if err := c.grid(uint32(spans), uint32(heads), 1); err != nil {
		return err
	}
	v.name = "attention_decode_merge"
	c = b.begin(b.kernel(v, func() []define { return headDefines(d) }))
	c.scratch(scratchDecode, parts, false)
	c.out(a.Out)
	c.words(uint32(heads))
	c.number(slotDecodeSpans, uint32(spans))
	return c.threads(heads * d)
}
