// Package op defines what a backend must be able to compute: one argument
// struct per operation, with its shapes, its cost and its check, and the
// Backend interface that op/cpu, op/webgpu and op/ref implement.
//
// The package computes nothing itself. Model, optimizer and trainer talk to a
// Runner, which checks every argument once, for all backends, remembers the
// first error, and passes the rest on. Open this file first, then args.go
// (forward and backward side by side) and runner.go.
//
// Dimensions: B batch, T time, N = B·T rows, C d_model, H query heads, KVH
// key/value heads, D head size, F feed-forward size, V vocabulary.
package op

import (
	"fmt"

	"tezgah/tensor"
)

// AlignElems is the multiple, in elements, at which a tensor inside a larger
// buffer must begin. 256 elements are 512 bytes of float16, so that every
// tensor of a mega-buffer and of its mirror meets WebGPU's 256-byte binding
// alignment, and blocks of 8-bit moments (256 elements) never straddle tensors.
const AlignElems = 256

// Buffer is a piece of a backend's memory. Only the backend that made it can
// look inside.
type Buffer interface {
	// Len is the number of elements.
	Len() int
	// Type is the element type that the buffer was allocated with.
	Type() tensor.DType
	// Label is the name given at allocation; errors and profiles show it.
	Label() string
}

// Tensor is a dense row-major view of a buffer: Dims[:Rank] from element Off.
// The zero Tensor means "absent" for optional arguments.
type Tensor struct {
	Buf  Buffer
	Off  int // in elements
	Rank int
	Dims [4]int
}

// Of views buf from element off with the given dimensions (one to four).
func Of(buf Buffer, off int, dims ...int) Tensor {
	t := Tensor{Buf: buf, Off: off, Rank: len(dims)}
	copy(t.Dims[:], dims)
	return t
}

// Ok reports whether the tensor is present.
func (t Tensor) Ok() bool { return t.Buf != nil }

// Type is the element type.
func (t Tensor) Type() tensor.DType { return t.Buf.Type() }

// Len is the number of elements, the product of the dimensions.
func (t Tensor) Len() int {
	n := 1
	for _, d := range t.Dims[:t.Rank] {
		n *= d
	}
	return n
}

// Cols is the last dimension.
func (t Tensor) Cols() int { return t.Dims[t.Rank-1] }

// Rows is the product of all dimensions but the last: N for (B, T, C).
func (t Tensor) Rows() int {
	n := 1
	for _, d := range t.Dims[:t.Rank-1] {
		n *= d
	}
	return n
}

// Reshape views the same elements with other dimensions. It panics when the
// number of elements differs, which is a mistake of the caller.
func (t Tensor) Reshape(dims ...int) Tensor {
	r := Of(t.Buf, t.Off, dims...)
	if r.Len() != t.Len() {
		panic(fmt.Sprintf("op: cannot view %v as %v", t, r))
	}
	return r
}

// RowRange views rows [lo, hi) of the tensor flattened to (Rows, Cols).
func (t Tensor) RowRange(lo, hi int) Tensor {
	return Of(t.Buf, t.Off+lo*t.Cols(), hi-lo, t.Cols())
}

// Flat views the tensor as one dimension.
func (t Tensor) Flat() Tensor { return Of(t.Buf, t.Off, t.Len()) }

// String shows the label and the dimensions, such as "wq (512, 512)".
func (t Tensor) String() string {
	if t.Buf == nil {
		return "absent"
	}
	s := t.Buf.Label() + " ("
	for i, d := range t.Dims[:t.Rank] {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprint(d)
	}
	return s + ")"
}

// Limits are the sizes a backend can serve; zero means unlimited.
type Limits struct {
	MaxBufferBytes  int64 // the largest buffer
	MaxBindingBytes int64 // the largest view of a buffer that a kernel can see
	FreeBytes       int64 // memory free for buffers at the time of the call, where it can be known
	F16             bool  // float16 weights can be read by MatMul, Embedding and RMSNorm
}

