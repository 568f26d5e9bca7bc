package kern

// F32ToF16 converts to IEEE half precision, rounding to nearest, ties to even. Values beyond
// ±65504, infinities among them, become ±65504; NaN stays NaN.
func (k Kernels) F32ToF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	for len(src) > 0 {
		c := min(len(src), chunk)
		k.f32ToF16(dst[:c], src[:c])
		dst, src = dst[c:], src[c:]
	}
}

// F16ToF32 converts from IEEE half precision, exactly.
func (k Kernels) F16ToF32(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	for len(src) > 0 {
		c := min(len(src), chunk)
		k.f16ToF32(dst[:c], src[:c])
		dst, src = dst[c:], src[c:]
	}
}
