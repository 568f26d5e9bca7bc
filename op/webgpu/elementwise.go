package webgpu

import (
	"tezgah/op"
)

// Add is Dst += Src.
func (b *Backend) Add(a op.Add) error {
	c := b.begin(b.plain("add"))
	c.in(a.Src)
	c.out(a.Dst)
	n := a.Dst.Len()
	c.words(uint32(n))
	return c.threads(n)
}

// Scale is Dst = Factor·Src.
func (b *Backend) Scale(a op.Scale) error {
	n := a.Dst.Len()
	if samePlace(a.Dst, a.Src) {
		c := b.begin(b.plain("scale_in_place"))
		c.out(a.Dst)
		c.words(uint32(n), floatBits(a.Factor))
		return c.threads(n)
	}
	c := b.begin(b.plain("scale"))
	c.in(a.Src)
	c.out(a.Dst)
	c.words(uint32(n), floatBits(a.Factor))
	return c.threads(n)
}

// Cast converts between F32 and F16 or BF16.
func (b *Backend) Cast(a op.Cast) error {
	n := a.Src.Len()
	k, threads := b.plain(a.Label()), n
	if isBrain(a.Dst) {
		k, threads = b.pairs("cast_f32_to_pairs", a.Dst), ceil(n, 2)
	}
	c := b.begin(k)
	c.in(a.Src)
	c.out(a.Dst)
	c.words(uint32(n))
	return c.threads(threads)
}

// pairs finds the kernel that writes pairs of 16-bit floats of a tensor's type;
// flags are its further constants.
func (b *Backend) pairs(name string, t op.Tensor, flags ...define) *kernel {
	v := variant{name: name}
	v.c[0] = bit(isBrain(t))
	for i, f := range flags {
		v.c[1+i] = bit(f.Value == "true")
	}
	return b.kernel(v, func() []define { return append([]define{flag("BF16", isBrain(t))}, flags...) })
}

// narrow writes a tensor of 16 bits from the float32 that bind binds. What is too
// large becomes infinite, which a Cast to float16 does not do.
func (b *Backend) narrow(dst op.Tensor, bind func(c *call)) error {
	c := b.begin(b.pairs("cast_f32_to_pairs", dst))
	bind(c)
	c.out(dst)
	c.words(uint32(dst.Len()))
	return c.threads(ceil(dst.Len(), 2))
}

// narrowWide is narrow from the scratch memory for results in float32.
func (b *Backend) narrowWide(dst op.Tensor) error {
	return b.narrow(dst, func(c *call) { c.scratch(scratchWide, uint64(4*dst.Len()), false) })
}

// sumChunk is how many elements one workgroup of a long sum takes.
const sumChunk = 1 << 15

// Sum is Out = Scale·ΣX, or += with Acc: in one pass, or when X is long by
// chunks and then over the chunks' sums.
func (b *Backend) Sum(a op.Sum) error {
	n := a.X.Len()
	c := b.begin(b.plain("sum"))
	c.in(a.X)
	if n > sumChunk {
		chunks := (n + sumChunk - 1) / sumChunk
		c.scratch(scratchPartials, uint64(4*chunks), true)
		c.words(uint32(n), sumChunk, 0, floatBits(1))
		if err := c.groups(chunks); err != nil {
			return err
		}
		c = b.begin(b.plain("sum"))
		c.scratch(scratchPartials, uint64(4*chunks), false)
		n = chunks
	}
	c.out(a.Out)
	c.words(uint32(n), uint32(n), uint32(bit(a.Acc)), floatBits(a.Scale))
	return c.groups(1)
}

// inPlace names the kernels that write over one of their inputs.
var inPlace = map[string]string{
	"swiglu_forward": "swiglu_forward_inplace", "swiglu_backward": "swiglu_backward_inplace",
	"geglu_forward": "geglu_forward_inplace", "geglu_backward": "geglu_backward_inplace",
}