// Backend computes the operations on one device. Arguments arrive checked (see
// Runner). Calls are made from one goroutine; work may run behind, in order,
// until Sync or Read. Outputs may hold anything, NaN included, before they are
// written; an argument that is added to says so.
//
// Results must not depend on the number of threads, and the same calls on the
// same device and driver must give the same bits.
type Backend interface {
	Name() string   // "cpu", "webgpu"
	Device() string // what it runs on, in words, for logs and benchmark files
	Limits() Limits

	// Alloc makes a buffer of n zeroed elements.
	Alloc(label string, t tensor.DType, n int) (Buffer, error)
	Free(b Buffer)
	// MemoryBytes is what is allocated now, and the most it has been.
	MemoryBytes() (now, peak int64)

	// Write copies little-endian elements to dst; Read copies them back, after
	// all earlier work is done. len(p) must be dst.Len() elements.
	Write(dst Tensor, p []byte) error
	Read(p []byte, src Tensor) error

	// Flush starts what has been recorded; Sync also waits and returns the
	// first error of the work itself.
	Flush() error
	Sync() error
	Close() error

	Zero(x Tensor) error
	Copy(dst, src Tensor) error
	Add(a Add) error
	Scale(a Scale) error
	Cast(a Cast) error
	Sum(a Sum) error

	Embedding(a Embedding) error
	EmbeddingBackward(a EmbeddingBackward) error
	RMSNorm(a RMSNorm) error
	RMSNormBackward(a RMSNormBackward) error
	MatMul(a MatMul) error
	RoPE(a RoPE) error
	Attention(a Attention) error
	AttentionBackward(a AttentionBackward) error
	KVAppend(a KVAppend) error
	AttentionDecode(a AttentionDecode) error
	GLU(a GLU) error
	GLUBackward(a GLUBackward) error
	CrossEntropy(a CrossEntropy) error

	GradNormSq(a GradNormSq) error
	FinalizeGradStats(a FinalizeGradStats) error
	AdamW(a AdamW) error
	AdamW8(a AdamW8) error
}

// Rounder is a backend whose device multiplies 16-bit floats much faster than
// float32, on matrix units. While a type is set, matrix products may round their
// inputs to it, and operand tensors may be of that type; sums stay float32, and so
// does everything else.
//
// An operand tensor is an activation, a gradient of one, or a copy of weights, that
// products read: the output of a norm, say. It is F32, or of the type that products
// round to now. In the second case the operation that computes it rounds what it
// stores, so the product finds the bits that it would have rounded to, at half the
// memory and without converting anything. What is not a product and reads one (a gated
// unit, attention's softmax) computes in float32 from what is stored. Rounding is to
// nearest, ties to even; NaN stays NaN, and what is too large becomes an infinity, also
// in F16, where loss scaling must find it; matrix units may give NaN instead, in BF16
// from 5e33 on. Only the copies of weights, which Cast and
// AdamW make, saturate in F16. A field of args.go that may be one says "operand"; all
// other activations are F32: the residual stream and its gradient, sums that are added
// to, norms' inputs, logits, statistics.
type Rounder interface {
	// RoundProducts sets the type: BF16, F16, or F32 for exact inputs, which is
	// how a backend begins. An error says what the device has. Operand tensors of
	// another type than F32 are of no use after the type has changed.
	RoundProducts(t tensor.DType) error
	// Rounds is the type that RoundProducts has set.
	Rounds() tensor.DType
	// Rounding lists the types that RoundProducts takes on this device, best for
	// training first; none without matrix units.
	Rounding() []tensor.DType
}

// OperandType is the type that operand tensors should have on a backend now: what
// its products round to, F32 where they do not.
func OperandType(b Backend) tensor.DType {
	if r, ok := b.(Rounder); ok {
		return r.Rounds()
	}
	return tensor.F32
}

// Fuser is what a backend may add where one pass is faster than several. A
// Runner uses it when it is there and otherwise runs the parts one by one.
type Fuser interface {
	// MatMulGroup runs products that do not depend on each other and share A.
	// The slice is the caller's and is not kept.
	MatMulGroup(items []MatMul) error
	// MatMulSum runs products whose sum is C, as the type says. The slice is the
	// caller's and is not kept.
	MatMulSum(a MatMulSum) error
	// GateUp runs Gate = X·WGate, Up = X·WUp, Out = act(Gate)·Up.
	GateUp(a GateUp) error
}

// Noticer is a backend that may have something to tell the user, such as a kernel
// that the driver refuses and what is done instead.
type Noticer interface {
	// Notice is everything since the backend was opened, a line each, "" for
	// nothing. It grows.
	Notice() string
}

// Rehearser is a backend that can play calls through without doing them, to learn
// what memory they take beside the buffers that the caller allocates: copies of
// operands, partial sums.
type Rehearser interface {
	// Rehearse returns a backend that takes the calls that this one takes, in the
	// state that it is in now (see RoundProducts), and neither computes nor
	// allocates. It counts, though: MemoryBytes after some calls is what they
	// would occupy here. Reads leave their slice as it was.
	Rehearse() (Backend, error)
}
