package cpu

import (
	"math"

	"tezgah/op"
	"tezgah/op/cpu/internal/kern"
	"tezgah/tensor"
)

type normSqTask struct{ g, out []float32 }

func (t *normSqTask) do(b *Backend, _, lo, hi int) {
	ss, bad := b.k.SumSq(t.g[lo:hi])
	p := lo / op.NormChunk
	t.out[2*p], t.out[2*p+1] = float32(ss), float32(bad)
}

// GradNormSq writes Σ g² over finite gradients, and the count of the others, of
// every chunk.
func (b *Backend) GradNormSq(a op.GradNormSq) error {
	t := &b.tasks.normSq
	*t = normSqTask{floats(a.G), floats(a.Partials)}
	b.each(len(t.g), op.NormChunk, t)
	*t = normSqTask{}
	return nil
}

// FinalizeGradStats writes Stats = {norm, clip, non-finite count, 0}, in
// float64 and in the order of the chunks.
func (b *Backend) FinalizeGradStats(a op.FinalizeGradStats) error {
	part, stats := floats(a.Partials), floats(a.Stats)
	var ss, bad float64
	for p := 0; p < len(part); p += 2 {
		ss += float64(part[p])
		bad += float64(part[p+1])
	}
	norm, clip := math.Sqrt(ss), 1.0
	if a.MaxNorm > 0 {
		clip = min(1, float64(a.MaxNorm)/max(norm, 1e-6))
	}
	stats[0], stats[1], stats[2], stats[3] = float32(norm), float32(clip), float32(bad), 0
	return nil
}

// skips reports whether the step must leave everything as it is.
func skips(stats []float32, h *op.AdamHyper) bool {
	return stats[2] > 0 && h.NonFinite == op.NonFiniteSkip
}

func hyper(h *op.AdamHyper, clip float32) kern.AdamW {
	return kern.AdamW{LR: h.LR, Beta1: h.Beta1, Beta2: h.Beta2, Eps: h.Eps, WeightDecay: h.WeightDecay, Clip: clip,
		Bias1: 1 - h.Beta1Pow, Bias2: 1 - h.Beta2Pow, ZeroNonFinite: h.NonFinite == op.NonFiniteZero}
}

type adamwTask struct {
	w, g, m, v []float32
	w16        memory16
	h          kern.AdamW
}

func (t *adamwTask) do(b *Backend, _, lo, hi int) {
	b.k.AdamW(t.w[lo:hi], t.g[lo:hi], t.m[lo:hi], t.v[lo:hi], t.h)
	t.w16.write(b, lo, t.w[lo:hi])
}

// AdamW updates weights and moments and writes the mirror in one pass over memory.
func (b *Backend) AdamW(a op.AdamW) error {
	stats := floats(a.Stats)
	if skips(stats, &a.AdamHyper) {
		return nil
	}
	t := &b.tasks.adamw
	*t = adamwTask{floats(a.W), floats(a.G), floats(a.M), floats(a.V), as16(a.W16), hyper(&a.AdamHyper, stats[1])}
	b.each(len(t.w), elementBlock, t)
	*t = adamwTask{}
	return nil
}

type adamw8Task struct {
	w, g           []float32
	m              []int8
	v              []uint8
	mScale, vScale []float32
	w16            memory16
	h              kern.AdamW
}

func (t *adamw8Task) do(b *Backend, _, lo, hi int) {
	s := lo / op.MomentBlock
	b.k.AdamW8(t.w[lo:hi], t.g[lo:hi], t.m[lo:hi], t.v[lo:hi], t.mScale[s:], t.vScale[s:], t.h)
	t.w16.write(b, lo, t.w[lo:hi])
}

// AdamW8 is AdamW with 8-bit moments.
func (b *Backend) AdamW8(a op.AdamW8) error {
	stats := floats(a.Stats)
	if skips(stats, &a.AdamHyper) {
		return nil
	}
	t := &b.tasks.adamw8
	*t = adamw8Task{floats(a.W), floats(a.G), codes(a.M), tensor.Bytes(codes(a.V)), floats(a.MScale), floats(a.VScale),
		as16(a.W16), hyper(&a.AdamHyper, stats[1])}
	b.each(len(t.w), elementBlock, t)
	*t = adamw8Task{}
	return nil
}
