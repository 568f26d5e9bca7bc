package kern

import "math"

// maxHalf is the largest finite half-precision number.
const maxHalf = 65504

func f32ToF16Portable(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = halfBits(v)
	}
}

func f16ToF32Portable(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = halfToFloat(h)
	}
}

// halfBits rounds to nearest even and saturates; a NaN keeps its sign and the top of its payload and
// is made quiet, as VCVTPS2PH does.
func halfBits(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b>>16) & 0x8000
	switch abs := b & 0x7fffffff; {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13)&0x1ff
	case abs >= 0x477fe000: // 65504 and beyond
		return sign | 0x7bff
	case abs < 0x38800000: // subnormal in half precision: units of 2⁻²⁴
		v := math.Float32frombits(abs) * (1 << 24)
		return sign | uint16(math.RoundToEven(float64(v)))
	default:
		abs += 0xfff + abs>>13&1 // round to even; a carry moves into the exponent
		return sign | uint16((abs-0x38000000)>>13)
	}
}

func halfToFloat(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp, man := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		v := float32(man) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(v))
	case 31:
		if man != 0 {
			man |= 0x200 // quiet, as VCVTPH2PS makes it
		}
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}
