package checkpoint

import (
	"encoding/binary"
	"math"

	"tezgah/tensor"
)

// q8Block is the number of values that share a scale in q8_0.
const q8Block = 32

// q8Steps are the scales that appendQ8 tries: so many steps of float16 above
// the one at which a block's largest magnitude becomes 127.
var q8Steps = []uint16{0, 1, 8, 16, 24, 32, 40, 48, 56, 64}

// appendQ8 encodes blocks of 32 values as one float16 scale and 32 int8. Who
// reads them multiplies by the scale as it is stored, so values are rounded to
// multiples of that. (llama.cpp's own quantizer divides by the scale before it
// is rounded to float16.) Any scale from the smallest one on will do, and which
// values lie near a multiple differs from one to the next: the best of ten has
// a sixth less squared error than the first.
func appendQ8(dst []byte, src []float32) []byte {
	for ; len(src) >= q8Block; src = src[q8Block:] {
		block := (*[q8Block]float32)(src)
		bits := q8Scale(block)
		dst = binary.LittleEndian.AppendUint16(dst, bits)
		inverse := float32(0)
		if scale := tensor.FromF16(bits); scale > 0 {
			inverse = 1 / scale
		}
		for _, x := range block {
			dst = append(dst, byte(int8(q8Round(x*inverse))))
		}
	}
	return dst
}

// q8Scale is the scale of a block, as float16; 0 for zeros.
func q8Scale(block *[q8Block]float32) (best uint16) {
	var largest float32
	for _, x := range block {
		largest = max(largest, float32(math.Abs(float64(x))))
	}
	if largest == 0 {
		return 0
	}
	const most = 0x7BFF // the largest finite float16
	first := min(tensor.ToF16(largest/127), most)
	best = max(first, 1)
	least := float32(math.Inf(1))
	for _, step := range q8Steps {
		bits := min(first+step, most)
		if bits == 0 {
			continue
		}
		if e := q8Error(block, tensor.FromF16(bits)); e < least {
			least, best = e, bits
		}
	}
	return best
}

// q8Error is the squared error of a block with a scale. The conversions keep
// processors from fusing operations, so that all write the same file.
func q8Error(block *[q8Block]float32, scale float32) (sum float32) {
	inverse := 1 / scale
	for _, x := range block {
		d := x - float32(q8Round(x*inverse)*scale)
		sum += float32(d * d)
	}
	return sum
}

// q8Round rounds to the nearest whole number from −127 to 127. Adding and
// taking away 1.5·2²³ leaves no room for a fraction.
func q8Round(x float32) float32 {
	const whole = 3 << 22
	if x > 127 {
		x = 127
	} else if x < -127 {
		x = -127
	}
	return float32(x+whole) - whole
}
