package kern

func (k Kernels) adamw(w, g, m, v []float32, h *adamwArgs) {
	switch {
	case k.level == AVX512 && h.zero != 0:
		adamwFiniteAVX512(&w[0], &g[0], &m[0], &v[0], len(w), &h.beta1)
	case k.level == AVX512:
		adamwAVX512(&w[0], &g[0], &m[0], &v[0], len(w), &h.beta1)
	case k.level == AVX2 && h.zero != 0:
		adamwFiniteAVX2(&w[0], &g[0], &m[0], &v[0], len(w), &h.beta1)
	case k.level == AVX2:
		adamwAVX2(&w[0], &g[0], &m[0], &v[0], len(w), &h.beta1)
	default:
		adamwPortable(w, g, m, v, h)
	}
}

// adamw8 updates one block; a last block that is not whole vectors takes the portable path.
func (k Kernels) adamw8(w, g []float32, m8 []int8, v8 []uint8, ms, vs *float32, h *adamwArgs, m, v *[BlockSize]float32) {
	n := len(w)
	if k.level == Portable || n%16 != 0 {
		adamw8Portable(w, g, m8, v8, ms, vs, h, m, v)
		return
	}
	var maxM, maxV float32
	switch {
	case k.level == AVX512 && h.zero != 0:
		maxM, maxV = adamw8UpdateFiniteAVX512(&w[0], &g[0], &m8[0], &v8[0], n, &h.beta1, *ms, *vs, &m[0], &v[0])
	case k.level == AVX512:
		maxM, maxV = adamw8UpdateAVX512(&w[0], &g[0], &m8[0], &v8[0], n, &h.beta1, *ms, *vs, &m[0], &v[0])
	case h.zero != 0:
		maxM, maxV = adamw8UpdateFiniteAVX2(&w[0], &g[0], &m8[0], &v8[0], n, &h.beta1, *ms, *vs, &m[0], &v[0])
	default:
		maxM, maxV = adamw8UpdateAVX2(&w[0], &g[0], &m8[0], &v8[0], n, &h.beta1, *ms, *vs, &m[0], &v[0])
	}
	*ms, *vs = maxM/127, maxV/255
	im, iv := inverseScale(*ms), inverseScale(*vs)
	if k.level == AVX512 {
		adamw8StoreAVX512(&w[0], &m[0], &v[0], &m8[0], &v8[0], n, im, iv)
	} else {
		adamw8StoreAVX2(&w[0], &m[0], &v[0], &m8[0], &v8[0], n, im, iv)
	}
}

// halfVector is how many elements of a half-precision conversion the assembly of any level can do
// without a remainder.
const halfVector = 16

func (k Kernels) f32ToF16(dst []uint16, src []float32) {
	if k.level == Portable {
		f32ToF16Portable(dst, src)
		return
	}
	whole := len(src) / halfVector * halfVector
	if whole > 0 {
		k.f32ToF16Whole(&dst[0], &src[0], whole)
	}
	if whole < len(src) {
		var d [halfVector]uint16
		var s [halfVector]float32
		copy(s[:], src[whole:])
		k.f32ToF16Whole(&d[0], &s[0], halfVector)
		copy(dst[whole:], d[:])
	}
}

func (k Kernels) f32ToF16Whole(dst *uint16, src *float32, n int) {
	if k.level == AVX512 {
		f32ToF16AVX512(dst, src, n)
	} else {
		f32ToF16AVX2(dst, src, n)
	}
}

func (k Kernels) f16ToF32(dst []float32, src []uint16) {
	if k.level == Portable {
		f16ToF32Portable(dst, src)
		return
	}
	whole := len(src) / halfVector * halfVector
	if whole > 0 {
		k.f16ToF32Whole(&dst[0], &src[0], whole)
	}
	if whole < len(src) {
		var d [halfVector]float32
		var s [halfVector]uint16
		copy(s[:], src[whole:])
		k.f16ToF32Whole(&d[0], &s[0], halfVector)
		copy(dst[whole:], d[:])
	}
}

func (k Kernels) f16ToF32Whole(dst *float32, src *uint16, n int) {
	if k.level == AVX512 {
		f16ToF32AVX512(dst, src, n)
	} else {
		f16ToF32AVX2(dst, src, n)
	}
}
