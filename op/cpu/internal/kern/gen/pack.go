package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
)

// emitPack writes the loops that copy operands into panels.
func emitPack(s *isa) {
	widths := []int{32, 12, 8, 4}
	if !s.wide() {
		widths = []int{16, 6, 4, 2}
	}
	for _, w := range widths {
		emitPackCopy(s, w)
	}
	emitPackTranspose(s)
}

// emitPackCopy: the panel's rows are contiguous in the source, so a row of it is a few plain moves.
// The panels of one source row are filled together, which touches each page of the source once.
func emitPackCopy(s *isa, width int) {
	s.fn(fmt.Sprintf("packCopy%d", width), "func(dst *float32, panelStride, panels int, src *float32, ld, k int)",
		fmt.Sprintf("copies k rows of src, ld apart, into panels of %d columns, panelStride apart.", width))
	dst, stride, panels := s.arg("dst"), s.arg("panelStride"), s.arg("panels")
	src, ld, k := s.arg("src"), s.arg("ld"), s.arg("k")
	s.SHLQ(operand.U8(2), stride)
	s.SHLQ(operand.U8(2), ld)
	d, p, n := s.GP64(), s.GP64(), s.GP64()
	s.Label("row")
	s.MOVQ(dst, d)
	s.MOVQ(src, p)
	s.MOVQ(panels, n)
	s.Label("panel")
	moveRow(s, p, d, width)
	s.ADDQ(operand.U32(uint32(4*width)), p)
	s.ADDQ(stride, d)
	s.DECQ(n)
	s.JNZ(operand.LabelRef("panel"))
	s.ADDQ(ld, src)
	s.ADDQ(operand.U32(uint32(4*width)), dst)
	s.DECQ(k)
	s.JNZ(operand.LabelRef("row"))
	s.end()
}

// moveRow copies width floats with the largest moves that fit.
func moveRow(s *isa, src, dst G, width int) {
	for off := 0; off < width; {
		from, to := operand.Mem{Base: src, Disp: 4 * off}, operand.Mem{Base: dst, Disp: 4 * off}
		var v V
		switch left := width - off; {
		case left >= s.w:
			v, off = s.vec(), off+s.w
		case left >= 8:
			v, off = s.YMM(), off+8
		case left >= 4:
			v, off = s.XMM(), off+4
		default:
			x := s.GP64()
			s.MOVQ(from, x)
			s.MOVQ(x, to)
			off += 2
			continue
		}
		s.VMOVUPS(from, v)
		s.VMOVUPS(v, to)
	}
}

// emitPackTranspose: groups of four source rows become four neighbouring columns of the panel. One
// vector of each row is transposed as 4×4 blocks, one in each 128-bit lane, and each lane then holds
// one k for two or four values of k.
func emitPackTranspose(s *isa) {
	s.fn("packTranspose", "func(dst *float32, width int, src *float32, ld, groups, k int)",
		fmt.Sprintf("sets dst[p·width+r] = src[r·ld+p] for r < 4·groups and p < k, a multiple of %d.", s.w))
	dst, width, src, ld := s.arg("dst"), s.arg("width"), s.arg("src"), s.arg("ld")
	groups, k := s.arg("groups"), s.arg("k")
	s.SHLQ(operand.U8(2), width)
	s.SHLQ(operand.U8(2), ld)
	width3, ld3 := s.GP64(), s.GP64()
	s.LEAQ(operand.Mem{Base: width, Index: width, Scale: 2}, width3)
	s.LEAQ(operand.Mem{Base: ld, Index: ld, Scale: 2}, ld3)
	d, p, n := s.GP64(), s.GP64(), s.GP64()
	s.Label("block")
	s.MOVQ(dst, d)
	s.MOVQ(src, p)
	s.MOVQ(groups, n)
	s.Label("group")
	rows := loadRows(s, p, ld, ld3)
	storeLanes(s, transpose4(s, rows), d, width, width3)
	s.ADDQ(operand.U8(16), d)
	s.LEAQ(operand.Mem{Base: p, Index: ld, Scale: 4}, p)
	s.DECQ(n)
	s.JNZ(operand.LabelRef("group"))
	step := s.GP64()
	s.MOVQ(width, step)
	s.SHLQ(operand.U8(uint8(bits.TrailingZeros(uint(s.w)))), step)
	s.ADDQ(step, dst)
	s.ADDQ(operand.U8(uint8(4*s.w)), src)
	s.SUBQ(operand.U8(uint8(s.w)), k)
	s.JNZ(operand.LabelRef("block"))
	s.end()
}

func loadRows(s *isa, p, ld, ld3 G) [4]V {
	var rows [4]V
	for r, m := range []operand.Mem{
		{Base: p}, {Base: p, Index: ld, Scale: 1}, {Base: p, Index: ld, Scale: 2}, {Base: p, Index: ld3, Scale: 1},
	} {
		rows[r] = s.vec()
		s.VMOVUPS(m, rows[r])
	}
	return rows
}

// transpose4 transposes the 4×4 block in every 128-bit lane of four vectors.
func transpose4(s *isa, r [4]V) [4]V {
	lo01, hi01, lo23, hi23 := s.vec(), s.vec(), s.vec(), s.vec()
	s.VUNPCKLPS(r[1], r[0], lo01)
	s.VUNPCKHPS(r[1], r[0], hi01)
	s.VUNPCKLPS(r[3], r[2], lo23)
	s.VUNPCKHPS(r[3], r[2], hi23)
	var c [4]V
	for i := range c {
		c[i] = s.vec()
	}
	s.VUNPCKLPD(lo23, lo01, c[0])
	s.VUNPCKHPD(lo23, lo01, c[1])
	s.VUNPCKLPD(hi23, hi01, c[2])
	s.VUNPCKHPD(hi23, hi01, c[3])
	return c
}

// storeLanes writes lane l of c[i] as the panel's row 4·l + i.
func storeLanes(s *isa, c [4]V, d, width, width3 G) {
	base := s.GP64()
	s.MOVQ(d, base)
	for l := range s.w / 4 {
		for i, m := range []operand.Mem{
			{Base: base}, {Base: base, Index: width, Scale: 1}, {Base: base, Index: width, Scale: 2}, {Base: base, Index: width3, Scale: 1},
		} {
			storeLane(s, c[i], l, m)
		}
		if l < s.w/4-1 {
			s.LEAQ(operand.Mem{Base: base, Index: width, Scale: 4}, base)
		}
	}
}

func storeLane(s *isa, v V, lane int, m operand.Mem) {
	switch {
	case lane == 0:
		s.VMOVUPS(v.AsX(), m)
	case s.wide():
		s.VEXTRACTF32X4(operand.U8(uint8(lane)), v, m)
	default:
		s.VEXTRACTF128(operand.U8(uint8(lane)), v, m)
	}
}
