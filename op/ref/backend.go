// Package ref is the plain reference backend: every op as the shortest loops
// that say what args.go says, forward and backward next to each other.
//
// It is generic over float32 and float64. In float64 a whole model can run with
// rounding errors too small to matter: op/optest takes its expected values from
// it, and its own gradients are checked by central differences. It is written
// for reading and makes no attempt at speed; op/cpu is the backend for use.
//
// Buffers of type F32 hold the type parameter T; buffers of type F16 and BF16 hold
// T too, rounded to their type whenever something is stored. Write and Read
// convert, so callers see ordinary F32, F16 and BF16 bytes; Data shows the elements
// as they are held.
//
// This file has the memory; each op has a file of its own. Open rmsnorm.go for
// a first example.
package ref

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

// Float is what the arithmetic can be done in.
type Float interface{ float32 | float64 }

// Backend implements op.Backend in arithmetic of type T.
type Backend[T Float] struct {
	now, peak int64
	rounds    tensor.DType // what products round to; F32 as they begin
}

var (
	_ op.Backend = (*Backend[float32])(nil)
	_ op.Backend = (*Backend[float64])(nil)
	_ op.Rounder = (*Backend[float32])(nil)
)

// New returns a reference backend.
func New[T Float]() *Backend[T] { return &Backend[T]{} }

// buffer keeps its elements in the one slice that fits its type.
type buffer[T Float] struct {
	label string
	typ   tensor.DType
	n     int
	float []T     // F32, F16, BF16
	int32 []int32 // I32
	int8  []int8  // I8
}

func (b *buffer[T]) Len() int           { return b.n }
func (b *buffer[T]) Type() tensor.DType { return b.typ }
func (b *buffer[T]) Label() string      { return b.label }

// Name returns "ref".
func (*Backend[T]) Name() string { return "ref" }

// Device says which arithmetic is used.
func (*Backend[T]) Device() string {
	var zero T
	return fmt.Sprintf("plain Go in %T", zero)
}

// Limits has no limit.
func (*Backend[T]) Limits() op.Limits { return op.Limits{F16: true} }

// Rounding lists both types: rounding is one line here, not a device's ability.
func (*Backend[T]) Rounding() []tensor.DType { return []tensor.DType{tensor.BF16, tensor.F16} }

// RoundProducts lets MatMul round its inputs to t, or not with F32.
func (r *Backend[T]) RoundProducts(t tensor.DType) error {
	if t != tensor.F32 && t != tensor.BF16 && t != tensor.F16 {
		return fmt.Errorf("ref: products cannot round to %v, want BF16, F16, or F32 for exact inputs", t)
	}
	r.rounds = t
	return nil
}

// Rounds is what RoundProducts has set.
func (r *Backend[T]) Rounds() tensor.DType { return r.rounds }

// Alloc makes a buffer of n zeroed elements of type F32, F16, BF16, I32 or I8.
func (r *Backend[T]) Alloc(label string, t tensor.DType, n int) (op.Buffer, error) {
	if n < 0 || int64(n) > 1<<32 {
		return nil, fmt.Errorf("ref: cannot allocate %s of %d elements", label, n)
	}
	b := &buffer[T]{label: label, typ: t, n: n}
	switch t {
	case tensor.F32, tensor.F16, tensor.BF16:
		b.float = make([]T, n)
	case tensor.I32:
		b.int32 = make([]int32, n)
	case tensor.I8:
		b.int8 = make([]int8, n)
	default:
		return nil, fmt.Errorf("ref: cannot allocate %s of type %v, want F32, F16, BF16, I32 or I8", label, t)
	}
	r.now += int64(n) * int64(t.Size())
	r.peak = max(r.peak, r.now)
	return b, nil
}

// Free gives a buffer back. It must not be used afterwards.
func (r *Backend[T]) Free(b op.Buffer) {
	if x := b.(*buffer[T]); x.n > 0 {
		r.now -= int64(x.n) * int64(x.typ.Size())
		*x = buffer[T]{label: x.label, typ: x.typ}
	}
}

// MemoryBytes counts four bytes an F32 element whatever T is, so that the
// figures are those of a real backend.
func (r *Backend[T]) MemoryBytes() (now, peak int64) { return r.now, r.peak }

// Data returns the elements of an F32, F16 or BF16 buffer themselves, not a copy.
func (*Backend[T]) Data(b op.Buffer) []T { return b.(*buffer[T]).float }

// Write converts little-endian elements of dst's type and stores them.
func (r *Backend[T]) Write(dst op.Tensor, p []byte) error {
	switch dst.Type() {
	case tensor.F32:
		for i, v := range tensor.View[float32](aligned(p)) {
			r.float(dst)[i] = T(v)
		}
	case tensor.F16:
		for i, v := range tensor.View[uint16](aligned(p)) {
			r.float(dst)[i] = T(tensor.FromF16(v))
		}
	case tensor.BF16:
		for i, v := range tensor.View[uint16](aligned(p)) {
			r.float(dst)[i] = T(tensor.FromBF16(v))
		}
	case tensor.I32:
		copy(tensor.Bytes(r.int32(dst)), p)
	case tensor.I8:
		copy(tensor.Bytes(r.int8(dst)), p)
	}
	return nil
}

