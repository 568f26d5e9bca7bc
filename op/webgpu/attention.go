package webgpu

import (
	"math/bits"

	"tezgah/gpu"
	"tezgah/op"
)

// attentionShape is how a kernel of 05_attention.wgsl shares out its tiles: OG × TG
// threads with RQ quads of own rows each and XQ quads of other rows, of which PI rows
// make a part of the sums; slices of SQ quads of D. KU steps along a slice and RU rows
// of a part are written out.
type attentionShape struct {
	og, tg, rq, xq, pi, sq, ku, ru int
}

func (s attentionShape) own() int     { return 4 * s.og * s.rq }
func (s attentionShape) threads() int { return s.og * s.tg }
func (s attentionShape) part() int    { return s.tg * s.pi }

// quads of the rows of both tiles.
func (s attentionShape) quads() int { return s.og*s.rq + s.tg*s.xq }

// tile is the number of vec4s for a slice or a part of heads of dq quads.
func (s attentionShape) tile(dq int) int { return max(4*s.sq*(s.quads()|1), s.part()*dq) }

// staged is the number of vec4s that a thread has on their way.
func (s attentionShape) staged(dq int) int {
	return max(4*ceil(s.quads()*s.sq, s.threads()), ceil(s.part()*dq, s.threads()))
}

// bytes is the workgroup memory of a kernel.
func (s attentionShape) bytes(dq int) int { return 16*(s.tile(dq)+s.part()*s.own()/4) + 16 }

// fits reports whether a device with such limits can run the shape.
func (s attentionShape) fits(dq int, l gpu.Limits) bool {
	return s.threads() <= l.Invocations && s.bytes(dq) <= l.WorkgroupMemory
}

// attentionTile chooses tiles for heads of dq quads; twice says that the kernel has two
// sums, dK and dV. A thread has 16·RQ·ceil(DQ/TG) registers of a sum and 16·RQ·XQ of
// scores; so there are fewer own rows for large heads. What does not fit the device
// is cut down: parts of the sums first, then slices, then threads. A software GPU gets
// little to compile.
func attentionTile(dq int, twice, software bool, l gpu.Limits) attentionShape {
	s := attentionShape{og: 8, tg: 16, rq: 2, xq: 1, pi: 2, sq: min(4, dq), ku: 16, ru: 8}
	switch {
	case software:
		s = attentionShape{og: 16, tg: 8, rq: 1, xq: 1, pi: 4, sq: s.sq, ku: 1, ru: 1}
	case dq > 16:
		s.rq = 1
	case dq > 8 && !twice:
		s.og, s.tg, s.rq, s.xq = 16, 8, 1, 2
	}
	for s.tg > 4 && s.tg/2 >= dq {
		s.tg, s.og = s.tg/2, s.og*2
	}
	for !s.fits(dq, l) && s.threads()*s.pi*s.sq > 1 {
		switch {
		case s.pi > 1:
			s.pi /= 2
		case s.sq > 1 && s.part()*dq < s.tile(dq):
			s.sq /= 2
		case s.tg > 1:
			s.tg /= 2
		default:
			s.og /= 2
		}
	}
	s.ku, s.ru = gcd(s.ku, 4*s.sq), gcd(s.ru, s.part())
	return s
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// attentionTile is the shape for the device.
func (b *Backend) attentionTile(dq int, twice bool) attentionShape {
	return attentionTile(dq, twice, b.dev.Info().Kind == gpu.Software, b.dev.Limits())
}

// attentionKernel finds a kernel of 05_attention.wgsl for a head size, in a shape.
func (b *Backend) attentionKernel(name string, d int, doc bool, fixed *attentionShape) (*kernel, attentionShape) {
	dq := ceil(d, 4)
	s := b.attentionTile(dq, name == "attention_backward_dkdv")
	if fixed != nil {
		s = *fixed
	}
	v := variant{name: name}
	for i, n := range []int{d, int(bit(doc)), s.og, s.tg, s.rq, s.xq, s.pi, s.sq, s.ku, s.ru} {
		v.c[i] = int32(n)
	}
	return b.kernel(v, func() []define {
		return append(headDefines(d), flag("VEC", d%4 == 0), flag("HAS_DOC", doc), u("OG", s.og), u("TG", s.tg), u("RQ", s.rq), u("XQ", s.xq),
			u("PI", s.pi), u("SQ", s.sq), u("KU", s.ku), u("RU", s.ru), u("TILE", s.tile(dq)), u("STAGED", s.staged(dq)))
	}), s
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
	k, s := b.attentionKernel("attention_forward", d, doc, b.forward)
	dims := a.Q.Dims
	items := dims[0] * dims[2] * ceil(dims[1], s.own())
	flops := 4 * float64(s.own()) * float64(dims[1]) * float64(d) // at most, of a workgroup
	return b.slices(items, flops, func(first, n int) error {
		c := b.begin(k)
		c.in(a.Q)
		c.in(a.K)
		c.in(a.V)
		c.inOr(a.DocStart)
		c.out(a.Out)
		c.out(a.LSE)
		c.tileDims(a.Q, a.K, first, a.Scale, s)
		return c.groups(n)
	})
}

// attentionDims binds the sizes that forward and backward share, tileDims for a kernel
// of 05_attention.wgsl in a shape.
func (c *call) attentionDims(q, k op.Tensor, first int, scale float32) {
	c.words(uint32(q.Dims[0]), uint32(q.Dims[1]), uint32(q.Dims[2]), uint32(k.Dims[2]), uint32(first), floatBits(scale))
}

func (c *call) tileDims(q, k op.Tensor, first int, scale float32, s attentionShape) {
	c.words(uint32(q.Dims[0]), uint32(q.Dims[1]), uint32(q.Dims[2]), uint32(k.Dims[2]), uint32(first), floatBits(scale), uint32(s.part()))
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
	c := b.begin(b.kernel(variant{name: "attention_backward_delta", c: [10]int32{int32(d)}}, func() []define { return []define{u("D", d)} }))
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
	k, s := b.attentionKernel("attention_backward_dq", d, doc, b.backwardQ)
	tiles := ceil(dims[1], s.own())
	flops := 6 * float64(s.own()) * float64(dims[1]) * float64(d)
	err := b.slices(dims[0]*dims[2]*tiles, flops, func(first, n int) error {
		c := b.begin(k)
		operands(c)
		c.out(a.DQ)
		c.tileDims(a.Q, a.K, first, a.Scale, s)
		return c.groups(n)
	})
	if err != nil {
		return err
	}
	k, s = b.attentionKernel("attention_backward_dkdv", d, doc, b.backwardKV)
	tiles = ceil(dims[1], s.own())
	flops = 8 * float64(s.own()) * float64(dims[1]) * float64(d) * float64(dims[2]/kvh)
	return b.slices(dims[0]*kvh*tiles, flops, func(first, n int) error {
		c := b.begin(k)
		operands(c)
		c.out(a.DK)
		c.out(a.DV)
		c.tileDims(a.Q, a.K, first, a.Scale, s)
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
