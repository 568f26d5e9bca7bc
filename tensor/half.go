package tensor

import "math"

// MaxF16 is the largest finite float16. Conversions to F16 saturate here, so
// that a large weight stays finite in the mirror.
const MaxF16 = 65504

// ToF16 rounds x to the nearest float16 (ties to even) and returns its bits.
// Finite values and infinities beyond ±65,504 saturate to ±65,504; NaN stays
// NaN (quiet).
func ToF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b>>16) & 0x8000
	abs := b & 0x7fffffff
	switch {
	case abs > 0x7f800000: // NaN
		return sign | 0x7e00
	case abs >= 0x477fe000: // 65,504 and above, infinity too
		return sign | 0x7bff
	case abs < 0x38800000: // below 2^-14: subnormal in float16, steps of 2^-24
		// Adding 0.5 makes the unit of the last place exactly 2^-24, so the
		// hardware's own rounding (nearest, ties to even) does the work.
		r := math.Float32bits(math.Float32frombits(abs) + 0.5)
		return sign | uint16(r-0x3f000000)
	default:
		odd := abs >> 13 & 1
		return sign | uint16((abs-0x38000000+0xfff+odd)>>13)
	}
}

// FromF16 widens the float16 with bits h. The conversion is exact.
func FromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	man := uint32(h & 0x3ff)
	switch exp {
	case 0:
		f := float32(man) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}

// ToBF16 rounds x to the nearest bfloat16 (ties to even) and returns its bits.
// Infinities stay infinite, NaN stays NaN (quiet).
func ToBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// FromBF16 widens the bfloat16 with bits h. The conversion is exact.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
