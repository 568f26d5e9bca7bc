package kern

// GemmST is Engine.Gemm on the calling thread alone, for small tiles inside a task: attention's
// 64×64 blocks, for example. It packs only what the micro-kernel cannot read in place, which is B of
// the form NT and the edges. Its workspace must not be in use by another thread.
func (k Kernels) GemmST(ws *Workspace, form Form, m, n, kk int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	x := matrices{form, m, n, kk, a, b, c, lda, ldb, ldc, accumulate}
	x.check()
	if !x.trivial() {
		k.gemmST(ws, &x)
	}
}

func (k Kernels) gemmST(ws *Workspace, x *matrices) {
	t := k.tiling()
	kc := evenSplit(x.k, t.kc, 16)
	ws.serial = 0 // whatever A was packed here is overwritten
	ws.a = grow(ws.a, t.mr*kc)
	ws.b = grow(ws.b, t.nr*kc)
	for k0 := 0; k0 < x.k; k0 += kc {
		depth := min(kc, x.k-k0)
		k.edgeA(ws, x, k0, depth)
		for j := 0; j < x.n; j += t.nr {
			k.columnST(ws, x, j, min(t.nr, x.n-j), k0, depth)
		}
	}
}

// edgeA packs the last rows of A when no micro-kernel has exactly so many.
func (k Kernels) edgeA(ws *Workspace, x *matrices, k0, kc int) {
	t := k.tiling()
	rest := x.m % t.mr
	if width := t.panelRows(rest); width != rest {
		a, rsa, csa := x.aAt(x.m-rest, k0)
		packEdge(ws.a, width, a, rsa, csa, rest, kc)
	}
}

// columnST computes columns [j, j+nr) of C for one block of K.
func (k Kernels) columnST(ws *Workspace, x *matrices, j, nr, k0, kc int) {
	t := k.tiling()
	var b []float32
	ldb := t.nr
	if x.form == NT || nr < t.nr {
		k.packB(ws.b, x, j, nr, k0, kc)
		b = ws.b
	} else {
		b, ldb = x.b[k0*x.ldb+j:], x.ldb
	}
	accumulate := x.accumulate || k0 > 0
	for i := 0; i < x.m; i += t.mr {
		mr := min(t.mr, x.m-i)
		a, rsa, csa := x.aAt(i, k0)
		if w := t.panelRows(mr); w != mr {
			a, rsa, csa = ws.a, 1, w
		}
		k.tileTo(ws, mr, nr, kc, a, rsa, csa, b, ldb, x.c[i*x.ldc+j:], x.ldc, accumulate, &b[0])
	}
}
