package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// reduceUnroll is how many accumulators a reduction has: enough to hide the latency of an addition.
const reduceUnroll = 4

// emitReduce writes the loops that return sums and maxima.
func emitReduce(c *build.Context) {
	each(c, func(s *isa) {
		emitDot(s)
		emitDot3(s)
		emitMax(s)
		emitSumExp(s)
		emitSumExpSum(s)
		emitSum(s)
		emitSumSq(s)
	})
}

func (s *isa) accumulators(n int) []V {
	acc := make([]V, n)
	for i := range acc {
		acc[i] = s.zero()
	}
	return acc
}

// join combines the accumulators pairwise into the first.
func (s *isa) join(acc []V, op func(...operand.Op)) V {
	for n := len(acc); n > 1; n /= 2 {
		for i := range n / 2 {
			op(acc[i+n/2], acc[i], acc[i])
		}
	}
	return acc[0]
}

func emitDot(s *isa) {
	s.fn("dot", "func(a, b *float32, n int) float32", "returns Σ a·b.")
	a, b, n := s.arg("a"), s.arg("b"), s.arg("n")
	acc := s.accumulators(reduceUnroll)
	s.loop(n, reduceUnroll, func(u int, i G, off int, k mask) {
		s.addMulTo(acc[u], s.load(at(a, i, off), k), s.load(at(b, i, off), k))
	})
	s.returnFloat(s.reduceLanes(s.join(acc, s.VADDPS), s.VADDPS), 0)
	s.end()
}

func emitDot3(s *isa) {
	s.fn("dot3", "func(a, b, c *float32, n int) float32", "returns Σ a·b·c.")
	a, b, c, n := s.arg("a"), s.arg("b"), s.arg("c"), s.arg("n")
	acc := s.accumulators(reduceUnroll)
	s.loop(n, reduceUnroll, func(u int, i G, off int, k mask) {
		ab := s.mul(s.load(at(a, i, off), k), s.load(at(b, i, off), k))
		s.addMulTo(acc[u], ab, s.load(at(c, i, off), k))
	})
	s.returnFloat(s.reduceLanes(s.join(acc, s.VADDPS), s.VADDPS), 0)
	s.end()
}

// emitMax: with the element first (in Go's order) VMAXPS would return a NaN element, and with the
// accumulator first it passes over NaN.
func emitMax(s *isa) {
	s.fn("max", "func(x *float32, n int) float32", "returns the largest element that is not NaN, −Inf if there is none.")
	x, n := s.arg("x"), s.arg("n")
	acc := make([]V, reduceUnroll)
	negInf := s.u32(0xff800000)
	for i := range acc {
		acc[i] = s.value(negInf)
	}
	s.loop(n, reduceUnroll, func(u int, i G, off int, k mask) {
		v := s.load(at(x, i, off), k)
		if k.on() && s.wide() {
			s.VMAXPS(acc[u], v, k.k, acc[u])
			return
		}
		if k.on() {
			s.VBLENDVPS(k.v, v, acc[u], v)
		}
		s.VMAXPS(acc[u], v, acc[u])
	})
	s.returnFloat(s.reduceLanes(s.join(acc, s.VMAXPS), s.VMAXPS), 0)
	s.end()
}

func emitSumExp(s *isa) {
	s.fn("sumExp", "func(dst, x *float32, n int, factor, shift float32) float32", "sets dst = e^(x·factor−shift) and returns its sum.")
	dst, x, n := s.arg("dst"), s.arg("x"), s.arg("n")
	factor, shift := s.floatArg("factor"), s.floatArg("shift")
	acc := s.accumulators(2)
	s.loop(n, 2, func(u int, i G, off int, k mask) {
		v := s.load(at(x, i, off), k)
		s.mulSubTo(v, factor, shift)
		e := s.exp(v)
		s.store(e, at(dst, i, off), k)
		s.VADDPS(s.keep(e, k), acc[u], acc[u])
	})
	s.returnFloat(s.reduceLanes(s.join(acc, s.VADDPS), s.VADDPS), 0)
	s.end()
}

func emitSumExpSum(s *isa) {
	s.fn("sumExpSum", "func(x *float32, n int, shift float32) (e, sum float32)", "returns Σ e^(x−shift) and Σ x.")
	x, n, shift := s.arg("x"), s.arg("n"), s.floatArg("shift")
	acc, sums := s.accumulators(2), s.accumulators(2)
	s.loop(n, 2, func(u int, i G, off int, k mask) {
		v := s.load(at(x, i, off), k)
		s.VADDPS(v, sums[u], sums[u])
		s.VADDPS(s.keep(s.exp(s.sub(v, shift)), k), acc[u], acc[u])
	})
	s.returnFloat(s.reduceLanes(s.join(acc, s.VADDPS), s.VADDPS), 0)
	s.returnFloat(s.reduceLanes(s.join(sums, s.VADDPS), s.VADDPS), 1)
	s.end()
}

