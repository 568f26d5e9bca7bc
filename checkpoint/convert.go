package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"

	"tezgah/tensor"
)

// widener returns the function that converts little-endian elements of type t
// to float32. It reads as many elements as src holds.
func widener(t tensor.DType) (func(dst []float32, src []byte), error) {
	le := binary.LittleEndian
	switch t {
	case tensor.F32:
		return func(dst []float32, src []byte) { copy(tensor.Bytes(dst), src) }, nil
	case tensor.F16:
		return func(dst []float32, src []byte) {
			for i := range len(src) / 2 {
				dst[i] = tensor.FromF16(le.Uint16(src[2*i:]))
			}
		}, nil
	case tensor.BF16:
		return func(dst []float32, src []byte) {
			for i := range len(src) / 2 {
				dst[i] = tensor.FromBF16(le.Uint16(src[2*i:]))
			}
		}, nil
	case tensor.F64:
		return func(dst []float32, src []byte) {
			for i := range len(src) / 8 {
				dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
			}
		}, nil
	}
	return nil, fmt.Errorf("its type is %v, want one of F32, F16, BF16, F64", t)
}

// narrower returns the function that appends float32 values to dst as
// little-endian elements of type t, rounded to nearest even. float16 saturates
// at ±65,504.
func narrower(t tensor.DType) (func(dst []byte, src []float32) []byte, error) {
	le := binary.LittleEndian
	switch t {
	case tensor.F32:
		return func(dst []byte, src []float32) []byte { return append(dst, tensor.Bytes(src)...) }, nil
	case tensor.F16:
		return func(dst []byte, src []float32) []byte {
			for _, x := range src {
				dst = le.AppendUint16(dst, tensor.ToF16(x))
			}
			return dst
		}, nil
	case tensor.BF16:
		return func(dst []byte, src []float32) []byte {
			for _, x := range src {
				dst = le.AppendUint16(dst, tensor.ToBF16(x))
			}
			return dst
		}, nil
	}
	return nil, fmt.Errorf("weights cannot be written as %v, want one of F32, F16, BF16", t)
}

// firstNonFinite returns the index of the first NaN or infinity in x, -1 if
// there is none.
func firstNonFinite(x []float32) int {
	for i, v := range x {
		if v-v != 0 {
			return i
		}
	}
	return -1
}
