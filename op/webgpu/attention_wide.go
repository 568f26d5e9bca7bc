package webgpu

import (
	"slices"

	"tezgah/op"
	"tezgah/tensor"
)

// Attention in WGSL is float32. Where it takes the place of the matrix units, with a
// head size that they have no tile for or on a driver that gets it wrong, it may meet
// tensors of 16 bits: those it reads become float32 in scratch memory first, those
// it writes 16 bits afterwards.

// wideTensors is the most of one call that may be of 16 bits: q, k, v, dout, out, dv.
const wideTensors = 6

// widening is the float32 stand-ins of a call, one scratch memory after the other.
type widening struct {
	b     *Backend
	used  int
	back  [2][2]op.Tensor // results: where they belong, and their stand-ins
	backs int
	err   error
}

// standIn is t, or float32 scratch memory of its shape.
func (w *widening) standIn(t op.Tensor) op.Tensor {
	if w.err != nil || !is16(t) {
		return t
	}
	mem, err := w.b.scratchOf(scratchAttention+w.used, uint64(4*t.Len()))
	if err != nil {
		w.err = err
		return t
	}
	w.used++
	t.Buf, t.Off = &buffer{label: "attention in float32", typ: tensor.F32, n: t.Len(), size: 4, mem: mem}, 0
	return t
}

// in is a tensor that is read.
func (w *widening) in(t op.Tensor) op.Tensor {
	s := w.standIn(t)
	if w.err == nil && is16(t) {
		w.err = w.b.Cast(op.Cast{Dst: s, Src: t})
	}
	return s
}

// out is a tensor that is written; finish brings the result there.
func (w *widening) out(t op.Tensor) op.Tensor {
	s := w.standIn(t)
	if w.err == nil && is16(t) {
		w.back[w.backs] = [2]op.Tensor{t, s}
		w.backs++
	}
	return s
}

// finish runs the call and rounds its results.
func (w *widening) finish(run func() error) error {
	if w.err == nil {
		w.err = run()
	}
	for _, r := range w.back[:w.backs] {
		if w.err == nil {
			w.err = w.b.narrow(r[0], func(c *call) { c.in(r[1]) })
		}
	}
	return w.err
}

// wideAttention is Attention with tensors of 16 bits, in float32.
func (b *Backend) wideAttention(a op.Attention) error {
	w := widening{b: b}
	a.Q, a.K, a.V, a.Out = w.in(a.Q), w.in(a.K), w.in(a.V), w.out(a.Out)
	return w.finish(func() error { return b.Attention(a) })
}

// wideAttentionBackward is AttentionBackward with tensors of 16 bits, in float32.
func (b *Backend) wideAttentionBackward(a op.AttentionBackward) error {
	w := widening{b: b}
	a.Q, a.K, a.V, a.DOut, a.Out = w.in(a.Q), w.in(a.K), w.in(a.V), w.in(a.DOut), w.in(a.Out)
	a.DV = w.out(a.DV)
	return w.finish(func() error { return b.AttentionBackward(a) })
}

// any16 reports whether one of some tensors is of 16 bits.
func any16(tensors ...op.Tensor) bool { return slices.ContainsFunc(tensors, is16) }
