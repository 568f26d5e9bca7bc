package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

const microSig = "func(k int, a *float32, rsa, csa int, b *float32, ldb int, c *float32, ldc int, accumulate bool, next *float32)"

// emitGemm writes the micro-kernels, the packing loops, PAUSE and the loop that measures the peak.
func emitGemm(c *build.Context) {
	each(c, func(s *isa) {
		rows := []int{12, 8, 4}
		if !s.wide() {
			rows = []int{6, 4, 2}
		}
		for _, r := range rows {
			m := microKernel{isa: s, rows: r}
			m.emit(0)
			m.emit(r)
		}
		emitPack(s)
		emitPeak(s)
	})
	c.Function("pauseAsm")
	c.Attributes(attr.NOSPLIT)
	c.SignatureExpr("func()")
	c.Doc("pauseAsm is one PAUSE instruction.")
	c.PAUSE()
	c.RET()
}

// microKernel computes rows × 2 vectors of C in registers. Per step of k it loads two vectors of B,
// broadcasts rows elements of A and issues 2·rows fused multiply-adds.
type microKernel struct {
	*isa
	rows int
	acc  [][2]V
	next G   // what the following tiles will read, prefetched into the second-level cache
	a    []G // pointers to rows 0, 4, 8 of A, or only to row 0 when packed
	rsa  G
	rsa3 G
}

// unrollK is how many steps of k the main loop takes at once.
const unrollK = 4

// emit writes the kernel. packed is 0 for any strides of A and B; otherwise it is the width of a
// packed panel of A, B is packed too, and rsa, csa and ldb are ignored.
func (m *microKernel) emit(packed int) {
	name, doc := "micro", "computes C (%d, %d) = A·B, or adds to C. Element (i, k) of A is a[i·rsa+k·csa]; strides count elements."
	if packed > 0 {
		name, doc = "microPacked", "is the same for packed panels of A (%d rows) and B (%d columns); rsa, csa and ldb are not used."
	}
	m.fn(fmt.Sprintf("%s%d", name, m.rows), microSig, fmt.Sprintf(doc, m.rows, 2*m.w))
	k, b, c, ldc := m.arg("k"), m.arg("b"), m.arg("c"), m.arg("ldc")
	m.SHLQ(operand.U8(2), ldc)
	m.prefetchC(c, ldc)
	csa, ldb := m.pointersToA(packed)
	m.next = m.arg("next")
	m.acc = make([][2]V, m.rows)
	for i := range m.acc {
		m.acc[i] = [2]V{m.zero(), m.zero()}
	}
	m.sumOverK(k, b, ldb, csa, packed)
	m.writeC(c, ldc)
}

// pointersToA loads the addresses and, unless packed, the strides in bytes.
func (m *microKernel) pointersToA(packed int) (csa, ldb G) {
	m.a = []G{m.arg("a")}
	if packed > 0 {
		return nil, nil
	}
	m.rsa, csa, ldb = m.arg("rsa"), m.arg("csa"), m.arg("ldb")
	for _, r := range []G{m.rsa, csa, ldb} {
		m.SHLQ(operand.U8(2), r)
	}
	m.rsa3 = m.GP64()
	m.LEAQ(operand.Mem{Base: m.rsa, Index: m.rsa, Scale: 2}, m.rsa3)
	for len(m.a)*4 < m.rows {
		next := m.GP64()
		m.LEAQ(operand.Mem{Base: m.a[len(m.a)-1], Index: m.rsa, Scale: 4}, next)
		m.a = append(m.a, next)
	}
	return csa, ldb
}

// prefetchC asks for the tile of C, which is read and written only at the end.
func (m *microKernel) prefetchC(c, ldc G) {
	p := m.GP64()
	m.MOVQ(c, p)
	for i := range m.rows {
		m.PREFETCHT0(operand.Mem{Base: p})
		m.PREFETCHT0(operand.Mem{Base: p, Disp: 8*m.w - 4})
		if i < m.rows-1 {
			m.ADDQ(ldc, p)
		}
	}
}

