package kern

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// product is one test case: operands with gaps between their rows.
type product struct {
	form          Form
	m, n, k       int
	lda, ldb, ldc int
	a, b          []float32
}

func newProduct(r *rand.Rand, form Form, m, n, k, gap, off int, scale float64) *product {
	p := &product{form: form, m: m, n: n, k: k}
	ar, ac, br, bc := m, k, k, n
	if form == TN {
		ar, ac = k, m
	}
	if form == NT {
		br, bc = n, k
	}
	p.lda, p.ldb, p.ldc = ac+gap, bc+2*gap, n+gap
	p.a = randomAt(r, ar*p.lda, off, scale)
	p.b = randomAt(r, br*p.ldb, off+1, 1)
	return p
}

func (p *product) at(i, j, k int) (a, b float64) {
	ai, bi := i*p.lda+k, k*p.ldb+j
	if p.form == TN {
		ai = k*p.lda + i
	}
	if p.form == NT {
		bi = j*p.ldb + k
	}
	return float64(p.a[ai]), float64(p.b[bi])
}

// verify compares C with a float64 product. Rounding k products and sums in any order is off by at
// most (k+2)·eps·Σ|a·b| (Higham 2002, section 3.1), and one more rounding adds the old C.
func (p *product) verify(t *testing.T, c, old []float32) {
	t.Helper()
	name := fmt.Sprintf("%s m %d n %d k %d", p.form, p.m, p.n, p.k)
	for i := range p.m {
		for j := range p.n {
			var want, size float64
			for k := range p.k {
				a, b := p.at(i, j, k)
				want += a * b
				size += math.Abs(a * b)
			}
			if old != nil {
				want += float64(old[i*p.ldc+j])
				size += math.Abs(float64(old[i*p.ldc+j]))
			}
			within(t, name, i*p.ldc+j, float64(c[i*p.ldc+j]), want, float64(p.k+3)*eps32*size)
		}
	}
}

// checkGaps sees that the elements between the rows of C are untouched.
func (p *product) checkGaps(t *testing.T, c []float32) {
	t.Helper()
	for i, v := range c {
		if i%p.ldc >= p.n && !math.IsNaN(float64(v)) {
			t.Fatalf("%s m %d n %d k %d: wrote %g between rows, at %d", p.form, p.m, p.n, p.k, v, i)
		}
	}
}

type multiply func(p *product, c []float32, accumulate bool)

func (p *product) test(t *testing.T, f multiply) {
	t.Helper()
	g := junk(p.m*p.ldc, 3)
	c := g.s()
	f(p, c, false)
	p.verify(t, c, nil)
	old := append([]float32(nil), c...)
	f(p, c, true)
	p.verify(t, c, old)
	p.checkGaps(t, c)
	g.check(t, "gemm")
}

// testShapes has size 1, primes, one tile of each level and one more, few rows, and depths on both
// sides of a block of K.
var testShapes = [][3]int{
	{1, 1, 1}, {1, 1, 7}, {2, 3, 5}, {1, 300, 40}, {3, 17, 259}, {4, 515, 33}, {8, 64, 64}, {7, 31, 600},
	{9, 33, 1}, {12, 32, 16}, {13, 33, 17}, {6, 16, 8}, {24, 64, 64}, {25, 65, 65}, {64, 64, 64},
	{67, 71, 73}, {5, 257, 300}, {100, 36, 1030}, {131, 260, 101}, {11, 1025, 130}, {530, 37, 50}, {40, 40, 2050}, {20, 70, 800}, {26, 19, 4096},
}

func TestGemm(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		r := newRand(t, 7)
		for threads := 1; threads <= 3; threads++ {
			pool := NewPool(threads)
			e := NewEngine(k, pool)
			for x, s := range testShapes {
				for _, form := range []Form{NN, NT, TN} {
					p := newProduct(r, form, s[0], s[1], s[2], x%3, x%5, 1)
					p.test(t, func(p *product, c []float32, acc bool) {
						e.Gemm(p.form, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, c, p.ldc, acc)
					})
				}
			}
			pool.Close()
		}
	})
}

func TestGemmST(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		r := newRand(t, 8)
		var ws Workspace
		for x, s := range testShapes {
			for _, form := range []Form{NN, NT, TN} {
				p := newProduct(r, form, s[0], s[1], s[2], x%4, x%3, 1e4)
				p.test(t, func(p *product, c []float32, acc bool) {
					k.GemmST(&ws, p.form, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, c, p.ldc, acc)
				})
			}
		}
	})
}

