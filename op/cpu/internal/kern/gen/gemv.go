package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

// emitGemv writes the products of a few rows x (m, k) with a matrix that is read once.
func emitGemv(c *build.Context) {
	each(c, func(s *isa) {
		vectors, ntRows := []int{16, 8, 4, 4, 4, 3, 3, 2}, []int{1, 2, 4}
		if !s.wide() {
			vectors, ntRows = []int{8, 4, 3, 2, 2, 2, 1, 1}, []int{1, 2}
		}
		plain := *s
		plain.ahead = 0 // gemvNN prefetches rows itself
		for i, v := range vectors {
			g := gemvNN{isa: &plain, m: i + 1, vectors: v}
			g.emit()
		}
		for _, m := range ntRows {
			emitGemvNT(s, m)
		}
	})
}

// gemvNN adds x (m, k)·w (k, n) to y. A strip of some vectors of columns stays in registers while k
// runs; the last columns go one (masked) vector at a time.
type gemvNN struct {
	*isa
	m, vectors int
	x          []G // running pointers to rows 0 and 4 of x
	ldx, ldx3  G
}

// prefetchRows is how many rows of w ahead the loop asks for: the rows of a wide matrix lie in
// different pages, where the hardware does not look ahead.
const prefetchRows = 8

func (g *gemvNN) emit() {
	g.fn(fmt.Sprintf("gemvNN%d", g.m), "func(n, k int, x *float32, ldx int, w *float32, ldw int, y *float32, ldy int)",
		fmt.Sprintf("adds x (%d, k)·w (k, n) to y.", g.m))
	n, w, y := g.arg("n"), g.arg("w"), g.arg("y")
	g.ldx = g.arg("ldx")
	g.SHLQ(operand.U8(2), g.ldx)
	g.ldx3 = g.GP64()
	g.LEAQ(operand.Mem{Base: g.ldx, Index: g.ldx, Scale: 2}, g.ldx3)
	width := g.vectors * g.w
	g.SUBQ(operand.U32(uint32(width)), n)
	g.JL(operand.LabelRef("narrow"))
	g.Label("wide")
	g.strip("wide", w, y, g.vectors, mask{})
	g.ADDQ(operand.U32(uint32(4*width)), w)
	g.ADDQ(operand.U32(uint32(4*width)), y)
	g.SUBQ(operand.U32(uint32(width)), n)
	g.JGE(operand.LabelRef("wide"))
	g.Label("narrow")
	g.ADDQ(operand.U32(uint32(width)), n)
	g.JZ(operand.LabelRef("done"))
	g.Label("vector")
	cols := g.GP64()
	g.MOVQ(operand.U32(uint32(g.w)), cols)
	g.CMPQ(n, cols)
	g.CMOVQLT(n, cols)
	g.strip("narrow", w, y, 1, g.tailMask(cols))
	g.ADDQ(operand.U8(uint8(4*g.w)), w)
	g.ADDQ(operand.U8(uint8(4*g.w)), y)
	g.SUBQ(operand.U8(uint8(g.w)), n)
	g.JG(operand.LabelRef("vector"))
	g.Label("done")
	g.end()
}

// strip runs over k for some vectors of columns and adds the sums to y.
func (g *gemvNN) strip(label string, w, y G, vectors int, tail mask) {
	acc := make([][]V, g.m)
	for r := range acc {
		acc[r] = g.accumulators(vectors)
	}
	g.x = []G{g.arg("x")}
	if g.m > 4 {
		g.x = append(g.x, g.GP64())
		g.LEAQ(operand.Mem{Base: g.x[0], Index: g.ldx, Scale: 4}, g.x[1])
	}
	row, ldw, left, ahead := g.GP64(), g.arg("ldw"), g.arg("k"), g.GP64()
	g.SHLQ(operand.U8(2), ldw)
	g.MOVQ(w, row)
	g.LEAQ(operand.Mem{Base: row, Index: ldw, Scale: prefetchRows}, ahead)
	g.Label(label + "Step")
	for line := 0; line < 4*g.w*vectors; line += 64 {
		g.PREFETCHT0(operand.Mem{Base: ahead, Disp: line})
	}
	g.multiplyRow(acc, row, vectors, tail)
	for _, p := range g.x {
		g.ADDQ(operand.U8(4), p)
	}
	g.ADDQ(ldw, row)
	g.ADDQ(ldw, ahead)
	g.DECQ(left)
	g.JNZ(operand.LabelRef(label + "Step"))
	g.addTo(acc, y, tail)
}

