package webgpu

import "tezgah/op"

// RoPE turns pairs (i, i + D/2) of every head: to Out where that has 16 bits, else
// in place, after X was copied to Out where that is another tensor. X2 goes through
// the same dispatch where one kernel can do both.
func (b *Backend) RoPE(a op.RoPE) error {
	first, second := a.Split()
	if err := b.placeRotation(&first); err != nil {
		return err
	}
	if !second.X.Ok() {
		return b.rotate(first, second)
	}
	if err := b.placeRotation(&second); err != nil {
		return err
	}
	if b.ropeVec(first) && b.ropeVec(second) && first.Out.Type() == second.Out.Type() {
		return b.rotate(first, second)
	}
	if err := b.rotate(first, op.RoPE{}); err != nil {
		return err
	}
	return b.rotate(second, op.RoPE{})
}

// placeRotation makes Out what a kernel writes: X itself in float32, where kernels
// work in place.
func (b *Backend) placeRotation(a *op.RoPE) error {
	switch {
	case !a.Out.Ok():
		a.Out = a.X
	case !is16(a.Out) && !samePlace(a.Out, a.X):
		if err := b.Copy(a.Out, a.X); err != nil {
			return err
		}
		a.X = a.Out
	}
	return nil
}

// rotate runs one kernel over the first tensor and, where it is there, the second.
func (b *Backend) rotate(first, second op.RoPE) error {
	d := first.X.Dims
	k, threads := b.ropeKernel(first, second)
	c := b.begin(k)
	c.rotation(first)
	c.in(first.Table)
	c.words(uint32(first.X.Len()/2), uint32(d[1]), uint32(d[2]), uint32(d[3]/2))
	c.number(slotRoPE, uint32(first.Pos0))
	if second.X.Ok() {
		c.rotation(second)
	}
	return c.threads(threads)
}

// rotation binds what a rotation reads and writes.
func (c *call) rotation(a op.RoPE) {
	if is16(a.Out) {
		c.in(a.X)
	}
	c.out(a.Out)
}

// ropeKernel is the kernel for the heads of first.X and, where it is there, second.X,
// and how many threads of it.
func (b *Backend) ropeKernel(first, second op.RoPE) (k *kernel, threads int) {
	pairs, out16 := first.X.Len()/2, is16(first.Out)
	switch {
	case b.ropeVec(first):
		return b.ropeVecKernel(first, second)
	case out16:
		return b.pairs("rope_to16", first.Out, flag("INVERSE", first.Inverse)), pairs
	}
	return b.plain(first.Label()), pairs
}

// ropeVec reports whether rope_vec can do it.
func (b *Backend) ropeVec(a op.RoPE) bool { return a.X.Dims[3]%8 == 0 && b.ropeHeads >= 0 }

// ropeVecKernel is rope_vec for one tensor or two.
func (b *Backend) ropeVecKernel(first, second op.RoPE) (k *kernel, threads int) {
	half4, h, h2, heads2 := first.X.Dims[3]/8, first.X.Dims[2], 0, 1
	heads := b.headsOfThread(h)
	threads = first.X.Len() / 8 / heads
	if second.X.Ok() {
		h2 = second.X.Dims[2]
		heads2 = b.headsOfThread(h2)
		threads += second.X.Len() / 8 / heads2
	}
	out16, brain := is16(first.Out), isBrain(first.Out)
	v := variant{name: "rope_vec", c: [10]int32{bit(first.Inverse), int32(half4), int32(h), int32(heads), bit(out16), bit(brain), int32(h2), int32(heads2)}}
	return b.kernel(v, func() []define {
		return []define{flag("INVERSE", first.Inverse), u("HALF4", half4), u("H", h), u("HEADS", heads), flag("OUT16", out16), flag("BF16", brain),
			flag("TWO", h2 > 0), u("H2", h2), u("HEADS2", heads2)}
	}), threads
}

// headsOfThread is how many of h heads a thread turns: several loads are on their
// way then, and the angles are read once for them.
func (b *Backend) headsOfThread(h int) int {
	switch {
	case b.ropeHeads > 0 && h%b.ropeHeads == 0:
		return b.ropeHeads
	case h%2 == 0:
		return 2
	}
	return 1
}
