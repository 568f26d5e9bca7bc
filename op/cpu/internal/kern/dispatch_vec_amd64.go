package kern

// Each method picks the assembly of its level; slices are never empty here and at most chunk long.

func (k Kernels) scale(dst, x []float32, s float32) {
	switch k.level {
	case AVX512:
		scaleAVX512(&dst[0], &x[0], len(x), s)
	case AVX2:
		scaleAVX2(&dst[0], &x[0], len(x), s)
	default:
		scalePortable(dst, x, s)
	}
}

func (k Kernels) axpy(y []float32, a float32, x []float32) {
	switch k.level {
	case AVX512:
		axpyAVX512(&y[0], &x[0], len(x), a)
	case AVX2:
		axpyAVX2(&y[0], &x[0], len(x), a)
	default:
		axpyPortable(y, a, x)
	}
}

func (k Kernels) add(dst, a, b []float32) {
	switch k.level {
	case AVX512:
		addAVX512(&dst[0], &a[0], &b[0], len(a))
	case AVX2:
		addAVX2(&dst[0], &a[0], &b[0], len(a))
	default:
		addPortable(dst, a, b)
	}
}

func (k Kernels) mul(dst, a, b []float32) {
	switch k.level {
	case AVX512:
		mulAVX512(&dst[0], &a[0], &b[0], len(a))
	case AVX2:
		mulAVX2(&dst[0], &a[0], &b[0], len(a))
	default:
		mulPortable(dst, a, b)
	}
}

func (k Kernels) dot(a, b []float32) float32 {
	switch k.level {
	case AVX512:
		return dotAVX512(&a[0], &b[0], len(a))
	case AVX2:
		return dotAVX2(&a[0], &b[0], len(a))
	}
	return dotPortable(a, b)
}

func (k Kernels) dot3(a, b, c []float32) float32 {
	switch k.level {
	case AVX512:
		return dot3AVX512(&a[0], &b[0], &c[0], len(a))
	case AVX2:
		return dot3AVX2(&a[0], &b[0], &c[0], len(a))
	}
	return dot3Portable(a, b, c)
}

func (k Kernels) sum(x []float32) float64 {
	switch k.level {
	case AVX512:
		return sumAVX512(&x[0], len(x))
	case AVX2:
		return sumAVX2(&x[0], len(x))
	}
	return sumPortable(x)
}

// sumSq: the assembly counts the finite lanes of whole vectors, and those beyond the end are finite.
func (k Kernels) sumSq(x []float32) (sum float64, nonFinite int) {
	switch k.level {
	case AVX512:
		s, finite := sumSqAVX512(&x[0], len(x))
		return s, roundUp(len(x), 16) - finite
	case AVX2:
		s, finite := sumSqAVX2(&x[0], len(x))
		return s, roundUp(len(x), 8) - finite
	}
	return sumSqPortable(x)
}

func (k Kernels) max(x []float32) float32 {
	switch k.level {
	case AVX512:
		return maxAVX512(&x[0], len(x))
	case AVX2:
		return maxAVX2(&x[0], len(x))
	}
	return maxPortable(x)
}

func (k Kernels) expAffine(dst, x []float32, shift, mul, add float32) {
	switch k.level {
	case AVX512:
		expAffineAVX512(&dst[0], &x[0], len(x), shift, mul, add)
	case AVX2:
		expAffineAVX2(&dst[0], &x[0], len(x), shift, mul, add)
	default:
		expAffinePortable(dst, x, shift, mul, add)
	}
}

func (k Kernels) sumExp(dst, x []float32, scale, shift float32) float32 {
	switch k.level {
	case AVX512:
		return sumExpAVX512(&dst[0], &x[0], len(x), scale, shift)
	case AVX2:
		return sumExpAVX2(&dst[0], &x[0], len(x), scale, shift)
	}
	return sumExpPortable(dst, x, scale, shift)
}

func (k Kernels) sumExpSum(x []float32, m float32) (e float32, sum float64) {
	var s float32
	switch k.level {
	case AVX512:
		e, s = sumExpSumAVX512(&x[0], len(x), m)
	case AVX2:
		e, s = sumExpSumAVX2(&x[0], len(x), m)
	default:
		return sumExpSumPortable(x, m)
	}
	return e, float64(s)
}

