package main

import (
	"bytes"
	"encoding/binary"
	"math"
)

// Value types of WebAssembly (core specification 2.0, 5.3).
const (
	i32  = 0x7f
	f32  = 0x7d
	f64  = 0x7c
	v128 = 0x7b
)

// op is an instruction without immediates: one byte, or the number of a vector
// instruction after the prefix 0xfd with vector added.
type op int

const vector op = 1 << 16

// The instructions that the kernels use (5.4).
const (
	i32Eqz     op = 0x45
	i32Ne      op = 0x47
	i32LtS     op = 0x48
	i32GtS     op = 0x4a
	i32GeS     op = 0x4e
	i32Add     op = 0x6a
	i32Sub     op = 0x6b
	i32Mul     op = 0x6c
	i32And     op = 0x71
	i32Shl     op = 0x74
	f32Add     op = 0x92
	f32Mul     op = 0x94
	f64Add     op = 0xa0
	f32Demo    op = 0xb6 // f32.demote_f64
	f64Prom    op = 0xbb // f64.promote_f32
	f32x4Spl      = vector + 0x13
	f64x2Spl      = vector + 0x14
	i32x4Spl      = vector + 0x11
	f32x4Lt       = vector + 0x43
	f32x4Gt       = vector + 0x44
	f32x4Eq       = vector + 0x41
	f32x4Ne       = vector + 0x42
	i32x4LtS      = vector + 0x39
	i32x4Ne       = vector + 0x38
	vNot          = vector + 0x4d
	vAnd          = vector + 0x4e
	vAndNot       = vector + 0x4f
	vOr           = vector + 0x50
	vSelect       = vector + 0x52 // v128.bitselect
	f32x4Neg      = vector + 0xe1
	f32x4Sqrt     = vector + 0xe3
	f32x4Add      = vector + 0xe4
	f32x4Sub      = vector + 0xe5
	f32x4Mul      = vector + 0xe6
	f32x4Div      = vector + 0xe7
	f32x4PMin     = vector + 0xea
	f32x4PMax     = vector + 0xeb
	f32x4Near     = vector + 0x6a
	i32x4Bits     = vector + 0xa4 // i32x4.bitmask
	i32x4Shl      = vector + 0xab
	i32x4ShrS     = vector + 0xac
	i32x4Add      = vector + 0xae
	i32x4Sub      = vector + 0xb1
	i32x4Trunc    = vector + 0xf8 // i32x4.trunc_sat_f32x4_s
	f64x2Add      = vector + 0xf0
	f64x2Mul      = vector + 0xf2
	f32x4MAdd     = vector + 0x105 // f32x4.relaxed_madd: a·b + c, in one rounding on processors that can
	f64x2Low      = vector + 0x5f  // f64x2.promote_low_f32x4
)

// function is one function being assembled.
type function struct {
	name   string
	params []byte
	result []byte
	locals []byte
	code   []byte
	fused  bool // products are added without a rounding between
}

// local is a parameter or local variable.
type local uint32

// newLocal adds a local variable.
func (f *function) newLocal(t byte) local {
	f.locals = append(f.locals, t)
	return local(len(f.params) + len(f.locals) - 1)
}

func (f *function) emit(b ...byte)       { f.code = append(f.code, b...) }
func (f *function) u(n uint32)           { f.code = binary.AppendUvarint(f.code, uint64(n)) }
func (f *function) get(l local)          { f.emit(0x20); f.u(uint32(l)) }
func (f *function) set(l local)          { f.emit(0x21); f.u(uint32(l)) }
func (f *function) tee(l local)          { f.emit(0x22); f.u(uint32(l)) }
func (f *function) memory(offset uint32) { f.emit(0); f.u(offset) } // alignment hint 1: Go aligns to 4

// do emits instructions without immediates.
func (f *function) do(ops ...op) {
	for _, o := range ops {
		if o < vector {
			f.emit(byte(o))
			continue
		}
		f.emit(0xfd)
		f.u(uint32(o - vector))
	}
}

// i emits an i32 constant.
func (f *function) i(n int32) {
	f.emit(0x41)
	for {
		b := byte(n & 0x7f)
		n >>= 7
		if n == 0 && b&0x40 == 0 || n == -1 && b&0x40 != 0 {
			f.emit(b)
			return
		}
		f.emit(b | 0x80)
	}
}

// vi emits a vector of one repeated 32-bit pattern, vf of one float.
func (f *function) vi(bits uint32) {
	f.emit(0xfd, 0x0c)
	for range 4 {
		f.code = binary.LittleEndian.AppendUint32(f.code, bits)
	}
}

func (f *function) vf(x float32) { f.vi(math.Float32bits(x)) }

// lanes emits the vector 0, 1, 2, 3.
func (f *function) lanes() {
	f.emit(0xfd, 0x0c)
	for n := range uint32(4) {
		f.code = binary.LittleEndian.AppendUint32(f.code, n)
	}
}

