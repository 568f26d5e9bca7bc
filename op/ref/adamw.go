package ref

import "tezgah/op"

// GradNormSq writes, for each chunk of op.NormChunk gradients, Σ g² over the
// finite ones and the count of the others.
func (r *Backend[T]) GradNormSq(a op.GradNormSq) error {
	g, out := r.float(a.G), r.float(a.Partials)
	for p := range op.NormPartials(len(g)) {
		var ss, bad T
		for _, v := range g[p*op.NormChunk : min(len(g), (p+1)*op.NormChunk)] {
			if finite(v) {
				ss += v * v
			} else {
				bad++
			}
		}
		out[2*p], out[2*p+1] = ss, bad
	}
	return nil
}

// FinalizeGradStats writes Stats = {norm, clip, non-finite count, 0}.
func (r *Backend[T]) FinalizeGradStats(a op.FinalizeGradStats) error {
	var ss, bad T
	part := r.float(a.Partials)
	for p := 0; p < len(part); p += 2 {
		ss, bad = ss+part[p], bad+part[p+1]
	}
	norm, clip := sqrt(ss), T(1)
	if a.MaxNorm > 0 {
		clip = min(1, T(a.MaxNorm)/max(norm, 1e-6))
	}
	copy(r.float(a.Stats), []T{norm, clip, bad, 0})
	return nil
}

// adam is one step's constants in arithmetic of type T.
type adam[T Float] struct {
	op.AdamHyper
	clip T
}

// step returns the new weight and moments of one element:
//
//	ĝ = g·clip,  m ← β₁·m + (1−β₁)·ĝ,  v ← β₂·v + (1−β₂)·ĝ²
//	w ← w − lr·( m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + eps) + wd·w )
func (h adam[T]) step(w, g, m, v T) (T, T, T) {
	b1, b2 := T(h.Beta1), T(h.Beta2)
	if !finite(g) && h.NonFinite == op.NonFiniteZero {
		g = 0
	}
	g *= h.clip
	m = b1*m + (1-b1)*g
	v = b2*v + (1-b2)*g*g
	mHat, vHat := m/(1-T(h.Beta1Pow)), v/(1-T(h.Beta2Pow))
	w -= T(h.LR) * (mHat/(sqrt(vHat)+T(h.Eps)) + T(h.WeightDecay)*w)
	return w, m, v
}

// skips reports whether the step must leave everything as it is.
func skips[T Float](stats []T, h op.AdamHyper) bool {
	return stats[2] > 0 && h.NonFinite == op.NonFiniteSkip
}

// AdamW updates weights and moments and writes the mirror.
func (r *Backend[T]) AdamW(a op.AdamW) error {
	w, g, m, v, stats := r.float(a.W), r.float(a.G), r.float(a.M), r.float(a.V), r.float(a.Stats)
	if skips(stats, a.AdamHyper) {
		return nil
	}
	h := adam[T]{a.AdamHyper, stats[1]}
	for i := range w {
		w[i], m[i], v[i] = h.step(w[i], g[i], m[i], v[i])
	}
	r.mirror(a.W16, w)
	return nil
}

// AdamW8 is AdamW with 8-bit moments. Each block of op.MomentBlock elements is
// decoded, updated and encoded again with new scales.
func (r *Backend[T]) AdamW8(a op.AdamW8) error {
	w, g, stats := r.float(a.W), r.float(a.G), r.float(a.Stats)
	if skips(stats, a.AdamHyper) {
		return nil
	}
	h := adam[T]{a.AdamHyper, stats[1]}
	var m, s [op.MomentBlock]T // the moments m and √v of one block
	for lo := 0; lo < len(w); lo += op.MomentBlock {
		hi, b := min(len(w), lo+op.MomentBlock), lo/op.MomentBlock
		qm, qv := r.int8(a.M)[lo:hi], r.int8(a.V)[lo:hi]
		ms, vs := &r.float(a.MScale)[b], &r.float(a.VScale)[b]
		var maxM, maxS T
		for i := range qm {
			root := T(uint8(qv[i])) * *vs
			var v T
			w[lo+i], m[i], v = h.step(w[lo+i], g[lo+i], T(qm[i])**ms, root*root)
			s[i] = sqrt(v)
			maxM, maxS = max(maxM, m[i], -m[i]), max(maxS, s[i])
		}
		*ms, *vs = maxM/127, maxS/255
		for i := range qm {
			qm[i] = int8(code(m[i], *ms, 127))
			qv[i] = int8(uint8(code(s[i], *vs, 255)))
			if s[i] > 0 && qv[i] == 0 {
				qv[i] = 1
			}
		}
	}
	r.mirror(a.W16, w)
	return nil
}

// code is x/scale to the nearest integer, away from zero on a tie; 0 in a block
// of zeros. The limit matters only where a scale is so small that its own
// rounding is felt.
func code[T Float](x, scale T, limit int) int {
	switch {
	case scale == 0:
		return 0
	case x < 0:
		return -code(-x, scale, limit)
	}
	return min(int(x/scale+0.5), limit)
}

// mirror writes the 16-bit copy of w when there is one.
func (r *Backend[T]) mirror(w16 op.Tensor, w []T) {
	if !w16.Ok() {
		return
	}
	for i, v := range w {
		r.float(w16)[i] = cast16(w16.Type(), v)
	}
}
