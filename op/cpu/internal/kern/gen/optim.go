package main

import (
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// adamwFields are the constants in package kern's adamwArgs, in order, four bytes each.
var adamwFields = []string{"beta1", "omb1", "beta2", "omb2", "clip", "step", "invBias2", "eps", "decay"}

// emitOptim writes the optimizer's loops.
func emitOptim(c *build.Context) {
	each(c, func(s *isa) {
		emitAdamW(s, "adamw", false)
		emitAdamW(s, "adamwFinite", true)
		emitAdamW8Update(s, "adamw8Update", false)
		emitAdamW8Update(s, "adamw8UpdateFinite", true)
		emitAdamW8Store(s)
	})
}

// adamwConsts broadcasts the fields of the struct at h.
func adamwConsts(s *isa, h G) map[string]V {
	c := map[string]V{}
	for i, f := range adamwFields {
		c[f] = s.bcast(operand.Mem{Base: h, Disp: 4 * i})
	}
	return c
}

// adamwStep is one vector of the update, in the order of adamwArgs.update. It returns new w, m, v.
func adamwStep(s *isa, c map[string]V, w, g, m, v V, finite bool) (w1, m1, v1 V) {
	if finite {
		g, _ = s.finiteOnly(g)
	}
	g = s.mul(g, c["clip"])
	m1 = s.mul(m, c["beta1"])
	s.addMulTo(m1, g, c["omb1"])
	v1 = s.mul(v, c["beta2"])
	s.addMulTo(v1, s.mul(g, g), c["omb2"])
	denom := s.add(c["eps"], s.sqrt(s.mul(v1, c["invBias2"])))
	u := s.div(m1, denom)
	w1 = s.copy(w)
	s.subMulTo(w1, w, c["decay"])
	s.subMulTo(w1, u, c["step"])
	return w1, m1, v1
}

func emitAdamW(s *isa, name string, finite bool) {
	s.fn(name, "func(w, grad, m, v *float32, n int, h *float32)", "updates n weights and moments.")
	w, g, m, v, n := s.arg("w"), s.arg("grad"), s.arg("m"), s.arg("v"), s.arg("n")
	c := adamwConsts(s, s.arg("h"))
	restore := flushSubnormals(s)
	s.loop(n, 2, func(_ int, i G, off int, k mask) {
		w1, m1, v1 := adamwStep(s, c, s.load(at(w, i, off), k), s.load(at(g, i, off), k),
			s.load(at(m, i, off), k), s.load(at(v, i, off), k), finite)
		s.store(w1, at(w, i, off), k)
		s.store(m1, at(m, i, off), k)
		s.store(v1, at(v, i, off), k)
	})
	restore()
	s.end()
}

// flushSubnormals makes subnormal numbers 0 until the code it returns. The moments of a weight that
// gets no gradient decay into that range, stay there, and cost a hundred times as much to handle.
func flushSubnormals(s *isa) (restore func()) {
	const flushToZero, zeroSubnormals = 1 << 15, 1 << 6
	saved, ours, word := s.AllocLocal(8), s.AllocLocal(8), s.GP32()
	s.VSTMXCSR(saved)
	s.MOVL(saved, word)
	s.ORL(operand.U32(flushToZero|zeroSubnormals), word)
	s.MOVL(word, ours)
	s.VLDMXCSR(ours)
	return func() { s.VLDMXCSR(saved) }
}

// emitAdamW8Update: the first pass over a block of 8-bit moments. n is a multiple of the vector.
func emitAdamW8Update(s *isa, name string, finite bool) {
	s.fn(name, "func(w, grad *float32, m8 *int8, v8 *uint8, n int, h *float32, mScale, vScale float32, m, root *float32) (maxM, maxRoot float32)",
		"updates the weights, writes the new moment and root of the second moment to m and root, and returns their largest magnitudes.")
	w, g, m8, v8, n := s.arg("w"), s.arg("grad"), s.arg("m8"), s.arg("v8"), s.arg("n")
	mOut, rootOut := s.arg("m"), s.arg("root")
	h := s.arg("h")
	maxM, maxV := s.zero(), s.zero()
	i := s.GP64()
	s.XORQ(i, i)
	s.Label("loop")
	c := adamwConsts(s, h)
	m := s.mul(s.floatArg("mScale"), s.fromBytes(operand.Mem{Base: m8, Index: i, Scale: 1}, s.VPMOVSXBD))
	root := s.mul(s.floatArg("vScale"), s.fromBytes(operand.Mem{Base: v8, Index: i, Scale: 1}, s.VPMOVZXBD))
	w1, m1, v1 := adamwStep(s, c, s.load(at(w, i, 0), mask{}), s.load(at(g, i, 0), mask{}), m, s.mul(root, root), finite)
	root1 := s.sqrt(v1)
	s.VMOVUPS(w1, at(w, i, 0))
	s.VMOVUPS(m1, at(mOut, i, 0))
	s.VMOVUPS(root1, at(rootOut, i, 0))
	s.VMAXPS(maxM, s.and(s.u32(0x7fffffff), m1), maxM)
	s.VMAXPS(maxV, root1, maxV)
	s.ADDQ(operand.U8(uint8(s.w)), i)
	s.CMPQ(i, n)
	s.JL(operand.LabelRef("loop"))
	s.returnFloat(s.reduceLanes(maxM, s.VMAXPS), 0)
	s.returnFloat(s.reduceLanes(maxV, s.VMAXPS), 1)
	s.end()
}

// fromBytes reads a vector of bytes as floats.
func (s *isa) fromBytes(m operand.Mem, extend func(...operand.Op)) V {
	v := s.vec()
	extend(m, v)
	s.VCVTDQ2PS(v, v)
	return v
}

// emitAdamW8Store: the second pass, which rounds the moments to codes; see portable_adamw8.go.
func emitAdamW8Store(s *isa) {
	s.fn("adamw8Store", "func(w, m, root *float32, m8 *int8, v8 *uint8, n int, invM, invRoot float32)",
		"writes the codes of n moments, a multiple of the vector, given the inverse scales.")
	w, m, root, m8, v8, n := s.arg("w"), s.arg("m"), s.arg("root"), s.arg("m8"), s.arg("v8"), s.arg("n")
	invM, invRoot := s.floatArg("invM"), s.floatArg("invRoot")
	i := s.GP64()
	s.XORQ(i, i)
	s.Label("loop")
	mv, rv := s.load(at(m, i, 0), mask{}), s.load(at(root, i, 0), mask{})
	u := dither(s, s.load(at(w, i, 0), mask{}), mv)
	cm := code(s, mv, invM, u, -127, 127)
	cv := code(s, rv, invRoot, u, 0, 255)
	s.VPMAXSD(cv, nonZero(s, rv), cv)
	s.toBytes(cm, operand.Mem{Base: m8, Index: i, Scale: 1}, true)
	s.toBytes(cv, operand.Mem{Base: v8, Index: i, Scale: 1}, false)
	s.ADDQ(operand.U8(uint8(s.w)), i)
	s.CMPQ(i, n)
	s.JL(operand.LabelRef("loop"))
	s.end()
}

// dither hashes weight and moment into [0, 1).
func dither(s *isa, w, m V) V {
	h := s.mulInt(m, 0x85ebca6b)
	h = s.mulInt(s.xor(w, h), 0x9e3779b1)
	t := s.vec()
	s.VPSRLD(operand.U8(15), h, t)
	h = s.mulInt(s.xor(t, h), 0x2c1b3c6d)
	s.VPSRLD(operand.U8(8), h, h)
	s.VCVTDQ2PS(h, h)
	return s.mul(s.f32(1.0/(1<<24)), h)
}

func (s *isa) mulInt(v V, by uint32) V {
	r, k := s.vec(), s.u32(by)
	if s.wide() {
		s.VPMULLD_BCST(k.Mem, v, r)
	} else {
		s.VPMULLD(k.Mem, v, r)
	}
	return r
}

// code is ⌊x·inv + u⌋ within [lo, hi], as integers. A NaN becomes lo.
func code(s *isa, x, inv, u V, lo, hi float64) V {
	c := s.copy(u)
	s.addMulTo(c, x, inv)
	c = s.round(c, roundDown)
	bound, r := s.value(s.f32(lo)), s.vec()
	s.VMAXPS(bound, c, r)
	s.VMINPS(s.value(s.f32(hi)), r, r)
	s.VCVTTPS2DQ(r, r)
	return r
}

// nonZero is the integer 1 where x > 0 and 0 elsewhere.
func nonZero(s *isa, x V) V {
	r := s.vec()
	if s.wide() {
		k, zero := s.K(), s.zero()
		s.VCMPPS(operand.U8(cmpGreater), zero, x, k)
		s.VPBROADCASTD_Z(s.u32(1).Mem, k, r)
		return r
	}
	s.VCMPPS(operand.U8(cmpGreater), s.zero(), x, r)
	s.VPSRLD(operand.U8(31), r, r)
	return r
}

// toBytes stores the low bytes of integers that fit into a byte.
func (s *isa) toBytes(v V, m operand.Mem, signed bool) {
	if s.wide() {
		s.VPMOVDB(v, m)
		return
	}
	x := s.XMM()
	s.VEXTRACTF128(operand.U8(1), v, x)
	s.VPACKSSDW(x, v.AsX(), x)
	if signed {
		s.VPACKSSWB(x, x, x)
	} else {
		s.VPACKUSWB(x, x, x)
	}
	s.VMOVQ(x, m)
}
