package cpu

import (
	"tezgah/op"
	"tezgah/tensor"
)

type zeroTask struct{ x []byte }

func (t *zeroTask) do(_ *Backend, _, lo, hi int) { clear(t.x[lo:hi]) }

// Zero clears x.
func (b *Backend) Zero(x op.Tensor) error {
	t := &b.tasks.zero
	t.x = bytesOf(x)
	b.each(len(t.x), 4*elementBlock, t)
	t.x = nil
	return nil
}

type copyTask struct{ dst, src []byte }

func (t *copyTask) do(_ *Backend, _, lo, hi int) { copy(t.dst[lo:hi], t.src[lo:hi]) }

// Copy copies src to dst.
func (b *Backend) Copy(dst, src op.Tensor) error {
	b.copyBytes(bytesOf(dst), bytesOf(src))
	return nil
}

// samePlace reports whether two tensors begin at the same memory.
func samePlace(x, y op.Tensor) bool { return x.Buf == y.Buf && x.Off == y.Off }

func (b *Backend) copyBytes(dst, src []byte) {
	t := &b.tasks.copy
	t.dst, t.src = dst, src
	b.each(len(dst), 4*elementBlock, t)
	*t = copyTask{}
}

type addTask struct{ dst, src []float32 }

func (t *addTask) do(b *Backend, _, lo, hi int) {
	b.k.Add(t.dst[lo:hi], t.dst[lo:hi], t.src[lo:hi])
}

// Add is Dst += Src.
func (b *Backend) Add(a op.Add) error {
	b.addTo(floats(a.Dst), floats(a.Src))
	return nil
}

func (b *Backend) addTo(dst, src []float32) {
	t := &b.tasks.add
	t.dst, t.src = dst, src
	b.each(len(dst), elementBlock, t)
	*t = addTask{}
}

type scaleTask struct {
	dst, src []float32
	factor   float32
}

func (t *scaleTask) do(b *Backend, _, lo, hi int) { b.k.Scale(t.dst[lo:hi], t.src[lo:hi], t.factor) }

// Scale is Dst = Factor·Src.
func (b *Backend) Scale(a op.Scale) error {
	t := &b.tasks.scale
	*t = scaleTask{floats(a.Dst), floats(a.Src), a.Factor}
	b.each(len(t.dst), elementBlock, t)
	*t = scaleTask{}
	return nil
}

// memory16 is memory for numbers in 16 bits, a copy of weights for one; the zero value is
// none.
type memory16 struct {
	bits  []uint16
	brain bool // bfloat16, else float16
}

// as16 is the memory of a 16-bit tensor, which may be absent.
func as16(t op.Tensor) memory16 {
	if !t.Ok() {
		return memory16{}
	}
	return memory16{halves(t), t.Type() == tensor.BF16}
}

// write converts src, which are the numbers from lo on. bfloat16 is what matrix units
// of GPUs read, and no kernel of a processor: plain Go does for it.
func (m memory16) write(b *Backend, lo int, src []float32) {
	switch dst := m.bits; {
	case dst == nil:
	case m.brain:
		dst = dst[lo : lo+len(src)]
		for i, x := range src {
			dst[i] = tensor.ToBF16(x)
		}
	default:
		b.k.F32ToF16(dst[lo:lo+len(src)], src)
	}
}

// read is the way back, lossless: it fills dst with the numbers from lo on.
func (m memory16) read(b *Backend, lo int, dst []float32) {
	src := m.bits[lo : lo+len(dst)]
	if !m.brain {
		b.k.F16ToF32(dst, src)
		return
	}
	for i, h := range src {
		dst[i] = tensor.FromBF16(h)
	}
}

type toHalfTask struct {
	dst memory16
	src []float32
}

func (t *toHalfTask) do(b *Backend, _, lo, hi int) { t.dst.write(b, lo, t.src[lo:hi]) }

type fromHalfTask struct {
	dst []float32
	src memory16
}

func (t *fromHalfTask) do(b *Backend, _, lo, hi int) { t.src.read(b, lo, t.dst[lo:hi]) }

// Cast converts between F32 and F16 or BF16.
func (b *Backend) Cast(a op.Cast) error {
	if a.Dst.Type() != tensor.F32 {
		t := &b.tasks.toHalf
		t.dst, t.src = as16(a.Dst), floats(a.Src)
		b.each(len(t.src), elementBlock, t)
		*t = toHalfTask{}
		return nil
	}
	b.widen(floats(a.Dst), as16(a.Src))
	return nil
}

// widen converts 16-bit elements to float32.
func (b *Backend) widen(dst []float32, src memory16) {
	t := &b.tasks.fromHalf
	t.dst, t.src = dst, src
	b.each(len(dst), elementBlock, t)
	*t = fromHalfTask{}
}

// weights returns a weight vector's or matrix's elements as float32: its own
// memory, or a converted copy that is valid until the next call.
func (b *Backend) weights(t op.Tensor) []float32 {
	if t.Type() != tensor.F16 {
		return floats(t)
	}
	b.shared.weights = grow(b.shared.weights, t.Len())
	b.widen(b.shared.weights, as16(t))
	return b.shared.weights
}

type sumTask struct {
	x   []float32
	out []float64 // one sum per block
}

func (t *sumTask) do(b *Backend, _, lo, hi int) { t.out[lo/elementBlock] = b.k.Sum(t.x[lo:hi]) }

// Sum is Out[0] = Scale·ΣX, or += with Acc: a float64 sum per block, added in
// order.
func (b *Backend) Sum(a op.Sum) error {
	t := &b.tasks.sum
	t.x = floats(a.X)
	blocks := (len(t.x) + elementBlock - 1) / elementBlock
	if cap(b.shared.partial2) < blocks {
		b.shared.partial2 = make([]float64, blocks)
	}
	t.out = b.shared.partial2[:blocks]
	b.each(len(t.x), elementBlock, t)
	var s float64
	for _, v := range t.out {
		s += v
	}
	s *= float64(a.Scale)
	out := floats(a.Out)
	if a.Acc {
		s += float64(out[0])
	}
	out[0] = float32(s)
	*t = sumTask{}
	return nil
}
