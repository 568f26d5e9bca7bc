package webgpu

import (
	"slices"

	"tezgah/op"
)

// normShape is how rmsnorm_forward_vec and rmsnorm_backward_vec share out rows:
// LANES threads a row, rows at a time in a workgroup, and for the backward norm
// how many workgroups there are at most. It follows from C alone, because it
// decides the order of the sums.
type normShape struct {
	lanes, rows, groups int
}

func (s normShape) quads(c int) int { return ceil(c/4, s.lanes) }

// fits reports whether rows of c channels can be done: whole vec4s, few enough
// for registers, and the kernels sum over four threads or more.
func (s normShape) fits(c int) bool { return c%4 == 0 && s.lanes >= 4 && s.quads(c) <= normQuads }

const (
	normQuads = 8 // vec4s of a thread
	// normGroups is how many workgroups share the rows of a backward norm: enough
	// to fill a large GPU, few enough that their partial sums are small.
	normGroups = 512
	// longNormGroups is the same for the kernel of any C, which takes one row at a
	// time.
	longNormGroups = 2048
)

// chooseNorm gives a thread at most quads vec4s of a row where 64 threads can do
// it, so that a row needs few threads to be summed.
func chooseNorm(c, quads int) normShape {
	for _, lanes := range []int{8, 16, 32, 64} {
		if ceil(c/4, lanes) <= quads {
			return normShape{lanes, 128 / lanes, normGroups}
		}
	}
	return normShape{256, 1, normGroups}
}

// variant is the kernel of a shape for C channels; flags are its further
// constants.
func (s normShape) variant(b *Backend, name string, c int, flags ...define) *kernel {
	v := variant{name: name}
	full := c == 4*s.lanes*s.quads(c)
	v.c = [10]int32{int32(s.lanes), int32(s.rows), int32(s.quads(c)), bit(full)}
	for i, f := range flags {
		v.c[4+i] = bit(f.Value == "true")
	}
	return b.kernel(v, func() []define {
		return append([]define{u("LANES", s.lanes), u("THREADS", s.lanes*s.rows), u("QUADS", s.quads(c)), flag("FULL", full)}, flags...)
	})
}

// RMSNorm is Y = X·rms_inv·W. An operand tensor is written by the kernel for whole
// vec4s; of other rows it is rounded afterwards.
func (b *Backend) RMSNorm(a op.RMSNorm) error {
	n, cols, half, out16 := a.X.Dims[0], a.X.Dims[1], isHalf(a.W), is16(a.Y)
	shape := chooseNorm(cols, 6)
	if b.norm != nil {
		shape = *b.norm
	}
	groups := ceil(n, shape.rows)
	var k *kernel
	switch {
	case shape.fits(cols):
		k = shape.variant(b, "rmsnorm_forward_vec", cols, flag("W16", half), flag("OUT16", out16), flag("BF16", isBrain(a.Y)))
		out16 = false // no work is left
	case half:
		k, groups = b.plain("rmsnorm_forward_w16"), n
	default:
		k, groups = b.plain("rmsnorm_forward"), n
	}
	c := b.begin(k)
	c.in(a.X)
	c.in(a.W)
	if out16 {
		c.scratch(scratchWide, uint64(4*n*cols), true)
	} else {
		c.out(a.Y)
	}
	c.out(a.RMSInv)
	c.words(uint32(n), uint32(cols))
	c.words(floatBits(a.Eps))
	if err := c.groups(groups); err != nil || !out16 {
		return err
	}
	return b.narrowWide(a.Y)
}

// RMSNormBackward gives DX (added to with AddDX) and, where they are present, its
// copy, and adds to DW: in one pass for few rows, else through partial sums.
func (b *Backend) RMSNormBackward(a op.RMSNormBackward) error {
	n, cols := a.X.Dims[0], a.X.Dims[1]
	k, groups, copies := b.normBackward(a)
	c := b.begin(k)
	c.in(a.X)
	c.in(a.W)
	c.in(a.DY)
	c.in(a.RMSInv)
	c.out(a.DX)
	switch {
	case !a.DW.Ok():
		c.scratch(scratchPartials, 256, true) // which the kernel leaves alone
	case groups == 1:
		c.out(a.DW)
	default:
		c.scratch(scratchPartials, uint64(4*groups*cols), true)
	}
	c.words(uint32(n), uint32(cols))
	if copies {
		c.out(a.DXCopy)
	}
	if err := c.groups(groups); err != nil {
		return err
	}
	if !copies {
		if err := b.copyOperand(a.DXCopy, a.DX); err != nil {
			return err
		}
	}
	if groups == 1 || !a.DW.Ok() {
		return nil
	}
	c = b.begin(b.plain("rmsnorm_backward_dw"))
	c.scratch(scratchPartials, uint64(4*groups*cols), false)
	c.out(a.DW)
	c.words(uint32(groups), uint32(cols))
	return c.groups((cols + 7) / 8)
}

// copyOperand copies float32 to an operand tensor, which may be absent or src itself.
func (b *Backend) copyOperand(dst, src op.Tensor) error {
	switch {
	case !dst.Ok() || samePlace(dst, src):
		return nil
	case is16(dst):
		return b.narrow(dst, func(c *call) { c.in(src) })
	}
	return b.Copy(dst, src)
}

// normBackward is the kernel for a, how many workgroups of it, and whether it writes
// a.DXCopy too: in 16 bits, which float32 is not worth.
func (b *Backend) normBackward(a op.RMSNormBackward) (k *kernel, groups int, copies bool) {
	n, cols := a.X.Dims[0], a.X.Dims[1]
	shape := chooseNorm(cols, 3)
	if b.norm != nil {
		shape = *b.norm
	}
	flags := []define{flag("ADD_DX", a.AddDX), flag("SUM_DW", a.DW.Ok())}
	if shape.fits(cols) {
		copies = a.DXCopy.Ok() && is16(a.DXCopy)
		flags = append(flags, flag("COPY16", copies), flag("BF16", copies && isBrain(a.DXCopy)))
		return shape.variant(b, "rmsnorm_backward_vec", cols, flags...), min(shape.groups, ceil(n, shape.rows)), copies
	}
	v := variant{name: "rmsnorm_backward"}
	v.c[0] = bit(a.AddDX) | bit(a.DW.Ok())<<1
	return b.kernel(v, func() []define { return slices.Clone(flags) }), min(longNormGroups, ceil(n, 4)), false
}
