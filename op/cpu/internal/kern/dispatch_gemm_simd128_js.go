//go:build simd128

package kern

import "unsafe"

// simd128Tiling: the micro-kernel computes 4×8 floats of C at a time in eight vectors, and takes up
// to eight such tiles in one call, because a call into the other module costs some tens of
// nanoseconds.
var simd128Tiling = tiling{mr: 32, nr: 8, rowStep: 4, kc: 512, mc: 64, nc: 1024, taskCols: 256}

func (k Kernels) tiling() *tiling {
	if k.level == Portable {
		return &portableTiling
	}
	return &simd128Tiling
}

//go:wasmimport kern micro
//go:noescape
func microSIMD(rows, kc int32, a unsafe.Pointer, rsa, csa int32, b unsafe.Pointer, ldb int32, c unsafe.Pointer, ldc, accumulate int32)

//go:wasmimport kern microFMA
//go:noescape
func microFMA(rows, kc int32, a unsafe.Pointer, rsa, csa int32, b unsafe.Pointer, ldb int32, c unsafe.Pointer, ldc, accumulate int32)

func (k Kernels) micro(rows, kc int, a []float32, rsa, csa int, b []float32, ldb int, c []float32, ldc int, accumulate bool, _ *float32) {
	switch k.level {
	case SIMD128FMA:
		microFMA(int32(rows), int32(kc), floats(a), int32(rsa), int32(csa), floats(b), int32(ldb), floats(c), int32(ldc), number(accumulate))
	case SIMD128:
		microSIMD(int32(rows), int32(kc), floats(a), int32(rsa), int32(csa), floats(b), int32(ldb), floats(c), int32(ldc), number(accumulate))
	default:
		microPortable(kc, a, rsa, csa, b, ldb, c, ldc, accumulate)
	}
}

//go:wasmimport kern packTranspose
//go:noescape
func packTransposeSIMD(dst unsafe.Pointer, width int32, src unsafe.Pointer, ld, groups, kc int32)

// packTranspose does blocks of 4×4 with vectors, and the rows and columns that are left in Go.
func (k Kernels) packTranspose(dst []float32, width int, src []float32, ld, rows, kc int) {
	bodyRows, body := rows/4*4, kc/4*4
	if k.level == Portable || bodyRows == 0 || body == 0 {
		packTransposePortable(dst, width, src, ld, rows, kc)
		return
	}
	packTransposeSIMD(floats(dst), int32(width), floats(src), int32(ld), int32(bodyRows/4), int32(body))
	if body < kc {
		packTransposePortable(dst[body*width:], width, src[body:], ld, bodyRows, kc-body)
	}
	if bodyRows < rows {
		packTransposePortable(dst[bodyRows:], width, src[bodyRows*ld:], ld, rows-bodyRows, kc)
	}
}

func (k Kernels) packCopy(dst []float32, stride, width, panels int, src []float32, ld, kc int) {
	if panels > 0 {
		packCopyPortable(dst, stride, width, panels, src, ld, kc)
	}
}

//go:wasmimport kern gemvNN
//go:noescape
func gemvNNSIMD(n, k int32, x, w unsafe.Pointer, ldw int32, y unsafe.Pointer)

//go:wasmimport kern gemvNNFMA
//go:noescape
func gemvNNFMA(n, k int32, x, w unsafe.Pointer, ldw int32, y unsafe.Pointer)

func (k Kernels) gemvNN(m, n, kk int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int) {
	body := n / 4 * 4
	if k.level == Portable || body == 0 {
		gemvNNPortable(m, n, kk, x, ldx, w, ldw, y, ldy)
		return
	}
	for r := range m {
		px, py := floats(x[r*ldx:]), floats(y[r*ldy:])
		if k.level == SIMD128FMA {
			gemvNNFMA(int32(body), int32(kk), px, floats(w), int32(ldw), py)
		} else {
			gemvNNSIMD(int32(body), int32(kk), px, floats(w), int32(ldw), py)
		}
	}
	if body < n {
		gemvNNPortable(m, n-body, kk, x, ldx, w[body:], ldw, y[body:], ldy)
	}
}

func (k Kernels) gemvNT(m, n, kk int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int, accumulate bool) {
	if k.level == Portable {
		gemvNTPortable(m, n, kk, x, ldx, w, ldw, y, ldy, accumulate)
		return
	}
	for j := range n {
		row := w[j*ldw:][:kk]
		for r := range m {
			s := k.Dot(x[r*ldx:][:kk], row)
			if accumulate {
				s += y[r*ldy+j]
			}
			y[r*ldy+j] = s
		}
	}
}