// GLU is Out = act(Gate)·Up; Out may be Up's memory.
func (b *Backend) GLU(a op.GLU) error {
	n := a.Out.Len()
	if is16(a.Gate) || is16(a.Out) {
		k, n, groups := b.gluMixed("glu_mixed", "glu_mixed_vec", n, a.Act, a.Gate, op.Tensor{}, a.Out)
		c := b.begin(k)
		c.in(a.Gate)
		c.in(a.Up)
		c.out(a.Out)
		c.words(uint32(n))
		return c.groups(groups)
	}
	if samePlace(a.Out, a.Up) {
		c := b.begin(b.plain(inPlace[a.Label()]))
		c.in(a.Gate)
		c.out(a.Up)
		c.words(uint32(n))
		return c.groups(ceil(n, 1024))
	}
	c := b.begin(b.plain(a.Label()))
	c.in(a.Gate)
	c.in(a.Up)
	c.out(a.Out)
	c.words(uint32(n))
	return c.groups(ceil(n, 1024))
}

// gluMixed is the kernel for n elements where gate and up (in), dout, which the
// forward pass has not, or the results (out) are of 16 bits, of whole vec4s where they
// fit; n as the kernel counts it; and how many workgroups.
func (b *Backend) gluMixed(name, vec string, n int, act op.Activation, in, dout, out op.Tensor) (k *kernel, size, groups int) {
	gelu, in16, out16, dout16 := act == op.GeLUTanh, is16(in), is16(out), dout.Ok() && is16(dout)
	brain := isBrain(in) || isBrain(out) || dout16 && isBrain(dout)
	steps := 2
	if in16 {
		steps = 4 // as many bytes on their way
	}
	size, groups = n, ceil(n, 512)
	whole := n%4 == 0
	if whole {
		name, size, groups = vec, n/4, ceil(n, 1024*steps)
	}
	v := variant{name: name, c: [10]int32{bit(gelu), bit(in16), bit(out16), bit(dout16), bit(brain)}}
	return b.kernel(v, func() []define {
		d := []define{flag("GELU", gelu), flag("IN16", in16), flag("OUT16", out16), flag("BF16", brain)}
		if dout.Ok() {
			d = append(d, flag("DOUT16", dout16))
		}
		if whole {
			d = append(d, u("STEPS", steps))
		}
		return d
	}), size, groups
}

// GLUBackward gives DGate and DUp; either may be DOut's memory.
func (b *Backend) GLUBackward(a op.GLUBackward) error {
	n := a.DOut.Len()
	if is16(a.Gate) || is16(a.DOut) || is16(a.DGate) {
		k, n, groups := b.gluMixed("glu_backward_mixed", "glu_backward_mixed_vec", n, a.Act, a.Gate, a.DOut, a.DGate)
		c := b.begin(k)
		c.in(a.Gate)
		c.in(a.Up)
		c.in(a.DOut)
		c.out(a.DGate)
		c.out(a.DUp)
		c.words(uint32(n))
		return c.groups(groups)
	}
	toGate := samePlace(a.DGate, a.DOut)
	if toGate || samePlace(a.DUp, a.DOut) {
		other := a.DGate
		if toGate {
			other = a.DUp
		}
		v := variant{name: inPlace[a.Label()]}
		v.c[0] = bit(toGate)
		c := b.begin(b.kernel(v, func() []define { return []define{flag("TO_GATE", toGate)} }))
		c.in(a.Gate)
		c.in(a.Up)
		c.out(a.DOut)
		c.out(other)
		c.words(uint32(n))
		return c.groups((n + 1023) / 1024)
	}
	c := b.begin(b.plain(a.Label()))
	c.in(a.Gate)
	c.in(a.Up)
	c.in(a.DOut)
	c.out(a.DGate)
	c.out(a.DUp)
	c.words(uint32(n))
	return c.groups((n + 1023) / 1024)
}

// samePlace reports whether two tensors begin at the same memory.
func samePlace(a, b op.Tensor) bool { return a.Buf == b.Buf && a.Off == b.Off }