func (k Kernels) softmaxGrad(ds, p, dp []float32, delta, scale float32) {
	switch k.level {
	case AVX512:
		softmaxGradAVX512(&ds[0], &p[0], &dp[0], len(p), delta, scale)
	case AVX2:
		softmaxGradAVX2(&ds[0], &p[0], &dp[0], len(p), delta, scale)
	default:
		softmaxGradPortable(ds, p, dp, delta, scale)
	}
}

func (k Kernels) siluMul(out, g, u []float32) {
	switch k.level {
	case AVX512:
		siluMulAVX512(&out[0], &g[0], &u[0], len(g))
	case AVX2:
		siluMulAVX2(&out[0], &g[0], &u[0], len(g))
	default:
		siluMulPortable(out, g, u)
	}
}

func (k Kernels) siluMulBackward(dg, du, dout, g, u []float32) {
	switch k.level {
	case AVX512:
		siluMulBackwardAVX512(&dg[0], &du[0], &dout[0], &g[0], &u[0], len(g))
	case AVX2:
		siluMulBackwardAVX2(&dg[0], &du[0], &dout[0], &g[0], &u[0], len(g))
	default:
		siluMulBackwardPortable(dg, du, dout, g, u)
	}
}

func (k Kernels) geluMul(out, g, u []float32) {
	switch k.level {
	case AVX512:
		geluMulAVX512(&out[0], &g[0], &u[0], len(g))
	case AVX2:
		geluMulAVX2(&out[0], &g[0], &u[0], len(g))
	default:
		geluMulPortable(out, g, u)
	}
}

func (k Kernels) geluMulBackward(dg, du, dout, g, u []float32) {
	switch k.level {
	case AVX512:
		geluMulBackwardAVX512(&dg[0], &du[0], &dout[0], &g[0], &u[0], len(g))
	case AVX2:
		geluMulBackwardAVX2(&dg[0], &du[0], &dout[0], &g[0], &u[0], len(g))
	default:
		geluMulBackwardPortable(dg, du, dout, g, u)
	}
}

func (k Kernels) normApply(y, x, w []float32, r float32) {
	switch k.level {
	case AVX512:
		normApplyAVX512(&y[0], &x[0], &w[0], len(x), r)
	case AVX2:
		normApplyAVX2(&y[0], &x[0], &w[0], len(x), r)
	default:
		normApplyPortable(y, x, w, r)
	}
}

func (k Kernels) normBackward(dx, dw, dy, x, w []float32, r, coef float32, addDX bool) {
	switch {
	case k.level == AVX512 && addDX:
		normBackwardAddAVX512(&dx[0], &dw[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	case k.level == AVX512:
		normBackwardAVX512(&dx[0], &dw[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	case k.level == AVX2 && addDX:
		normBackwardAddAVX2(&dx[0], &dw[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	case k.level == AVX2:
		normBackwardAVX2(&dx[0], &dw[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	default:
		normBackwardPortable(dx, dw, dy, x, w, r, coef, addDX)
	}
}

func (k Kernels) normBackwardDX(dx, dy, x, w []float32, r, coef float32, addDX bool) {
	switch {
	case k.level == AVX512 && addDX:
		normBackwardDXAddAVX512(&dx[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	case k.level == AVX512:
		normBackwardDXAVX512(&dx[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	case k.level == AVX2 && addDX:
		normBackwardDXAddAVX2(&dx[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	case k.level == AVX2:
		normBackwardDXAVX2(&dx[0], &dy[0], &x[0], &w[0], len(x), r, coef)
	default:
		normBackwardDXPortable(dx, dy, x, w, r, coef, addDX)
	}
}

func (k Kernels) rope(x1, x2, cos, sin []float32, sign float32) {
	switch k.level {
	case AVX512:
		ropeAVX512(&x1[0], &x2[0], &cos[0], &sin[0], len(cos), sign)
	case AVX2:
		ropeAVX2(&x1[0], &x2[0], &cos[0], &sin[0], len(cos), sign)
	default:
		ropePortable(x1, x2, cos, sin, sign)
	}
}
