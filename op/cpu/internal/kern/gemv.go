package kern

// gemvRows is the most rows of A for which a product is done without packing: a decoding step reads
// every weight once, so it runs at the speed of memory and copying the weights would double that.
const gemvRows = 8

// gemvCols is how many elements of a row of C one task computes.
const gemvCols = 256

// gemvJob is the Task of a product with few rows: y (M, N) = x (M, K)·op(W).
type gemvJob struct {
	matrices
	e *Engine
}

func (j *gemvJob) run(x *matrices) {
	j.matrices = *x
	tasks := (x.n + gemvCols - 1) / gemvCols
	if x.m*x.n*x.k <= smallProduct {
		for i := range tasks {
			j.Do(0, i)
		}
	} else {
		j.e.pool.RunTask(tasks, j)
	}
	j.matrices = matrices{}
}

// Do computes one strip of columns of y for all rows.
func (j *gemvJob) Do(_, i int) {
	lo := i * gemvCols
	cols := min(gemvCols, j.n-lo)
	if j.form == NT {
		j.e.Kernels.gemvNT(j.m, cols, j.k, j.a, j.lda, j.b[lo*j.ldb:], j.ldb, j.c[lo:], j.ldc, j.accumulate)
		return
	}
	if !j.accumulate {
		for r := range j.m {
			clear(j.c[r*j.ldc+lo:][:cols])
		}
	}
	j.e.Kernels.gemvNN(j.m, cols, j.k, j.a, j.lda, j.b[lo:], j.ldb, j.c[lo:], j.ldc)
}

// gemvNNPortable adds x (m, k)·w (k, n) to y (m, n), row of w by row of w.
func gemvNNPortable(m, n, k int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int) {
	for p := range k {
		row := w[p*ldw:][:n]
		for r := range m {
			axpyPortable(y[r*ldy:][:n], x[r*ldx+p], row)
		}
	}
}

// gemvNTPortable sets y (m, n) to x (m, k)·wᵀ with w (n, k), or adds it.
func gemvNTPortable(m, n, k int, x []float32, ldx int, w []float32, ldw int, y []float32, ldy int, accumulate bool) {
	for j := range n {
		row := w[j*ldw:][:k]
		for r := range m {
			s := dotPortable(x[r*ldx:][:k], row)
			if accumulate {
				s += y[r*ldy+j]
			}
			y[r*ldy+j] = s
		}
	}
}
