package kern

import "fmt"

// Transpose writes the transpose of src (rows, cols) to dst (cols, rows): dst[c·ldd+r] =
// src[r·lds+c]. The leading dimensions are the distances of rows, in elements. It panics if a slice
// is too short.
func (k Kernels) Transpose(dst []float32, ldd int, src []float32, lds, rows, cols int) {
	if rows <= 0 || cols <= 0 {
		return
	}
	if needD, needS := (cols-1)*ldd+rows, (rows-1)*lds+cols; ldd < rows || lds < cols || len(dst) < needD || len(src) < needS {
		panic(fmt.Sprintf("transpose: dst has %d and src %d elements, want %d with rows %d apart and %d with rows %d apart for (%d, %d)",
			len(dst), len(src), needD, ldd, needS, lds, rows, cols))
	}
	k.packTranspose(dst, ldd, src, lds, rows, cols)
}