// multiplyRow adds one row of w times its column of x.
func (g *gemvNN) multiplyRow(acc [][]V, row G, vectors int, tail mask) {
	if g.m == 1 && !tail.on() {
		x := g.bcast(g.elementX(0))
		for v := range vectors {
			g.addMulTo(acc[0][v], operand.Mem{Base: row, Disp: 4 * g.w * v}, x)
		}
		return
	}
	w := make([]V, vectors)
	for v := range w {
		w[v] = g.load(operand.Mem{Base: row, Disp: 4 * g.w * v}, tail)
	}
	for r := range g.m {
		x := g.bcast(g.elementX(r))
		for v := range w {
			g.addMulTo(acc[r][v], w[v], x)
		}
	}
}

func (g *gemvNN) elementX(r int) operand.Mem {
	p := operand.Mem{Base: g.x[r/4]}
	switch r % 4 {
	case 1:
		p.Index, p.Scale = g.ldx, 1
	case 2:
		p.Index, p.Scale = g.ldx, 2
	case 3:
		p.Index, p.Scale = g.ldx3, 1
	}
	return p
}

func (g *gemvNN) addTo(acc [][]V, y G, tail mask) {
	p, ldy := g.GP64(), g.arg("ldy")
	g.SHLQ(operand.U8(2), ldy)
	g.MOVQ(y, p)
	for r := range acc {
		for v, sum := range acc[r] {
			m := operand.Mem{Base: p, Disp: 4 * g.w * v}
			g.store(g.add(g.load(m, tail), sum), m, tail)
		}
		if r < len(acc)-1 {
			g.ADDQ(ldy, p)
		}
	}
}

// emitGemvNT: dot products of m rows of x with four rows of w. A caller that has fewer rows of w
// passes ldw 0 and uses one result.
func emitGemvNT(s *isa, m int) {
	s.fn(fmt.Sprintf("gemvNT%d", m), "func(k int, x *float32, ldx int, w *float32, ldw int, out *float32)",
		fmt.Sprintf("sets out (%d, 4) to x (%d, k)·wᵀ for w (4, k).", m, m))
	k, x, ldx, w, ldw := s.arg("k"), s.arg("x"), s.arg("ldx"), s.arg("w"), s.arg("ldw")
	s.SHLQ(operand.U8(2), ldx)
	s.SHLQ(operand.U8(2), ldw)
	xs, ws := s.rowPointers(x, ldx, m), s.rowPointers(w, ldw, 4)
	acc := make([][]V, m)
	for r := range acc {
		acc[r] = s.accumulators(4)
	}
	s.loop(k, 1, func(_ int, i G, off int, tail mask) {
		var wv [4]V
		for q := range wv {
			wv[q] = s.load(at(ws[q], i, off), tail)
		}
		for r := range acc {
			xv := s.load(at(xs[r], i, off), tail)
			for q := range wv {
				s.addMulTo(acc[r][q], wv[q], xv)
			}
		}
	})
	out := s.arg("out")
	for r := range acc {
		for q, v := range acc[r] {
			s.VMOVSS(s.reduceLanes(v, s.VADDPS), operand.Mem{Base: out, Disp: 4 * (4*r + q)})
		}
	}
	s.end()
}

func (s *isa) rowPointers(base, ld G, n int) []G {
	p := []G{base}
	for len(p) < n {
		next := s.GP64()
		s.LEAQ(operand.Mem{Base: p[len(p)-1], Index: ld, Scale: 1}, next)
		p = append(p, next)
	}
	return p
}