// Read rounds the elements of src to src's type and copies them to p.
func (r *Backend[T]) Read(p []byte, src op.Tensor) error {
	switch src.Type() {
	case tensor.F32:
		out := make([]float32, src.Len())
		for i, v := range r.float(src) {
			out[i] = float32(v)
		}
		copy(p, tensor.Bytes(out))
	case tensor.F16:
		out := make([]uint16, src.Len())
		for i, v := range r.float(src) {
			out[i] = halfBits(float32(v))
		}
		copy(p, tensor.Bytes(out))
	case tensor.BF16:
		out := make([]uint16, src.Len())
		for i, v := range r.float(src) {
			out[i] = tensor.ToBF16(float32(v))
		}
		copy(p, tensor.Bytes(out))
	case tensor.I32:
		copy(p, tensor.Bytes(r.int32(src)))
	case tensor.I8:
		copy(p, tensor.Bytes(r.int8(src)))
	}
	return nil
}

// aligned returns p, or a copy where p may not start at a multiple of 8 bytes,
// so that it can be viewed as any type.
func aligned(p []byte) []byte {
	words := make([]uint64, (len(p)+7)/8)
	b := tensor.Bytes(words)[:len(p)]
	copy(b, p)
	return b
}

// Flush does nothing: every call is finished when it returns.
func (*Backend[T]) Flush() error { return nil }

// Sync does nothing: every call is finished when it returns.
func (*Backend[T]) Sync() error { return nil }

// Close does nothing; the garbage collector takes the buffers.
func (*Backend[T]) Close() error { return nil }

// float, int32 and int8 return the elements that a tensor views.
func (*Backend[T]) float(t op.Tensor) []T {
	return t.Buf.(*buffer[T]).float[t.Off : t.Off+t.Len()]
}

func (*Backend[T]) int32(t op.Tensor) []int32 {
	return t.Buf.(*buffer[T]).int32[t.Off : t.Off+t.Len()]
}

func (*Backend[T]) int8(t op.Tensor) []int8 {
	return t.Buf.(*buffer[T]).int8[t.Off : t.Off+t.Len()]
}

// round16 rounds to float16 as a cast does: saturated, NaN kept.
func round16[T Float](x T) T { return T(tensor.FromF16(tensor.ToF16(float32(x)))) }

// cast16 is x as a cast to a type leaves it: an operand, but saturated in F16.
func cast16[T Float](typ tensor.DType, x T) T {
	if typ == tensor.F16 {
		return round16(x)
	}
	return operand(typ, x)
}

// operand is x as an operand tensor of a type holds it: what is too large becomes
// an infinity, in F16 from halfway to the number after the largest on. The nearest
// float32 comes first, as on a device.
func operand[T Float](typ tensor.DType, x T) T {
	f := float32(x)
	switch {
	case typ == tensor.BF16:
		return T(tensor.FromBF16(tensor.ToBF16(f)))
	case typ == tensor.F16 && f >= 65520:
		return T(math.Inf(1))
	case typ == tensor.F16 && f <= -65520:
		return T(math.Inf(-1))
	case typ == tensor.F16:
		return round16(x)
	}
	return x
}

// store rounds the elements of an operand tensor, once they are written, to its type.
func (r *Backend[T]) store(t op.Tensor) {
	if t.Type() == tensor.F32 {
		return
	}
	v := r.float(t)
	for i, x := range v {
		v[i] = operand(t.Type(), x)
	}
}

// rounded returns the elements of a product's operand as the product reads them.
func (r *Backend[T]) rounded(t op.Tensor) []T {
	v := r.float(t)
	if r.rounds == tensor.F32 || r.rounds == t.Type() {
		return v
	}
	out := make([]T, len(v))
	for i, x := range v {
		out[i] = operand(r.rounds, x)
	}
	return out
}

// halfBits is the float16 equal to x, which is rounded already. Unlike a cast it
// keeps an infinity.
func halfBits(x float32) uint16 {
	if math.IsInf(float64(x), 0) {
		return uint16(math.Float32bits(x)>>16)&0x8000 | 0x7c00
	}
	return tensor.ToF16(x)
}

func exp[T Float](x T) T  { return T(math.Exp(float64(x))) }
func log[T Float](x T) T  { return T(math.Log(float64(x))) }
func sqrt[T Float](x T) T { return T(math.Sqrt(float64(x))) }
func tanh[T Float](x T) T { return T(math.Tanh(float64(x))) }

func finite[T Float](x T) bool { return x-x == 0 }
