//go:build simd128

package kern

import "unsafe"

// Each method picks its level; slices are never empty here and at most chunk long.

//go:wasmimport kern scale
//go:noescape
func scaleSIMD(dst, x unsafe.Pointer, n int32, s float32)

func (k Kernels) scale(dst, x []float32, s float32) {
	if k.level == Portable {
		scalePortable(dst, x, s)
		return
	}
	scaleSIMD(floats(dst), floats(x), int32(len(x)), s)
}

//go:wasmimport kern axpy
//go:noescape
func axpySIMD(y, x unsafe.Pointer, n int32, a float32)

func (k Kernels) axpy(y []float32, a float32, x []float32) {
	if k.level == Portable {
		axpyPortable(y, a, x)
		return
	}
	axpySIMD(floats(y), floats(x), int32(len(x)), a)
}

//go:wasmimport kern add
//go:noescape
func addSIMD(dst, a, b unsafe.Pointer, n int32)

func (k Kernels) add(dst, a, b []float32) {
	if k.level == Portable {
		addPortable(dst, a, b)
		return
	}
	addSIMD(floats(dst), floats(a), floats(b), int32(len(a)))
}

//go:wasmimport kern mul
//go:noescape
func mulSIMD(dst, a, b unsafe.Pointer, n int32)

func (k Kernels) mul(dst, a, b []float32) {
	if k.level == Portable {
		mulPortable(dst, a, b)
		return
	}
	mulSIMD(floats(dst), floats(a), floats(b), int32(len(a)))
}

//go:wasmimport kern dot
//go:noescape
func dotSIMD(a, b unsafe.Pointer, n int32) float32

func (k Kernels) dot(a, b []float32) float32 {
	if k.level == Portable {
		return dotPortable(a, b)
	}
	return dotSIMD(floats(a), floats(b), int32(len(a)))
}

//go:wasmimport kern dot3
//go:noescape
func dot3SIMD(a, b, c unsafe.Pointer, n int32) float32

func (k Kernels) dot3(a, b, c []float32) float32 {
	if k.level == Portable {
		return dot3Portable(a, b, c)
	}
	return dot3SIMD(floats(a), floats(b), floats(c), int32(len(a)))
}

//go:wasmimport kern sum
//go:noescape
func sumSIMD(x unsafe.Pointer, n int32) float64

func (k Kernels) sum(x []float32) float64 {
	if k.level == Portable {
		return sumPortable(x)
	}
	return sumSIMD(floats(x), int32(len(x)))
}

//go:wasmimport kern sumSq
//go:noescape
func sumSqSIMD(x unsafe.Pointer, n int32, nonFinite unsafe.Pointer) float64

func (k Kernels) sumSq(x []float32) (float64, int) {
	if k.level == Portable {
		return sumSqPortable(x)
	}
	var bad int32
	s := sumSqSIMD(floats(x), int32(len(x)), unsafe.Pointer(&bad))
	return s, int(bad)
}

//go:wasmimport kern max
//go:noescape
func maxSIMD(x unsafe.Pointer, n int32) float32

func (k Kernels) max(x []float32) float32 {
	if k.level == Portable {
		return maxPortable(x)
	}
	return maxSIMD(floats(x), int32(len(x)))
}

//go:wasmimport kern softmaxGrad
//go:noescape
func softmaxGradSIMD(ds, p, dp unsafe.Pointer, n int32, delta, scale float32)

func (k Kernels) softmaxGrad(ds, p, dp []float32, delta, scale float32) {
	if k.level == Portable {
		softmaxGradPortable(ds, p, dp, delta, scale)
		return
	}
	softmaxGradSIMD(floats(ds), floats(p), floats(dp), int32(len(p)), delta, scale)
}

//go:wasmimport kern normApply
//go:noescape
func normApplySIMD(y, x, w unsafe.Pointer, n int32, r float32)

func (k Kernels) normApply(y, x, w []float32, r float32) {
	if k.level == Portable {
		normApplyPortable(y, x, w, r)
		return
	}
	normApplySIMD(floats(y), floats(x), floats(w), int32(len(x)), r)
}

//go:wasmimport kern normBackward
//go:noescape
func normBackwardSIMD(dx, dy, x, w, dw unsafe.Pointer, n int32, r, coef float32, addDX int32)

func (k Kernels) normBackward(dx, dw, dy, x, w []float32, r, coef float32, addDX bool) {
	if k.level == Portable {
		normBackwardPortable(dx, dw, dy, x, w, r, coef, addDX)
		return
	}
	normBackwardSIMD(floats(dx), floats(dy), floats(x), floats(w), floats(dw), int32(len(x)), r, coef, number(addDX))
}

//go:wasmimport kern normBackwardDX
//go:noescape
func normBackwardDXSIMD(dx, dy, x, w unsafe.Pointer, n int32, r, coef float32, addDX int32)

func (k Kernels) normBackwardDX(dx, dy, x, w []float32, r, coef float32, addDX bool) {
	if k.level == Portable {
		normBackwardDXPortable(dx, dy, x, w, r, coef, addDX)
		return
	}
	normBackwardDXSIMD(floats(dx), floats(dy), floats(x), floats(w), int32(len(x)), r, coef, number(addDX))
}

//go:wasmimport kern rope
//go:noescape
func ropeSIMD(x1, x2, cos, sin unsafe.Pointer, n int32, sign float32)

func (k Kernels) rope(x1, x2, cos, sin []float32, sign float32) {
	if k.level == Portable {
		ropePortable(x1, x2, cos, sin, sign)
		return
	}
	ropeSIMD(floats(x1), floats(x2), floats(cos), floats(sin), int32(len(cos)), sign)
}

//go:wasmimport kern adamw
//go:noescape
func adamwSIMD(w, g, m, v unsafe.Pointer, n int32, args unsafe.Pointer)

func (k Kernels) adamw(w, g, m, v []float32, h *adamwArgs) {
	if k.level == Portable {
		adamwPortable(w, g, m, v, h)
		return
	}
	adamwSIMD(floats(w), floats(g), floats(m), floats(v), int32(len(w)), unsafe.Pointer(h))
}

func (Kernels) adamw8(w, g []float32, m8 []int8, v8 []uint8, ms, vs *float32, h *adamwArgs, m, v *[BlockSize]float32) {
	adamw8Portable(w, g, m8, v8, ms, vs, h, m, v)
}

func (Kernels) f32ToF16(dst []uint16, src []float32) { f32ToF16Portable(dst, src) }
func (Kernels) f16ToF32(dst []float32, src []uint16) { f16ToF32Portable(dst, src) }

func number(b bool) int32 {
	if b {
		return 1
	}
	return 0
}
