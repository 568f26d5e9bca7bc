package kern

// portableTiling: a 2×4 tile of C and its six operands fit in 16 scalar registers.
var portableTiling = tiling{mr: 2, nr: 4, rowStep: 2, kc: 512, mc: 64, nc: 4096, taskCols: 256}

// microPortable computes a 2×4 tile of C from operands with the given strides.
func microPortable(kc int, a []float32, rsa, csa int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	var c00, c01, c02, c03, c10, c11, c12, c13 float32
	ia, ib := 0, 0
	for range kc {
		a0, a1 := a[ia], a[ia+rsa]
		bb := b[ib : ib+4 : ib+4]
		b0, b1, b2, b3 := bb[0], bb[1], bb[2], bb[3]
		c00 += float32(a0 * b0)
		c01 += float32(a0 * b1)
		c02 += float32(a0 * b2)
		c03 += float32(a0 * b3)
		c10 += float32(a1 * b0)
		c11 += float32(a1 * b1)
		c12 += float32(a1 * b2)
		c13 += float32(a1 * b3)
		ia += csa
		ib += ldb
	}
	r0, r1 := c[:4:4], c[ldc:ldc+4:ldc+4]
	if accumulate {
		c00, c01, c02, c03 = c00+r0[0], c01+r0[1], c02+r0[2], c03+r0[3]
		c10, c11, c12, c13 = c10+r1[0], c11+r1[1], c12+r1[2], c13+r1[3]
	}
	r0[0], r0[1], r0[2], r0[3] = c00, c01, c02, c03
	r1[0], r1[1], r1[2], r1[3] = c10, c11, c12, c13
}
