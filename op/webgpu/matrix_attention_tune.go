package webgpu

import (
	"fmt"
	"math/bits"
	"slices"

	"tezgah/gpu"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// attentionTiles are the tiles worth measuring, in the order in which the first that
// fits is taken without. A row of the forward pass depends on Strip alone of a tile's
// sizes, which is therefore the same in all but the last, for small devices; one of
// the backward pass depends on none, because sums grow along the other side in steps
// of the units' own depth. The choice changes no bit.
var (
	forwardTiles = []matrix.AttentionTile{
		{Subgroups: 4, Own: 1, Other: 64, Strip: 32, Early: true},
		{Subgroups: 4, Own: 1, Other: 64, Strip: 32},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 32, Early: true},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 32},
		{Subgroups: 8, Own: 1, Other: 64, Strip: 32, Early: true},
		{Subgroups: 8, Own: 1, Other: 32, Strip: 32, Early: true},
		{Subgroups: 4, Own: 2, Other: 32, Strip: 32, Early: true},
		{Subgroups: 4, Own: 2, Other: 64, Strip: 32},
		smallAttentionTile,
	}
	backwardTiles = []matrix.AttentionTile{
		{Subgroups: 4, Own: 1, Other: 64, Strip: 32},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 32, Early: true},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 16, Early: true},
		{Subgroups: 4, Own: 1, Other: 32, Strip: 16},
		{Subgroups: 8, Own: 1, Other: 64, Strip: 16, Early: true},
		{Subgroups: 8, Own: 1, Other: 32, Strip: 16, Early: true},
		{Subgroups: 4, Own: 2, Other: 32, Strip: 16},
		smallAttentionTile,
	}
	smallAttentionTile = matrix.AttentionTile{Subgroups: 2, Own: 1, Other: 16, Strip: 16}
)

// attentionMemory is the most workgroup memory that a tile may take: more was seen
// to lose a device that announced it.
const attentionMemory = 48 << 10

// attentionTiles are the tiles that the device can run a part with; the small one
// only where no other fits.
func (b *Backend) attentionTiles(part attentionPart, d int) (fit []matrix.AttentionTile) {
	b.eachAttentionTile(part, d, func(t matrix.AttentionTile) bool {
		small := t.Strip == smallAttentionTile.Strip && t.Other == smallAttentionTile.Other
		if !(small && len(fit) > 0) {
			fit = append(fit, t)
		}
		return true
	})
	return fit
}

// firstAttentionTile is the first of attentionTiles; ok is false when there is none.
func (b *Backend) firstAttentionTile(part attentionPart, d int) (first matrix.AttentionTile, ok bool) {
	b.eachAttentionTile(part, d, func(t matrix.AttentionTile) bool {
		first, ok = t, true
		return false
	})
	return first, ok
}

// eachAttentionTile calls yield for the tiles that fit until it returns false.
func (b *Backend) eachAttentionTile(part attentionPart, d int, yield func(matrix.AttentionTile) bool) {
	f, l, info := b.matrix.fragments[b.matrix.rounding], b.dev.Limits(), b.dev.Info()
	all := backwardTiles
	if part == partForward {
		all = forwardTiles
	}
	if info.Kind == gpu.Software {
		all = all[len(all)-1:] // the least to compile
	}
	for _, t := range all {
		t.Convert = info.Matrix2 && f.N == f.K
		if t.Fits(f, d, min(l.Invocations, l.WorkgroupSizeX), min(l.WorkgroupMemory, attentionMemory)) && !yield(t) {
			return
		}
	}
}

// attentionClass is what a tile is chosen for: t is the bits of the length.
type attentionClass struct {
	part  attentionPart
	input tensor.DType
	d, t  int
	doc   bool
}

func (c attentionClass) String() string {
	return fmt.Sprintf("%s-%v-%d-%d-%v", attentionNames[c.part], c.input, c.d, c.t, c.doc)
}

const attentionSubject = "attention-tiles-v3"

// attentionTileFor returns the tile for a call: the one that ran fastest here when it
// was measured, or the first that fits.
func (b *Backend) attentionTileFor(a attentionCall) matrix.AttentionTile {
	u := &b.matrix
	if fixed := u.attention[a.part]; fixed != nil {
		return *fixed
	}
	class := attentionClass{a.part, u.rounding, a.q.Dims[3], bits.Len(uint(a.q.Dims[1])), a.doc}
	if t, ok := u.attentionChosen[class]; ok {
		return t
	}
	best, _ := b.firstAttentionTile(a.part, class.d)
	if b.tuner.mode == TuneOff || b.tuner.busy || float64(a.q.Len())*float64(a.q.Dims[1]) < 1e8 {
		return best
	}
	fit := b.attentionTiles(a.part, class.d)
	if u.attentionDisk == nil {
		u.attentionDisk = map[string]string{}
		b.dev.LoadCache(attentionSubject, &u.attentionDisk)
	}
	known := slices.IndexFunc(fit, func(t matrix.AttentionTile) bool { return t.String() == u.attentionDisk[class.String()] })
	if known >= 0 {
		best = fit[known]
	} else if t, ok := b.measureAttentionTiles(a, fit); ok {
		best = t
		u.attentionDisk[class.String()] = t.String()
		_ = b.dev.SaveCache(attentionSubject, u.attentionDisk)
	}
	if u.attentionChosen == nil {
		u.attentionChosen = map[attentionClass]matrix.AttentionTile{}
	}
	u.attentionChosen[class] = best
	return best
}

// measureAttentionTiles runs a call with every tile, in rounds, and returns the one
// with the shortest time: results are written, not added, and are the same each
// time. ok is false when that failed or results would replace operands.
func (b *Backend) measureAttentionTiles(a attentionCall, fit []matrix.AttentionTile) (best matrix.AttentionTile, ok bool) {
	if !b.repeatable(a) {
		return best, false
	}
	b.tuner.busy = true
	defer func() { b.tuner.busy = false }()
	run := func(t matrix.AttentionTile) error { return b.runAttention(a, t) }
	var kernels []*kernel
	for _, t := range fit {
		kernels = append(kernels, b.matrixAttentionKernel(a, t))
	}
	b.prepare(kernels)
	return fastest(b, fit, run)
}

// repeatable reports whether a call's results lie apart from its operands.
func (b *Backend) repeatable(a attentionCall) bool {
	c := b.begin(b.plain("fill")) // only its bindings are looked at
	a.bind(c)
	if c.err != nil {
		return false
	}
	for _, out := range c.args[:c.n] {
		for _, in := range c.args[:c.n] {
			if out.write && !in.write && (out.back != nil || out.mem == in.mem && in.offset < out.offset+out.n && out.offset < in.offset+in.n) {
				return false
			}
		}
	}
	return true
}
