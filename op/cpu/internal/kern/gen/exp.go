package main

import "github.com/mmcloughlin/avo/operand"

// Bounds of the exponential, as in portable_exp.go: 0 below, +Inf above.
const (
	expLow  = -87.33
	expHigh = 88.722839
)

// expPoly holds q of e^r = 1 + r + r²·q(r), from the highest power down: the interpolation at five
// Chebyshev nodes of |r| ≤ ½ ln 2, relative error 1.1e-8.
var expPoly = [...]float64{0.0013926213, 0.008363203, 0.041666556, 0.16666576, 0.5}

// Comparison predicates of VCMPPS.
const (
	cmpOrdered     = 7  // neither is NaN
	cmpNotLess     = 5  // not a < b, so true for NaN
	cmpGreater     = 30 // a > b, false for NaN
	cmpUnordered   = 3
	roundToNearest = 8 // to nearest even, no exceptions
	roundDown      = 9
)

// exp returns e^x: x = n·ln 2 + r with n whole, a polynomial in r, times 2ⁿ. What that gives outside
// the bounds, where n does not fit, is replaced. NaN stays NaN.
func (s *isa) exp(x V) V {
	n := s.round(s.mul(s.f32(1.44269504088896), x), roundToNearest)
	r := s.copy(x)
	s.subMulTo(r, s.f32(0.6931471824645996), n)      // float32(ln 2)
	s.subMulTo(r, s.f32(-1.9046542121259336e-09), n) // ln 2 − float32(ln 2)
	p := s.value(s.f32(expPoly[0]))
	for _, c := range expPoly[1:] {
		s.mulAddTo(p, r, s.f32(c))
	}
	one := s.f32(1)
	s.mulAddTo(p, r, one)
	s.mulAddTo(p, r, one)
	return s.scaleByPower(p, n, x)
}

// scaleByPower returns p·2ⁿ within the bounds of x, else 0 or +Inf.
func (s *isa) scaleByPower(p, n, x V) V {
	low, high, inf := s.f32(expLow), s.f32(expHigh), s.u32(0x7f800000)
	r := s.vec()
	if s.wide() {
		normal, over := s.K(), s.K()
		s.VCMPPS_BCST(operand.U8(cmpNotLess), low.Mem, x, normal)
		s.VCMPPS_BCST(operand.U8(cmpGreater), high.Mem, x, over)
		s.VSCALEFPS_Z(n, p, normal, r)
		s.VBROADCASTSS(inf.Mem, over, r)
		return r
	}
	s.VCVTPS2DQ(n, n)
	s.VPSLLD(operand.U8(23), n, n)
	s.VPADDD(n, p, p) // into the exponent
	normal, over := s.vec(), s.vec()
	s.VCMPPS(operand.U8(cmpNotLess), low.Mem, x, normal)
	s.VCMPPS(operand.U8(cmpGreater), high.Mem, x, over)
	s.VANDPS(normal, p, p)
	s.VBLENDVPS(over, inf.Mem, p, r)
	return r
}

func (s *isa) round(x V, mode uint8) V {
	r := s.vec()
	if s.wide() {
		s.VRNDSCALEPS(operand.U8(mode), x, r)
	} else {
		s.VROUNDPS(operand.U8(mode), x, r)
	}
	return r
}

// sigmoid returns 1/(1 + e^−x).
func (s *isa) sigmoid(x V) V {
	e := s.exp(s.xor(s.u32(0x80000000), x))
	one := s.f32(1)
	return s.div(s.value(one), s.add(one, e))
}

// clamp puts x into [−bound, bound]; NaN stays NaN, because VMINPS and VMAXPS return their first
// operand (in Go's order) when one is NaN.
func (s *isa) clamp(x V, bound float64) V {
	lo, r := s.value(s.f32(-bound)), s.vec()
	s.VMAXPS(x, lo, r)
	hi := s.value(s.f32(bound))
	s.VMINPS(r, hi, r)
	return r
}
