package kern

// Tilings of the two vector levels. The micro-kernel of 12×32 floats fills 24 of 32 registers of 512
// bits, that of 6×16 fills 12 of 16 of 256 bits.
var (
	avx512Tiling = tiling{mr: 12, nr: 32, rowStep: 4, kc: 768, mc: 96, nc: 1024, taskCols: 1024}
	avx2Tiling   = tiling{mr: 6, nr: 16, rowStep: 2, kc: 768, mc: 96, nc: 1024, taskCols: 1024}
)

func (k Kernels) tiling() *tiling {
	switch k.level {
	case AVX512:
		return &avx512Tiling
	case AVX2:
		return &avx2Tiling
	}
	return &portableTiling
}

// micro computes a full tile of rows × nr. Operands with the strides of packed panels take the
// kernel made for them.
func (k Kernels) micro(rows, kc int, a []float32, rsa, csa int, b []float32, ldb int, c []float32, ldc int, accumulate bool, next *float32) {
	pa, pb, pc := &a[0], &b[0], &c[0]
	switch k.level {
	case AVX512:
		micro512(rows, kc, pa, rsa, csa, pb, ldb, pc, ldc, accumulate, next)
	case AVX2:
		micro256(rows, kc, pa, rsa, csa, pb, ldb, pc, ldc, accumulate, next)
	default:
		microPortable(kc, a, rsa, csa, b, ldb, c, ldc, accumulate)
	}
}

func micro512(rows, kc int, a *float32, rsa, csa int, b *float32, ldb int, c *float32, ldc int, accumulate bool, next *float32) {
	packed := rsa == 1 && csa == rows && ldb == 32
	switch {
	case rows == 12 && packed:
		microPacked12AVX512(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 8 && packed:
		microPacked8AVX512(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 4 && packed:
		microPacked4AVX512(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 12:
		micro12AVX512(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 8:
		micro8AVX512(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	default:
		micro4AVX512(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	}
}

func micro256(rows, kc int, a *float32, rsa, csa int, b *float32, ldb int, c *float32, ldc int, accumulate bool, next *float32) {
	packed := rsa == 1 && csa == rows && ldb == 16
	switch {
	case rows == 6 && packed:
		microPacked6AVX2(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 4 && packed:
		microPacked4AVX2(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 2 && packed:
		microPacked2AVX2(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 6:
		micro6AVX2(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	case rows == 4:
		micro4AVX2(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	default:
		micro2AVX2(kc, a, rsa, csa, b, ldb, c, ldc, accumulate, next)
	}
}

// packTranspose packs rows of src, ld apart, into one panel: dst[k·width+r] = src[r·ld+k]. Assembly
// does four rows at a time and whole vectors of k; plain Go does the rest of k.
func (k Kernels) packTranspose(dst []float32, width int, src []float32, ld, rows, kc int) {
	vec := 16
	if k.level == AVX2 {
		vec = 8
	}
	body := kc / vec * vec
	if k.level == Portable || rows < 4 {
		body = 0
	}
	if body > 0 {
		k.packGroups(dst, width, src, ld, rows/4, body)
		if rows%4 != 0 { // six rows: the last four again, from the third on
			k.packGroups(dst[rows-4:], width, src[(rows-4)*ld:], ld, 1, body)
		}
	}
	if body < kc {
		packTransposePortable(dst[body*width:], width, src[body:], ld, rows, kc-body)
	}
}

func (k Kernels) packGroups(dst []float32, width int, src []float32, ld, groups, kc int) {
	if k.level == AVX512 {
		packTransposeAVX512(&dst[0], width, &src[0], ld, groups, kc)
	} else {
		packTransposeAVX2(&dst[0], width, &src[0], ld, groups, kc)
	}
}

// packCopy packs kc rows of src, ld apart, into panels side by side: panel p holds columns
// [p·width, (p+1)·width) and begins stride after the one before.
func (k Kernels) packCopy(dst []float32, stride, width, panels int, src []float32, ld, kc int) {
	if panels == 0 {
		return
	}
	d, s := &dst[0], &src[0]
	switch {
	case k.level == AVX512 && width == 32:
		packCopy32AVX512(d, stride, panels, s, ld, kc)
	case k.level == AVX512 && width == 12:
		packCopy12AVX512(d, stride, panels, s, ld, kc)
	case k.level == AVX2 && width == 16:
		packCopy16AVX2(d, stride, panels, s, ld, kc)
	case k.level == AVX2 && width == 6:
		packCopy6AVX2(d, stride, panels, s, ld, kc)
	default:
		packCopyPortable(dst, stride, width, panels, src, ld, kc)
	}
}
