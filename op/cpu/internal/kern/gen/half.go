package main

import "github.com/mmcloughlin/avo/operand"

// emitHalf writes the half-precision conversions. They take whole vectors only; AVX2 has no masked
// store of 16-bit elements.
func emitHalf(s *isa) {
	s.fn("f32ToF16", "func(dst *uint16, src *float32, n int)", "converts n elements, a multiple of the vector, saturating at ±65504.")
	dst, src, n := s.arg("dst"), s.arg("src"), s.arg("n")
	s.Label("loop")
	v := s.clamp(s.load(operand.Mem{Base: src}, mask{}), 65504)
	s.VCVTPS2PH(operand.U8(0), v, operand.Mem{Base: dst})
	s.ADDQ(operand.U8(uint8(4*s.w)), src)
	s.ADDQ(operand.U8(uint8(2*s.w)), dst)
	s.SUBQ(operand.U8(uint8(s.w)), n)
	s.JNZ(operand.LabelRef("loop"))
	s.end()

	s.fn("f16ToF32", "func(dst *float32, src *uint16, n int)", "converts n elements, a multiple of the vector.")
	dst, src, n = s.arg("dst"), s.arg("src"), s.arg("n")
	s.Label("loop")
	v = s.vec()
	s.VCVTPH2PS(operand.Mem{Base: src}, v)
	s.VMOVUPS(v, operand.Mem{Base: dst})
	s.ADDQ(operand.U8(uint8(2*s.w)), src)
	s.ADDQ(operand.U8(uint8(4*s.w)), dst)
	s.SUBQ(operand.U8(uint8(s.w)), n)
	s.JNZ(operand.LabelRef("loop"))
	s.end()
}
