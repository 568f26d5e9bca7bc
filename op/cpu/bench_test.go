package cpu_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// The benchmarks have the shapes of the preset mini in a step of B 4, T 512:
// C 512, H 8, KVH 2, D 64, F 2048, V 16,384, 38.8M parameters. Run them with
// go test ./op/cpu -bench . -benchtime 10x, at one and at all threads.
const (
	miniB, miniT, miniC, miniH, miniKVH, miniD = 4, 512, 512, 8, 2, 64
	miniN, miniF, miniV                        = miniB * miniT, 2048, 16384
	miniParams                                 = 38_805_504
)

// bench times call on one thread and on all, and reports the rates of the
// fastest call, which other programs disturbed least. flops and bytes are those
// of one call.
func bench(b *testing.B, flops, bytes float64, setup func(x *rig) func()) {
	for _, threads := range []int{1, 0} {
		name := fmt.Sprintf("threads=%d", threads)
		if threads == 0 {
			name = "threads=all"
		}
		b.Run(name, func(b *testing.B) {
			x := newRig(b, cpu.Options{Threads: threads})
			call := setup(x)
			call()
			best := time.Duration(math.MaxInt64)
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				call()
				best = min(best, time.Since(start))
			}
			if err := x.r.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(best.Seconds()*1e3, "best-ms")
			b.ReportMetric(flops/best.Seconds()*1e-9, "GFLOP/s")
			b.ReportMetric(bytes/best.Seconds()*1e-9, "GB/s")
		})
	}
}

func BenchmarkMatMul(b *testing.B) {
	for _, f := range []op.MatMul{{}, {TransB: true}, {TransA: true}} {
		b.Run(f.Label(), func(b *testing.B) {
			m, n, k := miniN, miniF, miniC
			bench(b, 2*float64(m*n*k), 4*float64(m*n+m*k+n*k), func(x *rig) func() {
				a, w, c := x.f(m, k), x.f(k, n), x.f(m, n)
				f.A, f.B, f.C = a, w, c
				switch {
				case f.TransB:
					f.A, f.C = c, a
				case f.TransA:
					f.B, f.C = c, w
				}
				return func() { x.r.MatMul(f) }
			})
		})
	}
}

// BenchmarkMatMulOneRow is a decoding step's product: memory-bound.
func BenchmarkMatMulOneRow(b *testing.B) {
	bench(b, 2*miniC*miniV, 4*miniC*miniV, func(x *rig) func() {
		m := op.MatMul{A: x.f(1, miniC), B: x.f(miniV, miniC), C: x.f(1, miniV), TransB: true}
		return func() { x.r.MatMul(m) }
	})
}

// pairFLOPs is 2·D for every (query, key) pair that causal attention looks at.
const pairFLOPs = 2 * miniD * miniB * miniH * miniT * (miniT + 1) / 2

func attention(x *rig, b, t, h, kvh, d int) (op.Attention, op.AttentionBackward) {
	q, k, v, out, lse := x.f(b, t, h, d), x.f(b, t, kvh, d), x.f(b, t, kvh, d), x.f(b, t, h, d), x.f(b, h, t)
	return op.Attention{Q: q, K: k, V: v, Out: out, LSE: lse, Scale: 0.125},
		op.AttentionBackward{Q: q, K: k, V: v, Out: out, LSE: lse, DOut: x.f(b, t, h, d), Delta: x.f(b, h, t),
			DQ: x.f(b, t, h, d), DK: x.f(b, t, kvh, d), DV: x.f(b, t, kvh, d), Scale: 0.125}
}

func BenchmarkAttention(b *testing.B) {
	bench(b, 2*pairFLOPs, 0, func(x *rig) func() {
		a, _ := attention(x, miniB, miniT, miniH, miniKVH, miniD)
		return func() { x.r.Attention(a) }
	})
}

func BenchmarkAttentionBackward(b *testing.B) {
	bench(b, 5*pairFLOPs, 0, func(x *rig) func() {
		f, a := attention(x, miniB, miniT, miniH, miniKVH, miniD)
		x.r.Attention(f)
		return func() { x.r.AttentionBackward(a) }
	})
}

// BenchmarkAttentionBackwardOnePair has one sequence and one key head, so that
// all threads work on the same gradients.
func BenchmarkAttentionBackwardOnePair(b *testing.B) {
	const t = 2048
	bench(b, 5*2*miniD*4*t*(t+1)/2, 0, func(x *rig) func() {
		f, a := attention(x, 1, t, 4, 1, miniD)
		x.r.Attention(f)
		return func() { x.r.AttentionBackward(a) }
	})
}

func BenchmarkAttentionDecode(b *testing.B) {
	bench(b, 4*miniH*miniD*miniT, 8*miniKVH*miniD*miniT, func(x *rig) func() {
		a := op.AttentionDecode{Q: x.f(1, miniH, miniD), KCache: x.f(1, miniT, miniKVH, miniD), VCache: x.f(1, miniT, miniKVH, miniD),
			Out: x.f(1, miniH, miniD), Len: miniT, Scale: 0.125}
		return func() { x.r.AttentionDecode(a) }
	})
}

