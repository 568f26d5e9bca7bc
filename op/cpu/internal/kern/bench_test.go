package kern

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Benchmarks of the vector loops: in cache (4,096 elements) and from memory (16 Mi elements an
// array). MB/s counts every array read or written once, also one that is both, as STREAM does.

func eachLevelB(b *testing.B, f func(b *testing.B, k Kernels)) {
	for _, l := range Available() {
		k, _ := For(l)
		b.Run(l.String(), func(b *testing.B) { f(b, k) })
	}
}

// vectorLoops names a loop, its arrays and how many passes over one array it makes.
var vectorLoops = []struct {
	name   string
	passes int
	run    func(k Kernels, x [][]float32)
}{
	{"triad", 3, func(k Kernels, x [][]float32) { k.Axpy(x[0], 0.5, x[1]) }},
	{"exp", 2, func(k Kernels, x [][]float32) { k.Exp(x[0], x[1]) }},
	{"silu", 3, func(k Kernels, x [][]float32) { k.SiluMul(x[0], x[1], x[2]) }},
	{"silu_backward", 5, func(k Kernels, x [][]float32) { k.SiluMulBackward(x[0], x[1], x[2], x[3], x[4]) }},
	{"gelu", 3, func(k Kernels, x [][]float32) { k.GeluMul(x[0], x[1], x[2]) }},
	{"sumsq", 1, func(k Kernels, x [][]float32) { k.SumSq(x[0]) }},
	{"adamw", 7, func(k Kernels, x [][]float32) { k.AdamW(x[0], x[1], x[2], x[3], adamwTest) }},
	{"logsumexp", 2, func(k Kernels, x [][]float32) { k.LogSumExp(x[0]) }},
	{"rmsnorm", 3, func(k Kernels, x [][]float32) {
		rows(x, func(lo, hi int) { k.RMSNorm(x[1][lo:hi], x[0][lo:hi], x[2][:hi-lo], 1e-5) })
	}},
	{"rmsnorm_backward", 6, func(k Kernels, x [][]float32) {
		rows(x, func(lo, hi int) {
			k.RMSNormBackward(x[3][lo:hi], x[4][:hi-lo], x[0][lo:hi], x[1][lo:hi], x[2][:hi-lo], 0.7, false)
		})
	}},
}

// rows cuts the arrays into rows of 512.
func rows(x [][]float32, f func(lo, hi int)) {
	for lo := 0; lo < len(x[0]); lo += 512 {
		f(lo, min(lo+512, len(x[0])))
	}
}

func BenchmarkVector(b *testing.B) {
	for _, n := range []int{4096, 16 << 20} {
		r := rand.New(rand.NewPCG(1, 1))
		x := make([][]float32, 5)
		for i := range x {
			x[i] = randomAt(r, n, 16*5*i, 1) // staggered, so that the arrays do not share cache sets
		}
		for _, v := range vectorLoops {
			b.Run(fmt.Sprintf("%s/%d", v.name, n), func(b *testing.B) {
				eachLevelB(b, func(b *testing.B, k Kernels) {
					for i := range x[3] { // a second moment is not negative
						x[3][i] = 0.5
					}
					b.SetBytes(int64(4 * n * v.passes))
					for b.Loop() {
						v.run(k, x)
					}
				})
			})
		}
	}
}

func BenchmarkAdamW8(b *testing.B) {
	eachLevelB(b, func(b *testing.B, k Kernels) {
		n := 1 << 20
		r := rand.New(rand.NewPCG(1, 1))
		s := state8{randomAt(r, n, 0, 1), randomAt(r, n, 80, 1), make([]int8, n), make([]uint8, n), make([]float32, Blocks(n)), make([]float32, Blocks(n))}
		b.SetBytes(int64(20 * n))
		for b.Loop() {
			s.step(k, adamwTest)
		}
	})
}

// BenchmarkFewRows is decoding: MB/s is the rate at which weights are read.
func BenchmarkFewRows(b *testing.B) {
	const in, out = 2048, 4096
	for _, m := range []int{1, 2, 4, 8} {
		for _, form := range []Form{NN, NT} {
			b.Run(fmt.Sprintf("%s/%d", form, m), func(b *testing.B) {
				eachLevelB(b, func(b *testing.B, k Kernels) {
					pool := NewPool(0)
					defer pool.Close()
					e := NewEngine(k, pool)
					r := rand.New(rand.NewPCG(1, 1))
					x, w, y := randomAt(r, m*in, 0, 1), randomAt(r, in*out, 0, 1), make([]float32, m*out)
					ldw := out
					if form == NT {
						ldw = in
					}
					b.SetBytes(4 * in * out)
					for b.Loop() {
						e.Gemm(form, m, out, in, x, in, w, ldw, y, out, false)
					}
				})
			})
		}
	}
}

// BenchmarkTile is GemmST at the size of attention's blocks.
func BenchmarkTile(b *testing.B) {
	const t, h = 64, 512
	for _, form := range []Form{NN, NT, TN} {
		b.Run(form.String(), func(b *testing.B) {
			eachLevelB(b, func(b *testing.B, k Kernels) {
				r := rand.New(rand.NewPCG(1, 1))
				x, y, c := randomAt(r, t*h, 0, 1), randomAt(r, t*h, 0, 1), make([]float32, t*t)
				var ws Workspace
				for b.Loop() {
					k.GemmST(&ws, form, t, t, t, x, h, y, h, c, t, false)
				}
				b.ReportMetric(2*t*t*t*float64(b.N)/b.Elapsed().Seconds()*1e-9, "GFLOP/s")
			})
		})
	}
}
