package webgpu

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tezgah/op"
	"tezgah/tensor"
)

// bandwidthSets is how many copies of its tensors a measured call goes round, so
// that nothing is left in the cache from the call before, as in a training step.
const bandwidthSets = 6

// bandwidthBench measures kernels that only move memory, by the device's own
// clock where it has one.
type bandwidthBench struct {
	b    *Backend
	s    *stepBench
	peak op.Peak
}

// BenchmarkBandwidth compares the forms of the kernels that should run at the
// memory's speed, at the sizes of the reference step: microseconds a call and the
// share of the measured copy bandwidth of the bytes that the call must move, of a
// large copy and of one of as many bytes. The line "copy" is a copy of as many bytes
// as a norm moves: no short kernel can do better. The forms "of any" size are what the others are compared with. TEZGAH_BENCH_OPS lists beginnings of names, separated by commas.
func BenchmarkBandwidth(tb *testing.B) {
	b, real := benchBackend(tb)
	z := stepSize(real)
	z.l = 1
	s := newStepBench(tb, b, z, false)
	p, err := b.MeasurePeak()
	if err != nil {
		tb.Fatal(err)
	}
	fmt.Printf("%s: copy peak %.0f GB/s\n", b.Device(), p.BytesPerSec/1e9)
	m := &bandwidthBench{b: b, s: s, peak: p}
	m.norms()
	m.ropes()
	m.loss()
	m.others()
	m.operands()
}

// show measures call, made on one set of tensors after the other.
func (m *bandwidthBench) show(name string, bytes int, call func(set int)) {
	if list := os.Getenv("TEZGAH_BENCH_OPS"); list != "" {
		wanted := false
		for prefix := range strings.SplitSeq(list, ",") {
			wanted = wanted || strings.HasPrefix(name, prefix)
		}
		if !wanted {
			return
		}
	}
	calls := func() error {
		for set := range bandwidthSets {
			call(set)
		}
		return m.s.r.Err()
	}
	first := time.Now()
	if _, err := m.b.timeKernels(calls); err != nil { // compiles
		fmt.Printf("%-46s %v\n", name, err)
		m.s.r.Reset()
		return
	}
	compiled := time.Since(first)
	best := time.Duration(1<<63 - 1)
	for begun, n := time.Now(), 0; n < 5 || time.Since(begun) < m.b.warmTime(); n++ {
		d, err := m.b.timeKernels(calls)
		if err != nil {
			m.s.tb.Fatal(err)
		}
		best = min(best, d)
	}
	d := best.Seconds() / bandwidthSets
	fmt.Printf("%-46s %8.1f µs %7.0f GB/s %5.1f %% of peak %5.1f %% of a copy  (first %.1fs)\n", name, d*1e6, float64(bytes)/d/1e9, 100*float64(bytes)/d/m.peak.BytesPerSec, 100*float64(bytes)/d/m.peak.CopyRate(float64(bytes)), compiled.Seconds())
}

// tensors gives every set its own tensor of ordinary numbers.
func (m *bandwidthBench) tensors(dims ...int) (t [bandwidthSets]op.Tensor) {
	for i := range t {
		t[i] = m.s.f32(dims...)
		m.s.random(t[i], 1, uint64(i))
	}
	return t
}

func (m *bandwidthBench) norms() {
	s, r, n := m.s, m.s.r, m.s.b*m.s.t
	row := 4 * n * s.c
	x, y, dy, dx := m.tensors(n, s.c), m.tensors(n, s.c), m.tensors(n, s.c), m.tensors(n, s.c)
	w, dw := s.norm.w, s.norm.g
	m.show("empty dispatch", 0, func(int) { _ = m.b.fill(s.stats, 0) })
	m.show("copy", 2*row, func(i int) { r.Copy(y[i], x[i]) })
	forward := func(i int) { r.RMSNorm(op.RMSNorm{X: x[i], W: w, Y: y[i], RMSInv: s.rms, Eps: 1e-5}) }
	backward := func(i int) {
		r.RMSNormBackward(op.RMSNormBackward{X: x[i], W: w, DY: dy[i], RMSInv: s.rms, DX: dx[i], DW: dw, AddDX: true})
	}
	defer func() { m.b.norm = nil }()
	m.show("rmsnorm_forward as chosen", 2*row, forward)
	m.b.norm = &normShape{1, 1, 1}
	m.show("rmsnorm_forward of any C", 2*row, forward)
	for _, z := range []normShape{{32, 1, 0}, {32, 2, 0}, {32, 4, 0}, {32, 8, 0}, {64, 1, 0}, {64, 2, 0}, {64, 4, 0}, {256, 1, 0}} {
		m.b.norm = &z
		m.show(fmt.Sprintf("rmsnorm_forward %d lanes, %d rows", z.lanes, z.rows), 2*row, forward)
	}
	m.b.norm = nil
	m.show("rmsnorm_backward as chosen", 4*row, backward)
	m.b.norm = &normShape{1, 1, 1}
	m.show("rmsnorm_backward of any C", 4*row, backward)
	for _, z := range []normShape{{32, 4, 264}, {32, 4, 528}, {32, 4, 1056}, {32, 8, 132}, {32, 8, 264}, {32, 8, 528}, {64, 1, 1056}, {64, 2, 528}, {64, 2, 1056},
		{64, 4, 264}, {64, 4, 396}, {64, 4, 528}, {256, 1, 528}, {256, 1, 1056}} {
		m.b.norm = &z
		m.show(fmt.Sprintf("rmsnorm_backward %d lanes, %d rows, %d groups", z.lanes, z.rows, z.groups), 4*row, backward)
		frozen := func(i int) {
			r.RMSNormBackward(op.RMSNormBackward{X: x[i], W: w, DY: dy[i], RMSInv: s.rms, DX: dx[i], AddDX: true})
		}
		m.show("rmsnorm_backward   the same without dw", 4*row, frozen)
	}
}

