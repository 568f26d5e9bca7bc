//go:build !amd64 && !(js && simd128)

package kern

// Without assembly every kernel is its portable form.

func (Kernels) scale(dst, x []float32, s float32)        { scalePortable(dst, x, s) }
func (Kernels) axpy(y []float32, a float32, x []float32) { axpyPortable(y, a, x) }
func (Kernels) add(dst, a, b []float32)                  { addPortable(dst, a, b) }
func (Kernels) mul(dst, a, b []float32)                  { mulPortable(dst, a, b) }
func (Kernels) dot(a, b []float32) float32               { return dotPortable(a, b) }
func (Kernels) dot3(a, b, c []float32) float32           { return dot3Portable(a, b, c) }
func (Kernels) sum(x []float32) float64                  { return sumPortable(x) }
func (Kernels) sumSq(x []float32) (float64, int)         { return sumSqPortable(x) }
func (Kernels) max(x []float32) float32                  { return maxPortable(x) }

func (Kernels) expAffine(dst, x []float32, shift, mul, add float32) {
	expAffinePortable(dst, x, shift, mul, add)
}

func (Kernels) sumExp(dst, x []float32, scale, shift float32) float32 {
	return sumExpPortable(dst, x, scale, shift)
}

func (Kernels) sumExpSum(x []float32, m float32) (float32, float64) { return sumExpSumPortable(x, m) }

func (Kernels) softmaxGrad(ds, p, dp []float32, delta, scale float32) {
	softmaxGradPortable(ds, p, dp, delta, scale)
}

func (Kernels) siluMul(out, g, u []float32) { siluMulPortable(out, g, u) }
func (Kernels) geluMul(out, g, u []float32) { geluMulPortable(out, g, u) }

func (Kernels) siluMulBackward(dg, du, dout, g, u []float32) {
	siluMulBackwardPortable(dg, du, dout, g, u)
}

func (Kernels) geluMulBackward(dg, du, dout, g, u []float32) {
	geluMulBackwardPortable(dg, du, dout, g, u)
}

func (Kernels) normApply(y, x, w []float32, r float32) { normApplyPortable(y, x, w, r) }

func (Kernels) normBackward(dx, dw, dy, x, w []float32, r, coef float32, addDX bool) {
	normBackwardPortable(dx, dw, dy, x, w, r, coef, addDX)
}

func (Kernels) normBackwardDX(dx, dy, x, w []float32, r, coef float32, addDX bool) {
	normBackwardDXPortable(dx, dy, x, w, r, coef, addDX)
}

func (Kernels) rope(x1, x2, cos, sin []float32, sign float32) { ropePortable(x1, x2, cos, sin, sign) }

func (Kernels) adamw(w, g, m, v []float32, h *adamwArgs) { adamwPortable(w, g, m, v, h) }

func (Kernels) adamw8(w, g []float32, m8 []int8, v8 []uint8, ms, vs *float32, h *adamwArgs, m, v *[BlockSize]float32) {
	adamw8Portable(w, g, m8, v8, ms, vs, h, m, v)
}

func (Kernels) f32ToF16(dst []uint16, src []float32) { f32ToF16Portable(dst, src) }
func (Kernels) f16ToF32(dst []float32, src []uint16) { f16ToF32Portable(dst, src) }
