package main

import (
	"fmt"
	"math/bits"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// emitPack writes the loops that copy operands into panels.
func emitPack(s *isa) {
	widths := []int{32, 12}
	if !s.wide() {
		widths = []int{16, 6}
	}
	for _, w := range widths {
		p := packCopy{isa: s, width: w}
		p.emit()
	}
	emitPackTranspose(s)
}

// packCopy emits the loop for operands whose panel rows are contiguous in the source, so that a row of
// a panel is a few plain moves. The panels of one source row are filled together, which touches each
// page of the source once.
type packCopy struct {
	*isa
	width                   int
	dst, stride, src, ld, k G
	ld3, ahead              G
}

// packAhead is how many rows ahead the source is prefetched. Its rows are often in different pages,
// where the hardware does not look ahead.
const packAhead = 8

func (p *packCopy) emit() {
	p.fn(fmt.Sprintf("packCopy%d", p.width), "func(dst *float32, panelStride, panels int, src *float32, ld, k int)",
		fmt.Sprintf("copies k rows of src, ld apart, into panels of %d columns, panelStride apart.", p.width))
	p.dst, p.stride, p.src, p.ld, p.k = p.arg("dst"), p.arg("panelStride"), p.arg("src"), p.arg("ld"), p.arg("k")
	p.SHLQ(operand.U8(2), p.stride)
	p.SHLQ(operand.U8(2), p.ld)
	p.ahead = p.GP64()
	p.IMUL3Q(operand.U8(packAhead), p.ld, p.ahead)
	if p.wide() && p.width == 12 {
		p.fourRows()
	}
	p.Label("row")
	p.overPanels("panel", func(from, to G) {
		for off := 0; off < 4*p.width; off += 64 {
			p.PREFETCHT0(operand.Mem{Base: from, Index: p.ahead, Scale: 1, Disp: off})
		}
		moveRow(p.isa, from, to, p.width)
	})
	p.ADDQ(p.ld, p.src)
	p.ADDQ(operand.U32(uint32(4*p.width)), p.dst)
	p.DECQ(p.k)
	p.JNZ(operand.LabelRef("row"))
	p.Label("done")
	p.end()
}

// overPanels runs body for the same rows of every panel.
func (p *packCopy) overPanels(label string, body func(from, to G)) {
	from, to, n := p.GP64(), p.GP64(), p.arg("panels")
	p.MOVQ(p.src, from)
	p.MOVQ(p.dst, to)
	p.Label(label)
	body(from, to)
	p.ADDQ(operand.U32(uint32(4*p.width)), from)
	p.ADDQ(p.stride, to)
	p.DECQ(n)
	p.JNZ(operand.LabelRef(label))
}

// fourRows packs panels of 12 columns four rows at a time, as three whole cache lines, while so many
// rows are left.
func (p *packCopy) fourRows() {
	low12, high4, high12 := p.constMask(0x0fff), p.constMask(0xf000), p.constMask(0xfff0)
	p.ld3 = p.GP64()
	p.LEAQ(operand.Mem{Base: p.ld, Index: p.ld, Scale: 2}, p.ld3)
	p.SUBQ(operand.U8(4), p.k)
	p.JL(operand.LabelRef("rest"))
	p.Label("rows4")
	p.overPanels("panel4", func(from, to G) {
		row := func(r, disp int) operand.Mem {
			switch m := (operand.Mem{Base: from, Disp: disp}); r {
			case 0:
				return m
			case 3:
				return m.Idx(p.ld3, 1)
			default:
				return m.Idx(p.ld, uint8(r))
			}
		}
		far := p.GP64()
		p.LEAQ(operand.Mem{Base: from, Index: p.ahead, Scale: 1}, far)
		p.PREFETCHT0(operand.Mem{Base: far})
		p.PREFETCHT0(operand.Mem{Base: far, Index: p.ld, Scale: 1})
		p.PREFETCHT0(operand.Mem{Base: far, Index: p.ld, Scale: 2})
		p.PREFETCHT0(operand.Mem{Base: far, Index: p.ld3, Scale: 1})
		a, b, c := p.ZMM(), p.ZMM(), p.ZMM()
		p.VMOVUPS_Z(row(0, 0), low12, a)
		p.VBROADCASTF32X4(row(1, 0), high4, a)
		p.VMOVUPS(row(1, 16), b.AsY())
		p.VINSERTF32X8(operand.U8(1), row(2, 0), b, b)
		p.VMOVUPS(row(2, 32), c.AsX())
		p.VMOVUPS(row(3, -16), high12, c)
		p.VMOVUPS(a, operand.Mem{Base: to})
		p.VMOVUPS(b, operand.Mem{Base: to, Disp: 64})
		p.VMOVUPS(c, operand.Mem{Base: to, Disp: 128})
	})
	p.LEAQ(operand.Mem{Base: p.src, Index: p.ld, Scale: 4}, p.src)
	p.ADDQ(operand.U32(4*4*12), p.dst)
	p.SUBQ(operand.U8(4), p.k)
	p.JGE(operand.LabelRef("rows4"))
	p.Label("rest")
	p.ADDQ(operand.U8(4), p.k)
	p.JZ(operand.LabelRef("done"))
}

func (s *isa) constMask(bits uint32) reg.OpmaskVirtual {
	x, k := s.GP32(), s.K()
	s.MOVL(operand.U32(bits), x)
	s.KMOVW(x, k)
	return k
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
