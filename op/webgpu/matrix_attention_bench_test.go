package webgpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// attnBench is attention of one layer, forward and backward, with its memory.
type attnBench struct {
	b    *Backend
	s    *stepBench
	l    *layerBench
	z    stepConfig
	doc  op.Tensor
	want map[string][]float32 // results of the kernels in WGSL
}

// BenchmarkMatrixAttention compares the kernels in WGSL with those for matrix
// units, tile by tile, by the device's own clock: microseconds, TFLOP/s, and the
// largest difference between their results, as a share of their mean size.
// TEZGAH_BENCH_TILES is a list of tiles, separated by commas; TEZGAH_BENCH_INPUT is
// f16 or bf16, TEZGAH_BENCH_PARTS of forward, dq, dkdv, and TEZGAH_BENCH_SHAPE
// "B T H KVH D documents".
func BenchmarkMatrixAttention(tb *testing.B) {
	b, real := benchBackend(tb)
	z, docs := attentionBenchSize(tb, real)
	a := newAttnBench(tb, b, z, docs)
	pairs := float64(z.b*z.h*z.t) * float64(z.t+1) / 2 * float64(z.c/z.h)
	for kernel, us := range a.measure(tb) {
		fmt.Printf("%-28s %9.1f µs\n", kernel, us)
	}
	a.want = a.results(tb, "out", "lse", "dq", "dk", "dv")
	for _, input := range b.Rounding() {
		if !strings.HasPrefix(matrixInput(input), os.Getenv("TEZGAH_BENCH_INPUT")) {
			continue
		}
		if err := b.RoundProducts(input); err != nil {
			tb.Fatal(err)
		}
		for part, flops := range [attentionParts]float64{4 * pairs, 6 * pairs, 8 * pairs} {
			if list := os.Getenv("TEZGAH_BENCH_PARTS"); list == "" || strings.Contains(list, strings.TrimPrefix(attentionNames[part], "attention_")) {
				a.tiles(tb, attentionPart(part), input, flops)
			}
		}
	}
	b.RoundProducts(tensor.F32)
}

// attentionBenchSize is the size of the attention that is measured, and how many
// documents a sequence has: that of the reference step, or of TEZGAH_BENCH_SHAPE.
func attentionBenchSize(tb testing.TB, real bool) (z stepConfig, docs int) {
	z = stepConfig{b: 1, t: 40, c: 32, l: 1, h: 2, kvh: 1, f: 64, v: 64, headRows: 8}
	if real {
		z = stepConfig{b: 16, t: 512, c: 768, l: 1, h: 12, kvh: 12, f: 64, v: 64, headRows: 8}
	}
	if shape := os.Getenv("TEZGAH_BENCH_SHAPE"); shape != "" {
		d := 0
		if _, err := fmt.Sscan(shape, &z.b, &z.t, &z.h, &z.kvh, &d, &docs); err != nil {
			tb.Fatal(err)
		}
		z.c = z.h * d
	}
	return z, docs
}

func newAttnBench(tb testing.TB, b *Backend, z stepConfig, docs int) *attnBench {
	a := &attnBench{b: b, s: newStepBench(tb, b, z, false), z: z}
	a.l = a.s.layers[0]
	for i, x := range []op.Tensor{a.l.q, a.l.k, a.l.v, a.s.datt} {
		a.s.random(x, 1, uint64(5+i))
	}
	if docs > 0 {
		starts := make([]int32, z.b*z.t)
		for i := range starts {
			starts[i] = int32(i % z.t * docs / z.t * z.t / docs)
		}
		a.doc = a.s.alloc(tensor.I32, z.b, z.t)
		op.WriteSlice(a.s.r, a.doc, starts)
	}
	return a
}

func (a *attnBench) forward() error {
	return a.b.Attention(op.Attention{Q: a.l.q, K: a.l.k, V: a.l.v, Out: a.l.att, LSE: a.l.lse, DocStart: a.doc, Scale: a.s.scale()})
}

func (a *attnBench) backward() error {
	return a.b.AttentionBackward(op.AttentionBackward{Q: a.l.q, K: a.l.k, V: a.l.v, Out: a.l.att, LSE: a.l.lse, DocStart: a.doc,
		DOut: a.s.datt, Delta: a.s.delta, DQ: a.s.dq, DK: a.s.dk, DV: a.s.dv, Scale: a.s.scale()})
}

