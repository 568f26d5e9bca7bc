package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"math"

	"tezgah/tensor"
)

// Errors that callers can test for with errors.Is.
var (
	// ErrCorrupt is in every error about a file whose bytes contradict
	// themselves: cut short, overlapping tensors, a wrong checksum.
	ErrCorrupt = errors.New("file is damaged")
	// ErrVersion is in the error about an .llm file of a version that this
	// program does not read.
	ErrVersion = errors.New("unknown format version")
	// ErrNotLLM is in the error about a sound safetensors file that is not a
	// model of this project.
	ErrNotLLM = errors.New("not an .llm file")
)

// Info describes one tensor of a file.
type Info struct {
	Name  string
	Type  tensor.DType
	Shape []int // row-major, outermost first; empty for a scalar
}

// Elements returns the number of elements, 1 for a scalar. The shape must have
// passed check.
func (i Info) Elements() int64 {
	n := int64(1)
	for _, d := range i.Shape {
		n *= int64(d)
	}
	return n
}

// SizeBytes returns the length of the tensor's data.
func (i Info) SizeBytes() int64 { return i.Elements() * int64(i.Type.Size()) }

// check refuses a type that does not exist, a negative dimension, and a size
// that does not fit an int64.
func (i Info) check() error {
	size := int64(i.Type.Size())
	if size == 0 {
		return fmt.Errorf("tensor %q: unknown element type %v", i.Name, i.Type)
	}
	for _, d := range i.Shape {
		if d < 0 {
			return fmt.Errorf("tensor %q: shape %v has a negative dimension", i.Name, i.Shape)
		}
		if d > 0 && size > math.MaxInt64/int64(d) {
			return fmt.Errorf("tensor %q: shape %v of %v is larger than any file", i.Name, i.Shape, i.Type)
		}
		size *= int64(d)
	}
	return nil
}

// Tensor is one tensor to be saved. Its data (little-endian elements) comes
// from exactly one of Read and Write, a piece at a time, so that it can come
// from a device.
type Tensor struct {
	Info
	// Read fills p with the tensor's bytes from byte off on. It is called for
	// successive pieces of at most 4 MiB and a whole number of elements.
	Read func(p []byte, off int64) error
	// Write writes all of the tensor's bytes to w.
	Write func(w io.Writer) error
}

// Float32s is the tensor of data that lies in memory. The slice is read when
// the file is written, not now.
func Float32s(name string, shape []int, x []float32) Tensor {
	return Bytes(name, tensor.F32, shape, tensor.Bytes(x))
}

// Bytes is the tensor of raw little-endian data of any type.
func Bytes(name string, t tensor.DType, shape []int, x []byte) Tensor {
	info := Info{Name: name, Type: t, Shape: shape}
	return Tensor{Info: info, Write: func(w io.Writer) error {
		_, err := w.Write(x) // the writer checks the length
		return err
	}}
}