func (m *bandwidthBench) ropes() {
	s, r := m.s, m.s.r
	x := m.tensors(s.b, s.t, s.h, s.c/s.h)
	rope := func(i int) { r.RoPE(op.RoPE{X: x[i], Table: s.table}) }
	m.show("rope as chosen", 2*4*x[0].Len(), rope)
	defer func() { m.b.ropeHeads = 0 }()
	for _, heads := range []int{-1, 1, 2, 3, 4, 6} {
		if heads > 0 && s.h%heads != 0 {
			continue
		}
		m.b.ropeHeads = heads
		m.show(fmt.Sprintf("rope %d heads a thread (-1: of any D)", heads), 2*4*x[0].Len(), rope)
	}
}

func (m *bandwidthBench) loss() {
	s, r := m.s, m.s.r
	logits := m.tensors(s.headRows, s.v)
	call := func(i int) {
		r.CrossEntropy(op.CrossEntropy{Logits: logits[i], Targets: op.Of(s.targets.Buf, 0, s.headRows), Loss: op.Of(s.loss.Buf, 0, s.headRows),
			GradScale: 1, Ignore: -100, Grad: true})
	}
	defer func() { m.b.loss, m.b.lossRow = nil, nil }()
	bytes := 2 * 4 * s.headRows * s.v
	m.show("cross_entropy as chosen", bytes, call)
	m.b.lossRow = &rowShape{}
	m.show("cross_entropy in two passes", bytes, call)
	m.b.loss = &lossShape{}
	m.show("cross_entropy of any V", bytes, call)
	for _, keep := range []int{1, 4, 8, 16, 24, 32} {
		for _, batch := range []int{2, 4, 8} {
			for _, groups := range []int{132, 264, 396, 528, 1 << 16} {
				if keep == 32 && batch > 2 || 256*(keep-1) >= s.v/4 {
					continue // nothing is left for batches
				}
				m.b.loss = &lossShape{keep, batch, groups}
				m.show(fmt.Sprintf("cross_entropy keep %d, batch %d, %d groups", keep, batch, groups), bytes, call)
			}
		}
	}
}

func (m *bandwidthBench) others() {
	s, r, n := m.s, m.s.r, m.s.b*m.s.t
	gate, up, out := m.tensors(n, s.f), m.tensors(n, s.f), m.tensors(n, s.f)
	dgate, dup := m.tensors(n, s.f), m.tensors(n, s.f)
	wide := 4 * n * s.f
	m.show("swiglu_forward", 3*wide, func(i int) { r.GLU(op.GLU{Gate: gate[i], Up: up[i], Out: out[i]}) })
	m.show("swiglu_backward", 5*wide, func(i int) {
		r.GLUBackward(op.GLUBackward{Gate: gate[i], Up: up[i], DOut: out[i], DGate: dgate[i], DUp: dup[i]})
	})
	dout, x := m.tensors(n, s.c), m.tensors(n, s.c)
	row := 4 * n * s.c
	m.show("embedding_forward", 2*row, func(i int) { r.Embedding(op.Embedding{Tokens: s.tokens, W: s.emb.w, Out: x[i]}) })
	m.show("embedding_backward", 3*row, func(i int) { r.EmbeddingBackward(op.EmbeddingBackward{Tokens: s.tokens, DOut: dout[i], DW: s.emb.g}) })
	big := s.f32(max(1<<16, min(60<<20, 7500*n)))
	partials := s.f32(op.NormPartials(big.Len()), 2)
	m.show("reduce_norm_sq", 4*big.Len(), func(int) { r.GradNormSq(op.GradNormSq{G: big, Partials: partials}) })
	var narrow op.Tensor
	if m.b.Limits().F16 {
		narrow = s.alloc(tensor.F16, n, s.f)
		m.show("cast_f32_to_f16", wide*3/2, func(i int) { r.Cast(op.Cast{Dst: narrow, Src: gate[i]}) })
	}
}