// halves converts a vector to two vectors of float64.
func (s *isa) halves(v V) (lo, hi V) {
	lo, hi = s.vec(), s.vec()
	if s.wide() {
		upper := s.YMM()
		s.VEXTRACTF64X4(operand.U8(1), v, upper)
		s.VCVTPS2PD(v.AsY(), lo)
		s.VCVTPS2PD(upper, hi)
		return lo, hi
	}
	upper := s.XMM()
	s.VEXTRACTF128(operand.U8(1), v, upper)
	s.VCVTPS2PD(v.AsX(), lo)
	s.VCVTPS2PD(upper, hi)
	return lo, hi
}

func emitSum(s *isa) {
	s.fn("sum", "func(x *float32, n int) float64", "returns Σ x, in float64.")
	x, n := s.arg("x"), s.arg("n")
	acc := s.accumulators(4)
	s.loop(n, 2, func(u int, i G, off int, k mask) {
		lo, hi := s.halves(s.load(at(x, i, off), k))
		s.VADDPD(lo, acc[2*u], acc[2*u])
		s.VADDPD(hi, acc[2*u+1], acc[2*u+1])
	})
	s.returnDouble(acc)
	s.end()
}

// emitSumSq: x − x is 0 for a finite x and NaN for all others, which are counted and left out.
func emitSumSq(s *isa) {
	s.fn("sumSq", "func(x *float32, n int) (sum float64, finite int)",
		"returns Σ x² over the finite elements, in float64, and the number of finite lanes, those beyond n in the last vector among them.")
	x, n := s.arg("x"), s.arg("n")
	acc, count := s.accumulators(4), s.GP64()
	s.XORQ(count, count)
	s.loop(n, 2, func(u int, i G, off int, k mask) {
		v, bits := s.finiteOnly(s.load(at(x, i, off), k))
		s.POPCNTL(bits, bits)
		s.ADDQ(bits.As64(), count)
		lo, hi := s.halves(v)
		s.VFMADD231PD(lo, lo, acc[2*u])
		s.VFMADD231PD(hi, hi, acc[2*u+1])
	})
	s.returnDouble(acc)
	s.Store(count, s.ReturnIndex(1))
	s.end()
}

// finiteOnly returns v with zeros for elements that are not finite, and a bit for each that is.
func (s *isa) finiteOnly(v V) (V, G) {
	d, bits, r := s.sub(v, v), s.GP32(), s.vec()
	if s.wide() {
		k := s.K()
		s.VCMPPS(operand.U8(cmpOrdered), d, d, k)
		s.VMOVAPS_Z(v, k, r)
		s.KMOVW(k, bits)
		return r, bits
	}
	s.VCMPPS(operand.U8(cmpOrdered), d, d, d)
	s.VANDPS(d, v, r)
	s.VMOVMSKPS(d, bits)
	return r, bits
}

// reduceLanes combines the lanes of v, halving its width each time.
func (s *isa) reduceLanes(v V, op func(...operand.Op)) V {
	x := s.toXMM(v, op)
	t := s.XMM()
	s.VPSHUFD(operand.U8(0x4e), x, t)
	op(t, x, x)
	s.VPSHUFD(operand.U8(0xb1), x, t)
	op(t, x, x)
	return x
}

// toXMM combines the 128-bit lanes of v.
func (s *isa) toXMM(v V, op func(...operand.Op)) V {
	y := v
	if s.wide() {
		y = s.YMM()
		s.VEXTRACTF64X4(operand.U8(1), v, y)
		op(y, v.AsY(), y)
	}
	x := s.XMM()
	if s.wide() { // this one reaches registers 16 to 31
		s.VEXTRACTF32X4(operand.U8(1), y.AsY(), x)
	} else {
		s.VEXTRACTF128(operand.U8(1), y.AsY(), x)
	}
	op(x, y.AsX(), x)
	return x
}

func (s *isa) returnFloat(x V, index int) { s.Store(x, s.ReturnIndex(index)) }

// returnDouble adds accumulators of float64 and their lanes.
func (s *isa) returnDouble(acc []V) {
	x := s.toXMM(s.join(acc, s.VADDPD), s.VADDPD)
	t := s.XMM()
	s.VPSHUFD(operand.U8(0x4e), x, t)
	s.VADDPD(t, x, x)
	s.Store(x, s.ReturnIndex(0))
}
