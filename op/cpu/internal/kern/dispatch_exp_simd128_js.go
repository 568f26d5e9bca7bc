//go:build simd128

package kern

import "unsafe"

//go:wasmimport kern expAffine
//go:noescape
func expAffineSIMD(dst, x unsafe.Pointer, n int32, shift, mul, add float32)

func (k Kernels) expAffine(dst, x []float32, shift, mul, add float32) {
	if k.level == Portable {
		expAffinePortable(dst, x, shift, mul, add)
		return
	}
	expAffineSIMD(floats(dst), floats(x), int32(len(x)), shift, mul, add)
}

//go:wasmimport kern sumExp
//go:noescape
func sumExpSIMD(dst, x unsafe.Pointer, n int32, scale, shift float32) float32

func (k Kernels) sumExp(dst, x []float32, scale, shift float32) float32 {
	if k.level == Portable {
		return sumExpPortable(dst, x, scale, shift)
	}
	return sumExpSIMD(floats(dst), floats(x), int32(len(x)), scale, shift)
}

//go:wasmimport kern expSum
//go:noescape
func expSumSIMD(x unsafe.Pointer, n int32, shift float32) float32

func (k Kernels) sumExpSum(x []float32, m float32) (float32, float64) {
	if k.level == Portable {
		return sumExpSumPortable(x, m)
	}
	return expSumSIMD(floats(x), int32(len(x)), m), k.sum(x)
}

//go:wasmimport kern siluMul
//go:noescape
func siluMulSIMD(out, g, u unsafe.Pointer, n int32)

func (k Kernels) siluMul(out, g, u []float32) {
	if k.level == Portable {
		siluMulPortable(out, g, u)
		return
	}
	siluMulSIMD(floats(out), floats(g), floats(u), int32(len(g)))
}

//go:wasmimport kern geluMul
//go:noescape
func geluMulSIMD(out, g, u unsafe.Pointer, n int32)

func (k Kernels) geluMul(out, g, u []float32) {
	if k.level == Portable {
		geluMulPortable(out, g, u)
		return
	}
	geluMulSIMD(floats(out), floats(g), floats(u), int32(len(g)))
}

//go:wasmimport kern siluMulBackward
//go:noescape
func siluMulBackwardSIMD(dg, du, dout, g, u unsafe.Pointer, n int32)

func (k Kernels) siluMulBackward(dg, du, dout, g, u []float32) {
	if k.level == Portable {
		siluMulBackwardPortable(dg, du, dout, g, u)
		return
	}
	siluMulBackwardSIMD(floats(dg), floats(du), floats(dout), floats(g), floats(u), int32(len(g)))
}

//go:wasmimport kern geluMulBackward
//go:noescape
func geluMulBackwardSIMD(dg, du, dout, g, u unsafe.Pointer, n int32)

func (k Kernels) geluMulBackward(dg, du, dout, g, u []float32) {
	if k.level == Portable {
		geluMulBackwardPortable(dg, du, dout, g, u)
		return
	}
	geluMulBackwardSIMD(floats(dg), floats(du), floats(dout), floats(g), floats(u), int32(len(g)))
}
