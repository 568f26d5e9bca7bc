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
