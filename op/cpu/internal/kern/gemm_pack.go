package kern

// packB stores columns [j0, j0+cols) of op(B), for k in [k0, k0+kc), as panels of nr columns:
// element (k, j) of a panel lies at k·nr + j, and panels are panelStride apart. The last panel is padded with zeros.
func (k Kernels) packB(dst []float32, x *matrices, j0, cols, k0, kc int) {
	nr := k.tiling().nr
	full, stride := cols/nr, panelStride(nr, kc)
	if x.form == NT {
		for p := 0; p < full; p++ {
			k.packTranspose(dst[p*stride:], nr, x.b[(j0+p*nr)*x.ldb+k0:], x.ldb, nr, kc)
		}
	} else {
		k.packCopy(dst, stride, nr, full, x.b[k0*x.ldb+j0:], x.ldb, kc)
	}
	if rest := cols - full*nr; rest > 0 {
		dst = dst[full*stride:][:nr*kc]
		j := j0 + full*nr
		if x.form == NT {
			packEdge(dst, nr, x.b[j*x.ldb+k0:], x.ldb, 1, rest, kc)
		} else {
			packEdge(dst, nr, x.b[k0*x.ldb+j:], 1, x.ldb, rest, kc)
		}
	}
}

// packA stores rows [i0, i0+rows) of op(A), for k in [k0, k0+kc), as panels of mr rows, panelStride
// apart: element (i, k) of a panel lies at k·width + i. The last panel is as wide as the smallest
// micro-kernel that covers it, and padded with zeros.
func (k Kernels) packA(dst []float32, x *matrices, i0, rows, k0, kc int) {
	t := k.tiling()
	full, stride := rows/t.mr, panelStride(t.mr, kc)
	if x.form == TN {
		k.packCopy(dst, stride, t.mr, full, x.a[k0*x.lda+i0:], x.lda, kc)
	} else {
		for p := range full {
			k.packTranspose(dst[p*stride:], t.mr, x.a[(i0+p*t.mr)*x.lda+k0:], x.lda, t.mr, kc)
		}
	}
	if rest := rows - full*t.mr; rest > 0 {
		a, rsa, csa := x.aAt(i0+full*t.mr, k0)
		packEdge(dst[full*stride:], t.panelRows(rest), a, rsa, csa, rest, kc)
	}
}

// packEdge packs n ≤ width vectors of length kc, element (j, k) from src[j·sj + k·sk], into one
// panel of that width, and zeros beyond n.
func packEdge(dst []float32, width int, src []float32, sj, sk, n, kc int) {
	for p := 0; p < kc; p++ {
		row := dst[p*width:][:width]
		for j := 0; j < n; j++ {
			row[j] = src[j*sj+p*sk]
		}
		clear(row[n:])
	}
}

// packTransposePortable packs rows of src, ld apart, into one panel: dst[k·width+r] = src[r·ld+k].
func packTransposePortable(dst []float32, width int, src []float32, ld, rows, kc int) {
	for r := 0; r < rows; r++ {
		for p, v := range src[r*ld:][:kc] {
			dst[p*width+r] = v
		}
	}
}

// packCopyPortable packs kc rows of src, ld apart, into panels side by side: panel p holds columns
// [p·width, (p+1)·width) and begins stride after the one before.
func packCopyPortable(dst []float32, stride, width, panels int, src []float32, ld, kc int) {
	for p := 0; p < kc; p++ {
		for q := 0; q < panels; q++ {
			copy(dst[q*stride+p*width:][:width], src[p*ld+q*width:])
		}
	}
}
