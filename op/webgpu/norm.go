package webgpu

import "tezgah/op"

// RMSNorm is Y = X·rms_inv·W.
func (b *Backend) RMSNorm(a op.RMSNorm) error {
	name := "rmsnorm_forward"
	if isHalf(a.W) {
		name = "rmsnorm_forward_w16"
	}
	c := b.begin(b.plain(name))
	c.in(a.X)
	c.in(a.W)
	c.out(a.Y)
	c.out(a.RMSInv)
	n := a.X.Dims[0]
	c.words(uint32(n), uint32(a.X.Dims[1]))
	c.words(floatBits(a.Eps))
	return c.groups(n)
}

// normGroups is how many workgroups share the rows of a backward norm: enough to
// fill a large GPU, few enough that their partial sums are small.
const normGroups = 2048

// RMSNormBackward gives DX (added to with AddDX) and, where it is present, adds
// to DW: in one pass for few rows, else through partial sums.
func (b *Backend) RMSNormBackward(a op.RMSNormBackward) error {
	n, cols := a.X.Dims[0], a.X.Dims[1]
	groups := min(normGroups, (n+3)/4)
	sumDW := a.DW.Ok()
	v := variant{name: "rmsnorm_backward"}
	v.c[0] = bit(a.AddDX) | bit(sumDW)<<1
	c := b.begin(b.kernel(v, func() []define { return []define{flag("ADD_DX", a.AddDX), flag("SUM_DW", sumDW)} }))
	c.in(a.X)
	c.in(a.W)
	c.in(a.DY)
	c.in(a.RMSInv)
	c.out(a.DX)
	switch {
	case !sumDW:
		c.scratch(scratchPartials, 256, true) // which the kernel leaves alone
	case groups == 1:
		c.out(a.DW)
	default:
		c.scratch(scratchPartials, uint64(4*groups*cols), true)
	}
	c.words(uint32(n), uint32(cols))
	if err := c.groups(groups); err != nil || groups == 1 || !sumDW {
		return err
	}
	c = b.begin(b.plain("rmsnorm_backward_dw"))
	c.scratch(scratchPartials, uint64(4*groups*cols), false)
	c.out(a.DW)
	c.words(uint32(groups), uint32(cols))
	return c.groups((cols + 7) / 8)
}