// TestGemmThreads wants the same bits from any number of threads.
func TestGemmThreads(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		r := newRand(t, 9)
		for _, s := range [][3]int{{3, 700, 300}, {200, 300, 700}, {65, 1030, 129}} {
			for _, form := range []Form{NN, NT, TN} {
				p := newProduct(r, form, s[0], s[1], s[2], 1, 0, 1)
				var first []float32
				for _, threads := range []int{1, 2, 3, 4} {
					pool := NewPool(threads)
					c := junk(p.m*p.ldc, 0).s()
					NewEngine(k, pool).Gemm(p.form, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, c, p.ldc, false)
					pool.Close()
					if first == nil {
						first = c
					}
					sameBits(t, fmt.Sprintf("%s %v, %d threads against 1", form, s, threads), c, first)
				}
			}
		}
	})
}

// TestGemmNonFinite puts a NaN and an infinity into A and wants them in their rows and nowhere else.
func TestGemmNonFinite(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		r := newRand(t, 10)
		pool := NewPool(2)
		defer pool.Close()
		e := NewEngine(k, pool)
		for _, s := range [][3]int{{2, 70, 50}, {67, 71, 130}} {
			p := newProduct(r, NN, s[0], s[1], s[2], 0, 0, 1)
			p.a[3] = nan32        // row 0
			p.a[p.lda+5] = posInf // row 1
			c := junk(p.m*p.ldc, 0).s()
			e.Gemm(NN, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, c, p.ldc, false)
			for j := range p.n {
				if v := float64(c[j]); !math.IsNaN(v) {
					t.Fatalf("row 0, column %d is %g, want NaN", j, v)
				}
				if v := float64(c[p.ldc+j]); !math.IsInf(v, 0) {
					t.Fatalf("row 1, column %d is %g, want an infinity", j, v)
				}
			}
			for i, v := range c[2*p.ldc:] {
				if !isFinite(v) {
					t.Fatalf("element %d after row 1 is %g, want it finite", i, v)
				}
			}
		}
	})
}

func TestGemmEmpty(t *testing.T) {
	pool := NewPool(1)
	defer pool.Close()
	e := NewEngine(Kernels{}, pool)
	c := []float32{1, nan32, 3, nan32}
	e.Gemm(NN, 2, 1, 0, nil, 0, nil, 1, c, 2, true)
	if c[0] != 1 || c[2] != 3 {
		t.Errorf("k = 0 with accumulate: c is %v, want it unchanged", c)
	}
	e.Gemm(NN, 2, 1, 0, nil, 0, nil, 1, c, 2, false)
	if c[0] != 0 || c[2] != 0 || c[1] == c[1] {
		t.Errorf("k = 0: c is %v, want [0 NaN 0 NaN]", c)
	}
	e.Gemm(NN, 0, 5, 5, nil, 5, make([]float32, 25), 5, nil, 5, false)
	e.Gemm(NN, 5, 0, 5, make([]float32, 25), 5, nil, 5, nil, 5, false)
}

func TestGemmChecksShapes(t *testing.T) {
	pool := NewPool(1)
	defer pool.Close()
	e := NewEngine(Kernels{}, pool)
	f := func(n int) []float32 { return make([]float32, n) }
	for name, call := range map[string]func(){
		"short a":  func() { e.Gemm(NN, 3, 4, 5, f(14), 5, f(20), 4, f(12), 4, false) },
		"short b":  func() { e.Gemm(NT, 3, 4, 5, f(15), 5, f(19), 5, f(12), 4, false) },
		"short c":  func() { e.Gemm(TN, 3, 4, 5, f(15), 3, f(20), 4, f(11), 4, false) },
		"low lda":  func() { e.Gemm(NN, 3, 4, 5, f(99), 4, f(20), 4, f(12), 4, false) },
		"negative": func() { e.Gemm(NN, -3, 4, 5, f(99), 5, f(20), 4, f(12), 4, false) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: did not panic", name)
				}
			}()
			call()
		}()
	}
}

func TestGemmDoesNotAllocate(t *testing.T) {
	eachLevel(t, func(t *testing.T, k Kernels) {
		pool := NewPool(2)
		defer pool.Close()
		e := NewEngine(k, pool)
		r := newRand(t, 11)
		for _, s := range [][3]int{{4, 300, 300}, {70, 90, 110}, {16, 16, 16}} {
			p := newProduct(r, NT, s[0], s[1], s[2], 0, 0, 1)
			c := make([]float32, p.m*p.ldc)
			n := testing.AllocsPerRun(20, func() {
				e.Gemm(p.form, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, c, p.ldc, false)
			})
			if n >= 1 {
				t.Errorf("%v: allocates %g times", s, n)
			}
		}
	})
}