// Loads and stores take an address from the stack (below the value to store).
func (f *function) load(offset uint32)      { f.emit(0xfd, 0x00); f.memory(offset) }
func (f *function) store(offset uint32)     { f.emit(0xfd, 0x0b); f.memory(offset) }
func (f *function) loadSplat(offset uint32) { f.emit(0xfd, 0x09); f.memory(offset) }
func (f *function) load1(offset uint32)     { f.emit(0xfd, 0x5c); f.memory(offset) } // lane 0, others 0
func (f *function) load2(offset uint32)     { f.emit(0xfd, 0x5d); f.memory(offset) } // lanes 0 and 1, others 0
func (f *function) loadF32(offset uint32)   { f.emit(0x2a); f.memory(offset) }
func (f *function) storeF32(offset uint32)  { f.emit(0x38); f.memory(offset) }
func (f *function) storeI32(offset uint32)  { f.emit(0x36); f.memory(offset) }

func (f *function) loadLane(lane byte, offset uint32) {
	f.emit(0xfd, 0x56)
	f.memory(offset)
	f.emit(lane)
}

func (f *function) storeLane(lane byte, offset uint32) {
	f.emit(0xfd, 0x5a)
	f.memory(offset)
	f.emit(lane)
}

func (f *function) store2(offset uint32) { // lanes 0 and 1
	f.emit(0xfd, 0x5b)
	f.memory(offset)
	f.emit(0)
}

func (f *function) lane(n byte)    { f.emit(0xfd, 0x1f, n) } // f32x4.extract_lane
func (f *function) lane64(n byte)  { f.emit(0xfd, 0x21, n) } // f64x2.extract_lane
func (f *function) laneI32(n byte) { f.emit(0xfd, 0x1b, n) } // i32x4.extract_lane

// swapHalves emits a shuffle that swaps lanes 0, 1 with 2, 3 of the top vector,
// which must be on the stack twice.
func (f *function) swapHalves() {
	f.emit(0xfd, 0x0d, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
}

// shuffle emits i8x16.shuffle by 32-bit lanes: 0 to 3 of the first vector, 4 to
// 7 of the second.
func (f *function) shuffle(lanes ...byte) {
	f.emit(0xfd, 0x0d)
	for _, l := range lanes {
		f.emit(4*l, 4*l+1, 4*l+2, 4*l+3)
	}
}

// when runs body if the top of the stack is not 0; otherwise may be nil.
func (f *function) when(body, otherwise func()) {
	f.emit(0x04, 0x40)
	body()
	if otherwise != nil {
		f.emit(0x05)
		otherwise()
	}
	f.emit(0x0b)
}

// choose is when with a value of a type.
func (f *function) choose(t byte, body, otherwise func()) {
	f.emit(0x04, t)
	body()
	f.emit(0x05)
	otherwise()
	f.emit(0x0b)
}

// while runs body as long as the condition, which leaves an i32, is not 0. It
// tests once more at the end of the body, which leaves a loop with one branch.
func (f *function) while(condition, body func()) {
	condition()
	f.when(func() {
		f.emit(0x03, 0x40)
		body()
		condition()
		f.emit(0x0d, 0x00, 0x0b) // br_if to the loop
	}, nil)
}

// addTo adds a constant to an i32 local.
func (f *function) addTo(l local, n int32) {
	f.get(l)
	f.i(n)
	f.do(i32Add)
	f.set(l)
}

// module encodes functions as a module that imports its memory as go.mem.
func module(functions []*function) []byte {
	vec := func(items [][]byte) []byte {
		return append(binary.AppendUvarint(nil, uint64(len(items))), bytes.Join(items, nil)...)
	}
	str := func(s string) []byte { return append(binary.AppendUvarint(nil, uint64(len(s))), s...) }
	sized := func(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }
	var types, decls, exports, bodies [][]byte
	for n, f := range functions {
		index := binary.AppendUvarint(nil, uint64(n))
		t := append([]byte{0x60}, sized(f.params)...)
		types = append(types, append(t, sized(f.result)...))
		decls = append(decls, index)
		exports = append(exports, append(append(str(f.name), 0x00), index...))
		var locals [][]byte
		for _, t := range f.locals {
			locals = append(locals, []byte{1, t})
		}
		bodies = append(bodies, sized(append(append(vec(locals), f.code...), 0x0b)))
	}
	memory := append(append(str("go"), str("mem")...), 0x02, 0x00, 0x00)
	out := []byte{0, 'a', 's', 'm', 1, 0, 0, 0}
	for _, s := range []struct {
		id   byte
		body []byte
	}{{1, vec(types)}, {2, vec([][]byte{memory})}, {3, vec(decls)}, {7, vec(exports)}, {10, vec(bodies)}} {
		out = append(append(out, s.id), sized(s.body)...)
	}
	return out
}
