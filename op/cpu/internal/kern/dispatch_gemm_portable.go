//go:build !amd64 && !(js && simd128)

package kern

func (Kernels) tiling() *tiling { return &portableTiling }

func (Kernels) micro(_, kc int, a []float32, rsa, csa int, b []float32, ldb int, c []float32, ldc int, accumulate bool, _ *float32) {
	microPortable(kc, a, rsa, csa, b, ldb, c, ldc, accumulate)
}

func (Kernels) packTranspose(dst []float32, width int, src []float32, ld, rows, kc int) {
	packTransposePortable(dst, width, src, ld, rows, kc)
}

func (Kernels) packCopy(dst []float32, stride, width, panels int, src []float32, ld, kc int) {
	packCopyPortable(dst, stride, width, panels, src, ld, kc)
}

func (Kernels) gemvNN(m, n, k int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int) {
	gemvNNPortable(m, n, k, x, ldx, w, ldw, y, ldy)
}

func (Kernels) gemvNT(m, n, k int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int, accumulate bool) {
	gemvNTPortable(m, n, k, x, ldx, w, ldw, y, ldy, accumulate)
}
