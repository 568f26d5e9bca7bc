package kern

// packB stores columns [j0, j0+cols) of op(B), for k in [k0, k0+kc), as panels of nr columns:
// element (k, j) of a panel lies at k·nr + j. The last panel is padded with zeros.
func (k Kernels) packB(dst []float32, x *matrices, j0, cols, k0, kc int) {
	nr := k.tiling().nr
	full := cols / nr
	if x.form == NT {
		for p := 0; p < full; p++ {
			k.packTranspose(dst[p*nr*kc:], nr, x.b[(j0+p*nr)*x.ldb+k0:], x.ldb, nr, kc)
		}
	} else {
		k.packCopy(dst, nr, full, x.b[k0*x.ldb+j0:], x.ldb, kc)
	}
	if rest := cols - full*nr; rest > 0 {
		dst = dst[full*nr*kc:][:nr*kc]
		j := j0 + full*nr
		if x.form == NT {
			packEdge(dst, nr, x.b[j*x.ldb+k0:], x.ldb, 1, rest, kc)
		} else {
			packEdge(dst, nr, x.b[k0*x.ldb+j:], 1, x.ldb, rest, kc)
		}
	}
}

// packA stores rows [i0, i0+rows) of op(A), for k in [k0, k0+kc), as panels of mr rows: element
// (i, k) of a panel lies at k·width + i. The last panel is as wide as the smallest micro-kernel that
// covers it, and padded with zeros.
func (k Kernels) packA(dst []float32, x *matrices, i0, rows, k0, kc int) {
	t := k.tiling()
	full := rows / t.mr
	if x.form == TN {
		k.packCopy(dst, t.mr, full, x.a[k0*x.lda+i0:], x.lda, kc)
	} else {
		for p := 0; p < full; p++ {
			k.packTranspose(dst[p*t.mr*kc:], t.mr, x.a[(i0+p*t.mr)*x.lda+k0:], x.lda, t.mr, kc)
		}
	}
	rest := rows - full*t.mr
	if rest == 0 {
		return
	}
	width := t.panelRows(rest)
	dst = dst[full*t.mr*kc:][:width*kc]
	a, rsa, csa := x.aAt(i0+full*t.mr, k0)
	switch {
	case width != rest:
		packEdge(dst, width, a, rsa, csa, rest, kc)
	case x.form == TN:
		k.packCopy(dst, width, 1, a, x.lda, kc)
	default:
		k.packTranspose(dst, width, a, x.lda, width, kc)
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
// [p·width, (p+1)·width).
func packCopyPortable(dst []float32, width, panels int, src []float32, ld, kc int) {
	for p := 0; p < kc; p++ {
		for q := 0; q < panels; q++ {
			copy(dst[q*width*kc+p*width:][:width], src[p*ld+q*width:])
		}
	}
}