func BenchmarkRoPE(b *testing.B) {
	bench(b, 3*miniN*miniC, 8*miniN*miniC, func(x *rig) func() {
		a := op.RoPE{X: x.f(miniB, miniT, miniH, miniD), Table: x.f(miniT, miniD)}
		op.WriteSlice(x.r, a.Table, ref.RoPETable(miniT, miniD, 10000))
		return func() { x.r.RoPE(a); a.Inverse = !a.Inverse }
	})
}

func BenchmarkRMSNorm(b *testing.B) {
	bench(b, 4*miniN*miniC, 8*miniN*miniC, func(x *rig) func() {
		a := op.RMSNorm{X: x.f(miniN, miniC), W: x.f(miniC), Y: x.f(miniN, miniC), RMSInv: x.f(miniN), Eps: 1e-5}
		return func() { x.r.RMSNorm(a) }
	})
}

func BenchmarkRMSNormBackward(b *testing.B) {
	bench(b, 11*miniN*miniC, 16*miniN*miniC, func(x *rig) func() {
		a := op.RMSNormBackward{X: x.f(miniN, miniC), W: x.f(miniC), DY: x.f(miniN, miniC), RMSInv: x.f(miniN),
			DX: x.f(miniN, miniC), DW: x.f(miniC)}
		return func() { x.r.RMSNormBackward(a) } // without AddDX: the sum would overflow in the end
	})
}

func BenchmarkGLU(b *testing.B) {
	bench(b, 6*miniN*miniF, 12*miniN*miniF, func(x *rig) func() {
		a := op.GLU{Gate: x.f(miniN, miniF), Up: x.f(miniN, miniF), Out: x.f(miniN, miniF)}
		return func() { x.r.GLU(a) }
	})
}

func BenchmarkGLUBackward(b *testing.B) {
	bench(b, 12*miniN*miniF, 20*miniN*miniF, func(x *rig) func() {
		a := op.GLUBackward{Gate: x.f(miniN, miniF), Up: x.f(miniN, miniF), DOut: x.f(miniN, miniF),
			DGate: x.f(miniN, miniF), DUp: x.f(miniN, miniF)}
		return func() { x.r.GLUBackward(a) }
	})
}

// BenchmarkCrossEntropy has 1,024 rows, one chunk of logits of 64 MiB. Logits
// become gradients, which are as good an input for the next call.
func BenchmarkCrossEntropy(b *testing.B) {
	const rows = 1024
	bench(b, 6*rows*miniV, 8*rows*miniV, func(x *rig) func() {
		a := op.CrossEntropy{Logits: x.f(rows, miniV), Targets: x.ints(miniV, rows), Loss: x.f(rows), GradScale: 1, Ignore: -1, Grad: true}
		return func() { x.r.CrossEntropy(a) }
	})
}

func BenchmarkEmbeddingBackward(b *testing.B) {
	bench(b, miniN*miniC, 12*miniN*miniC, func(x *rig) func() {
		a := op.EmbeddingBackward{Tokens: x.ints(miniV, miniN), DOut: x.f(miniN, miniC), DW: x.f(miniV, miniC)}
		return func() { x.r.EmbeddingBackward(a) }
	})
}

func adamHyper() op.AdamHyper {
	return op.AdamHyper{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1, Eps: 1e-8, Beta1Pow: 0.9, Beta2Pow: 0.95}
}

// zeros allocates without the cost of random numbers.
func (x *rig) zeros(typ tensor.DType, n int) op.Tensor { return x.alloc(typ, n) }

func BenchmarkAdamW(b *testing.B) {
	bench(b, 16*miniParams, 28*miniParams, func(x *rig) func() {
		n, f := miniParams, tensor.F32
		a := op.AdamW{W: x.zeros(f, n), G: x.zeros(f, n), M: x.zeros(f, n), V: x.zeros(f, n), Stats: x.zeros(f, 4), AdamHyper: adamHyper()}
		return func() { x.r.AdamW(a) }
	})
}

func BenchmarkAdamW8(b *testing.B) {
	bench(b, 24*miniParams, 16*miniParams, func(x *rig) func() {
		n, f, blocks := miniParams, tensor.F32, (miniParams+op.MomentBlock-1)/op.MomentBlock
		a := op.AdamW8{W: x.zeros(f, n), G: x.zeros(f, n), M: x.zeros(tensor.I8, n), V: x.zeros(tensor.I8, n),
			MScale: x.zeros(f, blocks), VScale: x.zeros(f, blocks), Stats: x.zeros(f, 4), AdamHyper: adamHyper()}
		return func() { x.r.AdamW8(a) }
	})
}

func BenchmarkGradNorm(b *testing.B) {
	bench(b, 2*miniParams, 4*miniParams, func(x *rig) func() {
		a := op.GradNormSq{G: x.zeros(tensor.F32, miniParams), Partials: x.f(op.NormPartials(miniParams), 2)}
		return func() { x.r.GradNormSq(a) }
	})
}

// BenchmarkAdd is the triad that memory-bound ops are compared with.
func BenchmarkAdd(b *testing.B) {
	bench(b, miniParams, 12*miniParams, func(x *rig) func() {
		a := op.Add{Dst: x.zeros(tensor.F32, miniParams), Src: x.zeros(tensor.F32, miniParams)}
		return func() { x.r.Add(a) }
	})
}