// measure gives the shortest time of each kernel of both directions, in µs. It
// keeps the GPU busy before, because an idle one lowers its clock.
func (a *attnBench) measure(tb testing.TB) map[string]float64 {
	const rounds, busy = 8, 80 * time.Millisecond
	best := map[string]float64{}
	for start := time.Now(); time.Since(start) < busy; {
		if err := errors.Join(a.forward(), a.backward(), a.b.Sync()); err != nil {
			tb.Fatal(err)
		}
	}
	for range rounds {
		if err := a.b.dev.StartTiming(1024); err != nil {
			tb.Fatal(err)
		}
		for _, f := range []func() error{a.forward, a.backward} {
			if err := f(); err != nil {
				tb.Fatal(err)
			}
		}
		times, err := a.b.dev.StopTiming()
		if err != nil {
			tb.Fatal(err)
		}
		sum := map[string]float64{}
		for _, t := range times {
			sum[t.Kernel] += t.Nanoseconds / 1e3
		}
		for k, us := range sum {
			if old, ok := best[k]; !ok || us < old {
				best[k] = us
			}
		}
	}
	return best
}

// results reads some of what both directions wrote.
func (a *attnBench) results(tb testing.TB, names ...string) map[string][]float32 {
	res := map[string][]float32{}
	for _, name := range names {
		x := map[string]op.Tensor{"out": a.l.att, "lse": a.l.lse, "dq": a.s.dq, "dk": a.s.dk, "dv": a.s.dv}[name]
		res[name] = make([]float32, x.Len())
		if err := op.ReadSlice(a.s.r, res[name], x); err != nil {
			tb.Fatal(err)
		}
	}
	return res
}

// difference is the largest one between two results, as a share of the mean size.
func difference(got, want []float32) float64 {
	var worst, sum float64
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			return d
		}
		worst = max(worst, d)
		sum += math.Abs(float64(w))
	}
	return worst / (sum / float64(len(want)))
}

func (a *attnBench) tiles(tb testing.TB, part attentionPart, input tensor.DType, flops float64) {
	wanted := strings.FieldsFunc(os.Getenv("TEZGAH_BENCH_TILES"), func(r rune) bool { return r == ',' })
	d, l := a.z.c/a.z.h, a.b.dev.Limits()
	for _, t := range allAttentionTiles() {
		if !t.Fits(a.b.matrix.fragments[input], d, l.Invocations, min(l.WorkgroupMemory, attentionMemory)) || t.Convert && !a.b.dev.Info().Matrix2 ||
			len(wanted) > 0 && !slices.Contains(wanted, t.String()) {
			continue
		}
		a.b.matrix.attention = [attentionParts]*matrix.AttentionTile{}
		a.b.matrix.attention[part] = &t
		times, names := a.measure(tb), [attentionParts][]string{{"out", "lse"}, {"dq"}, {"dk", "dv"}}[part]
		got := a.results(tb, names...)
		us := times["matrix_"+attentionNames[part]]
		fmt.Printf("%-8s %-4s %-22v %7.1f µs %6.1f TFLOP/s ", strings.TrimPrefix(attentionNames[part], "attention_"), matrixInput(input), t, us, flops/us/1e6)
		for _, name := range names {
			fmt.Printf(" %s %.1e", name, difference(got[name], a.want[name]))
		}
		fmt.Println()
	}
	a.b.matrix.attention = [attentionParts]*matrix.AttentionTile{}
}

// allAttentionTiles are the shapes that are compared.
func allAttentionTiles() (list []matrix.AttentionTile) {
	for _, convert := range []bool{true, false} {
		for _, early := range []bool{false, true} {
			for _, n := range [][2]int{{4, 1}, {8, 1}, {4, 2}, {2, 2}} {
				for _, o := range [][2]int{{64, 64}, {64, 32}, {64, 16}, {32, 32}, {32, 16}, {16, 16}} {
					list = append(list, matrix.AttentionTile{Subgroups: n[0], Own: n[1], Other: o[0], Strip: o[1], Early: early, Convert: convert})
				}
			}
		}
	}
	return list
}
