package main

import (
	"fmt"
	"math"
	"sort"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

type (
	// V is a vector register of the instruction set in use.
	V = reg.VecVirtual
	// G is a 64-bit general register.
	G = reg.GPVirtual
)

// isa emits code for one instruction set. Operands of its methods come in Go's order: sources first,
// destination last.
type isa struct {
	*build.Context
	w      int    // floats in a vector: 8 for AVX2, 16 for AVX-512
	suffix string // of function names
	consts *constants
	ahead  int // bytes that plain loads prefetch ahead, 0 for none
}

// vectorAhead is how many bytes ahead of a load the vector loops prefetch. The hardware's own
// prefetching stops at page ends; with this, loops that only read are a fifth to a quarter faster.
const vectorAhead = 2048

// each emits something for both instruction sets, with one shared table of constants.
func each(c *build.Context, f func(s *isa)) {
	k := &constants{vals: map[string][]uint32{}}
	f(&isa{c, 8, "AVX2", k, vectorAhead})
	f(&isa{c, 16, "AVX512", k, vectorAhead})
	k.emit(c)
}

func (s *isa) wide() bool { return s.w == 16 }

// fn begins a function; sig is its Go signature without the name.
func (s *isa) fn(name, sig, doc string) {
	s.Function(name + s.suffix)
	s.Doc(name + s.suffix + " " + doc)
	s.Pragma("noescape")
	s.Attributes(attr.NOSPLIT)
	s.SignatureExpr(sig)
}

// end leaves the function. Without VZEROUPPER, scalar floating point afterwards would run several
// times slower.
func (s *isa) end() {
	s.VZEROUPPER()
	s.RET()
}

func (s *isa) vec() V {
	if s.wide() {
		return s.ZMM()
	}
	return s.YMM()
}

func (s *isa) arg(name string) G { return s.Load(s.Param(name), s.GP64()).(G) }

// floatArg broadcasts a float32 parameter.
func (s *isa) floatArg(name string) V {
	addr, err := s.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	return s.bcast(addr.Addr)
}

func (s *isa) bcast(m operand.Mem) V {
	v := s.vec()
	s.VBROADCASTSS(m, v)
	return v
}

func (s *isa) zero() V {
	v := s.vec()
	s.clear(v)
	return v
}

func (s *isa) clear(v V) {
	if s.wide() {
		s.VPXORD(v, v, v)
	} else {
		s.VXORPS(v, v, v)
	}
}

// mask selects the elements of a tail: an opmask register on AVX-512, a vector of sign bits on AVX2.
// The zero mask selects all.
type mask struct {
	k reg.OpmaskVirtual
	v V
}

func (m mask) on() bool { return m.k != nil || m.v != nil }

// tailMask selects the first n elements, 0 < n < w.
func (s *isa) tailMask(n G) mask {
	if s.wide() {
		ones, k := s.GP32(), s.K()
		s.MOVL(operand.U32(0xffff), ones)
		s.BZHIL(n.As32(), ones, ones)
		s.KMOVW(ones, k)
		return mask{k: k}
	}
	table := s.consts.ref("maskTable", tailTable())
	p, v := s.GP64(), s.vec()
	s.LEAQ(table, p)
	s.SHLQ(operand.U8(2), n)
	s.SUBQ(n, p)
	s.VMOVUPS(operand.Mem{Base: p, Disp: 32}, v)
	s.SHRQ(operand.U8(2), n)
	return mask{v: v}
}

// tailTable is eight words of ones and eight of zeros: reading from 8−n words in gives n ones.
func tailTable() []uint32 {
	t := make([]uint32, 16)
	for i := range 8 {
		t[i] = ^uint32(0)
	}
	return t
}

// load reads a vector, with zeros where the mask is off.
func (s *isa) load(m operand.Mem, k mask) V {
	v := s.vec()
	switch {
	case !k.on():
		if s.ahead > 0 && m.Disp%64 == 0 {
			s.PREFETCHT0(m.Offset(s.ahead))
		}
		s.VMOVUPS(m, v)
	case s.wide():
		s.VMOVUPS_Z(m, k.k, v)
	default:
		s.VMASKMOVPS(m, k.v, v)
	}
	return v
}

func (s *isa) store(v V, m operand.Mem, k mask) {
	switch {
	case !k.on():
		s.VMOVUPS(v, m)
	case s.wide():
		s.VMOVUPS(v, k.k, m)
	default:
		s.VMASKMOVPS(v, k.v, m)
	}
}

// keep returns v with zeros where the mask is off.
func (s *isa) keep(v V, k mask) V {
	if !k.on() {
		return v
	}
	r := s.vec()
	if s.wide() {
		s.VMOVAPS_Z(v, k.k, r)
	} else {
		s.VANDPS(k.v, v, r)
	}
	return r
}

// konst is a constant in memory, repeated over a vector. AVX-512 instructions read one word of it and
// broadcast it themselves, which never straddles a cache line.
type konst struct{ operand.Mem }

// The arithmetic below returns a new register, except for the methods that end in To. The first
// operand of mul, add, and, xor, addMulTo and subMulTo may be a konst.

func (s *isa) op3(plain, bcast func(...operand.Op), a operand.Op, b, r V) {
	if k, ok := a.(konst); ok {
		if s.wide() {
			bcast(k.Mem, b, r)
			return
		}
		a = k.Mem
	}
	plain(a, b, r)
}

func (s *isa) mul(a operand.Op, b V) V {
	r := s.vec()
	s.op3(s.VMULPS, s.VMULPS_BCST, a, b, r)
	return r
}
func (s *isa) add(a operand.Op, b V) V {
	r := s.vec()
	s.op3(s.VADDPS, s.VADDPS_BCST, a, b, r)
	return r
}
func (s *isa) and(a operand.Op, b V) V {
	r := s.vec()
	s.op3(s.VANDPS, s.VANDPS_BCST, a, b, r)
	return r
}
func (s *isa) xor(a operand.Op, b V) V {
	r := s.vec()
	s.op3(s.VXORPS, s.VXORPS_BCST, a, b, r)
	return r
}

// addMulTo sets acc += a·b, and subMulTo acc −= a·b, rounding once.
func (s *isa) addMulTo(acc V, a operand.Op, b V) { s.op3(s.VFMADD231PS, s.VFMADD231PS_BCST, a, b, acc) }
func (s *isa) subMulTo(acc V, a operand.Op, b V) {
	s.op3(s.VFNMADD231PS, s.VFNMADD231PS_BCST, a, b, acc)
}

// mulAddTo sets p = p·x + c, and mulSubTo p = p·x − c, rounding once.
func (s *isa) mulAddTo(p V, x V, c operand.Op) { s.op3(s.VFMADD213PS, s.VFMADD213PS_BCST, c, x, p) }
func (s *isa) mulSubTo(p V, x V, c operand.Op) { s.op3(s.VFMSUB213PS, s.VFMSUB213PS_BCST, c, x, p) }

// sub returns a − b.
func (s *isa) sub(a V, b operand.Op) V { r := s.vec(); s.VSUBPS(b, a, r); return r }

// div returns a / b.
func (s *isa) div(a V, b operand.Op) V { r := s.vec(); s.VDIVPS(b, a, r); return r }

func (s *isa) sqrt(a V) V { r := s.vec(); s.VSQRTPS(a, r); return r }

func (s *isa) copy(a V) V { r := s.vec(); s.VMOVAPS(a, r); return r }

// value loads a constant into a register.
func (s *isa) value(k konst) V { return s.bcast(k.Mem) }

// at is the address base + 4·index + 4·floats.
func at(base, index G, floats int) operand.Mem {
	return operand.Mem{Base: base, Index: index, Scale: 4, Disp: 4 * floats}
}

// loop runs body over n elements: unroll vectors at a time, then one at a time, then a masked tail.
// body receives which of unroll copies it is (for accumulators), the index register and an offset in
// floats to add to it.
func (s *isa) loop(n G, unroll int, body func(u int, i G, off int, k mask)) {
	i, limit := s.GP64(), s.GP64()
	s.XORQ(i, i)
	if unroll > 1 {
		s.stride(i, limit, n, unroll*s.w, "wide", func() {
			for u := range unroll {
				body(u, i, u*s.w, mask{})
			}
		})
	}
	s.stride(i, limit, n, s.w, "vector", func() { body(0, i, 0, mask{}) })
	rest := s.GP64()
	s.MOVQ(n, rest)
	s.SUBQ(i, rest)
	s.JZ(operand.LabelRef("done"))
	body(0, i, 0, s.tailMask(rest))
	s.Label("done")
}

// stride emits: while i + step ≤ n { body; i += step }.
func (s *isa) stride(i, limit, n G, step int, label string, body func()) {
	s.MOVQ(n, limit)
	s.SUBQ(operand.I32(step), limit)
	s.CMPQ(i, limit)
	s.JG(operand.LabelRef(label + "End"))
	s.Label(label)
	body()
	s.ADDQ(operand.I32(step), i)
	s.CMPQ(i, limit)
	s.JLE(operand.LabelRef(label))
	s.Label(label + "End")
}

// constants are read-only vectors that the code of one file refers to.
type constants struct {
	vals map[string][]uint32
}

// ref returns the address of a named constant.
func (k *constants) ref(name string, words []uint32) operand.Mem {
	k.vals[name] = words
	return operand.NewDataAddr(operand.NewStaticSymbol(name), 0)
}

// emit writes the data sections, in order of name so that the output is reproducible.
func (k *constants) emit(c *build.Context) {
	names := make([]string, 0, len(k.vals))
	for n := range k.vals {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		c.StaticGlobal(n)
		c.DataAttributes(attr.RODATA | attr.NOPTR)
		for i, w := range k.vals[n] {
			c.AddDatum(4*i, operand.U32(w))
		}
	}
}

// f32 is a float constant.
func (s *isa) f32(x float64) konst { return s.u32(math.Float32bits(float32(x))) }

// u32 is a constant given by its bits.
func (s *isa) u32(bits uint32) konst {
	words := make([]uint32, 16)
	for i := range words {
		words[i] = bits
	}
	return konst{s.consts.ref(fmt.Sprintf("c%08x", bits), words)}
}
