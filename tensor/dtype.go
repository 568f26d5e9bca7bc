// Package tensor holds the small vocabulary that every other package shares:
// element types, half-precision conversion, views of slices as bytes, and a
// counter-based random number generator.
//
// It knows nothing of devices, files or models. Open dtype.go first, then
// half.go (float16 and bfloat16) and rng.go (the generator).
package tensor

import (
	"fmt"
	"unsafe"
)

// DType is the element type of a tensor, in memory and in files.
type DType uint8

// The element types. The zero value is F32.
const (
	F32 DType = iota
	F16
	BF16
	F64
	I8
	U8
	I16
	U16
	I32
	U32
	I64
	U64
	Bool
)

var dtypes = [...]struct {
	name string
	size int
}{
	F32: {"F32", 4}, F16: {"F16", 2}, BF16: {"BF16", 2}, F64: {"F64", 8},
	I8: {"I8", 1}, U8: {"U8", 1}, I16: {"I16", 2}, U16: {"U16", 2},
	I32: {"I32", 4}, U32: {"U32", 4}, I64: {"I64", 8}, U64: {"U64", 8}, Bool: {"BOOL", 1},
}

// String returns the name that safetensors files use.
func (t DType) String() string {
	if int(t) < len(dtypes) {
		return dtypes[t].name
	}
	return fmt.Sprintf("DType(%d)", uint8(t))
}

// Size returns the bytes of one element, 0 for a type that does not exist.
func (t DType) Size() int {
	if int(t) < len(dtypes) {
		return dtypes[t].size
	}
	return 0
}

// ParseDType finds a type by its safetensors name.
func ParseDType(name string) (DType, error) {
	for t, d := range dtypes {
		if d.name == name {
			return DType(t), nil
		}
	}
	return 0, fmt.Errorf("unknown element type %q", name)
}

// Number lists the Go types that a tensor's memory can be viewed as.
type Number interface {
	~float32 | ~float64 | ~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64
}

// Bytes views s as its bytes in memory order, without copying. Every platform
// Go runs this project on is little-endian, which is also the order in files.
func Bytes[T Number](s []T) []byte {
	if len(s) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(s[0])))
}

// View is the inverse of Bytes. It panics when b is not a whole number of
// elements or not aligned for T: both are mistakes of the caller.
func View[T Number](b []byte) []T {
	if len(b) == 0 {
		return nil
	}
	var zero T
	size := int(unsafe.Sizeof(zero))
	p := unsafe.Pointer(&b[0])
	if len(b)%size != 0 || uintptr(p)%unsafe.Alignof(zero) != 0 {
		panic(fmt.Sprintf("tensor.View: %d bytes at %p cannot be viewed as %T", len(b), p, zero))
	}
	return unsafe.Slice((*T)(p), len(b)/size)
}