// sumOverK is the inner loop: unrollK steps at a time, then the rest one by one.
func (m *microKernel) sumOverK(k, b, ldb, csa G, packed int) {
	const loop, rest, single, done = "loop", "rest", "single", "done"
	m.SUBQ(operand.U8(unrollK), k)
	m.JL(operand.LabelRef(rest))
	m.Label(loop)
	m.PREFETCHT1(operand.Mem{Base: m.next})
	m.ADDQ(operand.U8(64), m.next)
	for u := range unrollK {
		m.step(b, ldb, csa, packed, u)
	}
	m.advance(b, packed, unrollK)
	m.SUBQ(operand.U8(unrollK), k)
	m.JGE(operand.LabelRef(loop))
	m.Label(rest)
	m.ADDQ(operand.U8(unrollK), k)
	m.JZ(operand.LabelRef(done))
	m.Label(single)
	m.step(b, ldb, csa, packed, 0)
	m.advance(b, packed, 1)
	m.DECQ(k)
	m.JNZ(operand.LabelRef(single))
	m.Label(done)
}

// step adds one k. With strides it moves the pointers on itself; packed operands are addressed by u.
func (m *microKernel) step(b, ldb, csa G, packed, u int) {
	disp := 0
	if packed > 0 {
		disp = 8 * m.w * u
		for line := 0; line < 8*m.w; line += 64 {
			m.PREFETCHT0(operand.Mem{Base: b, Disp: disp + line + prefetchB})
		}
	}
	b0, b1 := m.vec(), m.vec()
	m.VMOVUPS(operand.Mem{Base: b, Disp: disp}, b0)
	m.VMOVUPS(operand.Mem{Base: b, Disp: disp + 4*m.w}, b1)
	for i := range m.rows {
		x := m.bcast(m.elementA(i, packed, u))
		m.addMulTo(m.acc[i][0], b0, x)
		m.addMulTo(m.acc[i][1], b1, x)
	}
	if packed == 0 {
		for _, p := range m.a {
			m.ADDQ(csa, p)
		}
		m.ADDQ(ldb, b)
	}
}

// prefetchB is how far ahead of its use the packed B is asked for, in bytes.
const prefetchB = 1024

func (m *microKernel) elementA(i, packed, u int) operand.Mem {
	if packed > 0 {
		return operand.Mem{Base: m.a[0], Disp: 4 * (u*packed + i)}
	}
	p := operand.Mem{Base: m.a[i/4]}
	switch i % 4 {
	case 1:
		p.Index, p.Scale = m.rsa, 1
	case 2:
		p.Index, p.Scale = m.rsa, 2
	case 3:
		p.Index, p.Scale = m.rsa3, 1
	}
	return p
}

func (m *microKernel) advance(b G, packed, steps int) {
	if packed == 0 {
		return
	}
	m.ADDQ(operand.I32(int32(4*packed*steps)), m.a[0])
	m.ADDQ(operand.I32(int32(8*m.w*steps)), b)
}

// writeC stores the tile, after adding the old one if asked to.
func (m *microKernel) writeC(c, ldc G) {
	flag := m.GP64()
	m.MOVBQZX(operand.NewParamAddr("accumulate", 64), flag)
	m.TESTQ(flag, flag)
	m.JZ(operand.LabelRef("store"))
	p := m.GP64()
	m.MOVQ(c, p)
	for i, acc := range m.acc {
		for h, v := range acc {
			m.VADDPS(operand.Mem{Base: p, Disp: 4 * m.w * h}, v, v)
		}
		if i < m.rows-1 {
			m.ADDQ(ldc, p)
		}
	}
	m.Label("store")
	for i, acc := range m.acc {
		for h, v := range acc {
			m.VMOVUPS(v, operand.Mem{Base: c, Disp: 4 * m.w * h})
		}
		if i < m.rows-1 {
			m.ADDQ(ldc, c)
		}
	}
	m.end()
}

// emitPeak writes the loop that measures the fused multiply-add peak: as many accumulators as the
// micro-kernel of the most rows has, and no memory.
func emitPeak(s *isa) {
	accs := 24
	if !s.wide() {
		accs = 12
	}
	s.fn("fmaPeak", "func(iters int)", fmt.Sprintf("issues %d·%d independent fused multiply-adds an iteration.", 4, accs))
	n := s.arg("iters")
	x, y := s.zero(), s.zero()
	acc := make([]V, accs)
	for i := range acc {
		acc[i] = s.zero()
	}
	s.Label("loop")
	for range 4 {
		for _, a := range acc {
			s.addMulTo(a, x, y)
		}
	}
	s.DECQ(n)
	s.JNZ(operand.LabelRef("loop"))
	s.end()
}
