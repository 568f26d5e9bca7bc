package kern

import "fmt"

// Form says which operand of a matrix product is stored transposed. All matrices are row-major; a
// leading dimension is the distance between rows, in elements.
type Form int

// The forms that a training step needs; C is always (M, N).
const (
	NN Form = iota // C = A·B,  a (M, K), b (K, N): forward, Y = X·W
	NT             // C = A·Bᵀ, a (M, K), b (N, K): dX = dY·Wᵀ, and logits with a tied embedding
	TN             // C = Aᵀ·B, a (K, M), b (K, N): dW = Xᵀ·dY
)

// String returns the form's two letters.
func (f Form) String() string { return [...]string{"NN", "NT", "TN"}[f] }

// Engine runs matrix products on a pool. It owns the packing buffers, which grow to what the largest
// product needs and are then reused, so that a steady state allocates nothing. One goroutine uses an
// Engine at a time.
type Engine struct {
	Kernels
	pool *Pool
	tile *tiling
	b    [2][]float32 // packed blocks of B, shared by all threads: one in use, one being filled
	ws   []Workspace  // one per thread
	job  gemmJob
	gemv gemvJob
}

// NewEngine returns an engine that runs at the level of k on the threads of p.
func NewEngine(k Kernels, p *Pool) *Engine {
	e := &Engine{Kernels: k, pool: p, tile: k.tiling(), ws: make([]Workspace, p.Threads())}
	e.job.e, e.gemv.e = e, e
	return e
}

// Pool returns the pool the engine runs on.
func (e *Engine) Pool() *Pool { return e.pool }

// Workspace returns the scratch of one worker, for GemmST inside a task that runs on the engine's
// pool.
func (e *Engine) Workspace(worker int) *Workspace { return &e.ws[worker] }

// matrices is a product's description as Gemm receives it.
type matrices struct {
	form       Form
	m, n, k    int
	a, b, c    []float32
	lda        int
	ldb        int
	ldc        int
	accumulate bool
}

// Gemm computes C = op(A)·op(B), or C += op(A)·op(B) when accumulate is set; see Form for the
// shapes. Without accumulate the old C is not read, so it may hold anything, NaN included. It
// panics if a slice is too short for its shape, before anything is written.
//
// Each element is a sum over k in an order that depends on (form, m, n, k) and the level only.
func (e *Engine) Gemm(form Form, m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, accumulate bool) {
	x := matrices{form, m, n, k, a, b, c, lda, ldb, ldc, accumulate}
	x.check()
	switch {
	case x.trivial():
	case m <= gemvRows && form != TN:
		e.gemv.run(&x)
	case m*n*k <= smallProduct:
		e.Kernels.gemmST(&e.ws[0], &x)
	default:
		e.job.run(&x)
	}
}

// smallProduct is the largest m·n·k that one thread does alone: handing it out would cost more.
const smallProduct = 64 * 64 * 64

// check panics with the name of the argument that does not fit.
func (x *matrices) check() {
	if x.m < 0 || x.n < 0 || x.k < 0 {
		panic(fmt.Sprintf("gemm: m, n, k are %d, %d, %d, want none negative", x.m, x.n, x.k))
	}
	ar, ac, br, bc := x.m, x.k, x.k, x.n
	if x.form == TN {
		ar, ac = x.k, x.m
	}
	if x.form == NT {
		br, bc = x.n, x.k
	}
	checkMatrix("a", len(x.a), ar, ac, x.lda)
	checkMatrix("b", len(x.b), br, bc, x.ldb)
	checkMatrix("c", len(x.c), x.m, x.n, x.ldc)
}

func checkMatrix(name string, length, rows, cols, ld int) {
	if rows == 0 || cols == 0 {
		return
	}
	if ld < cols {
		panic(fmt.Sprintf("gemm: leading dimension of %s is %d, want at least its %d columns", name, ld, cols))
	}
	if need := (rows-1)*ld + cols; length < need {
		panic(fmt.Sprintf("gemm: %s has %d elements, want at least %d for (%d, %d) with rows %d apart",
			name, length, need, rows, cols, ld))
	}
}

// trivial handles empty products: an empty sum is 0.
func (x *matrices) trivial() bool {
	if x.m == 0 || x.n == 0 {
		return true
	}
	if x.k > 0 {
		return false
	}
	if !x.accumulate {
		for i := 0; i < x.m; i++ {
			clear(x.c[i*x.ldc:][:x.n])
		}
	}
	return true
}

// aAt returns op(A) from element (i, k) on, with its strides along i and k.
func (x *matrices) aAt(i, k int) (a []float32, rsa, csa int) {
	if x.form == TN {
		return x.a[k*x.lda+i:], 1, x.lda
	}
	return x.a[i*x.lda+k:], x.lda, 1
}
