package webgpu

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// The benchmarks measure on the test device, each once: they repeat inside and
// report the shortest time. On a software GPU they use small sizes.
//
//	go test ./op/webgpu -run '^$' -bench . -benchtime 1x

func benchBackend(tb testing.TB) (b *Backend, real bool) {
	b = open(tb, gpu.Options{}, Options{})
	tb.Cleanup(func() { b.Close() })
	return b, b.dev.Info().Kind != gpu.Software
}

// BenchmarkPeak reports what everything else is compared with.
func BenchmarkPeak(tb *testing.B) {
	b, _ := benchBackend(tb)
	p, err := b.MeasurePeak()
	if err != nil {
		tb.Fatal(err)
	}
	tb.ReportMetric(p.FLOPS/1e12, "TFLOP/s")
	tb.ReportMetric(p.BytesPerSec/1e9, "GB/s")
	tb.ReportMetric(float64(p.SubmitOverhead.Nanoseconds())/1e3, "µs/submit")
	fmt.Println(b.Device(), p)
}

// product is a shape of the training step of bench/'s reference model.
type product struct {
	name           string
	m, n, k        int
	transA, transB bool
	half           bool
}

func products(real bool) []product {
	if !real {
		return []product{{"nn", 192, 160, 96, false, false, false}, {"nt", 192, 160, 96, false, true, true}, {"tn", 96, 160, 192, true, false, false}}
	}
	return []product{
		{"cube nn f32", 4096, 4096, 4096, false, false, false},
		{"qkv/o nn w16", 8192, 768, 768, false, false, true},
		{"down nn w16", 8192, 768, 2048, false, false, true},
		{"head nn w16", 2048, 32000, 768, false, false, true},
		{"qkv/o nt w16", 8192, 768, 768, false, true, true},
		{"down nt w16", 8192, 2048, 768, false, true, true},
		{"gate nt w16", 8192, 768, 2048, false, true, true},
		{"head nt w16", 2048, 768, 32000, false, true, true},
		{"qkv/o tn", 768, 768, 8192, true, false, false},
		{"gate tn", 768, 2048, 8192, true, false, false},
		{"head tn", 768, 32000, 2048, true, false, false},
	}
}

// BenchmarkMatMul reports every product with every tile (TEZGAH_BENCH_TILES
// lists some by name, separated by commas).
func BenchmarkMatMul(tb *testing.B) {
	b, real := benchBackend(tb)
	var names []string
	for _, t := range b.Tiles() {
		names = append(names, t.String())
	}
	if list := os.Getenv("TEZGAH_BENCH_TILES"); list != "" {
		names = strings.Split(list, ",")
	}
	for _, p := range products(real) {
		if !strings.Contains(p.name, os.Getenv("TEZGAH_BENCH_SHAPES")) {
			continue
		}
		line := fmt.Sprintf("%-14s %5d×%5d×%5d:", p.name, p.m, p.n, p.k)
		for _, name := range names {
			start := time.Now()
			rate, _, err := b.MatMulRate(p.m, p.n, p.k, p.transA, p.transB, p.half, name)
			if err != nil {
				line += fmt.Sprintf("  %s: %v", name, err)
				continue
			}
			line += fmt.Sprintf("\n   %-28s %.2f (%.1fs)", name, rate/1e12, time.Since(start).Seconds())
		}
		fmt.Println(line)
	}
}

// stepConfig is the size of the step benchmark.
type stepConfig struct{ b, t, c, l, h, kvh, f, v, headRows int }

func stepSize(real bool) stepConfig {
	if !real {
		return stepConfig{b: 2, t: 48, c: 64, l: 2, h: 4, kvh: 2, f: 96, v: 300, headRows: 48}
	}
	return stepConfig{b: 16, t: 512, c: 768, l: 12, h: 12, kvh: 12, f: 2048, v: 32000, headRows: 2048}
}

// stepBench is a training step as a list of calls, with memory of its own.
type stepBench struct {
	stepConfig
	r      *op.Runner
	tb     testing.TB
	half   bool
	params []*param
	layers []*layerBench

	tokens, targets, table, loss    op.Tensor
	x, xn, rms, dx, dxn, logits     op.Tensor
	dq, dk, dv, datt, delta, dg, du op.Tensor
	partials, stats                 op.Tensor
	emb, head, norm                 *param
	step                            int
	partialOff                      []int
}

type param struct{ w, g, m, v, w16 op.Tensor }

type layerBench struct {
	n1, wq, wk, wv, wo, n2, wg, wu, wd            *param
	x, xn, rms, q, k, v, att, lse, mid, xn2, rms2 op.Tensor
	gate, up, act                                 op.Tensor
}

func (s *stepBench) alloc(t tensor.DType, dims ...int) op.Tensor {
	x := op.Of(nil, 0, dims...)
	buf, err := s.r.Backend().Alloc(fmt.Sprintf("bench%v", dims), t, x.Len())
	if err != nil {
		s.tb.Fatal(err)
	}
	x.Buf = buf
	return x
}

func (s *stepBench) f32(dims ...int) op.Tensor { return s.alloc(tensor.F32, dims...) }

// random fills x with a normal distribution; long tensors repeat a stretch.
func (s *stepBench) random(x op.Tensor, std float64, seed uint64) {
	v := make([]float32, x.Len())
	n := min(len(v), 1<<18)
	tensor.NewRNG(7, seed).Normal(v[:n], 0, std)
	for i := n; i < len(v); i += n {
		copy(v[i:], v[:n])
	}
	op.WriteSlice(s.r, x, v)
}

func (s *stepBench) param(std float64, dims ...int) *param {
	p := &param{w: s.f32(dims...), g: s.f32(dims...), m: s.f32(dims...), v: s.f32(dims...)}
	s.random(p.w, std, uint64(len(s.params)))
	if s.half {
		p.w16 = s.alloc(tensor.F16, dims...)
		s.r.Cast(op.Cast{Dst: p.w16, Src: p.w})
	} else {
		p.w16 = p.w
	}
	s.params = append(s.params, p)
	return p
}

func newStepBench(tb testing.TB, b *Backend, z stepConfig, half bool) *stepBench {
	s := &stepBench{stepConfig: z, r: op.NewRunner(b), tb: tb, half: half && b.Limits().F16}
	n, d := z.b*z.t, z.c/z.h
	kv := z.kvh * d
	s.emb, s.head, s.norm = s.param(0.02, z.v, z.c), s.param(0.02, z.c, z.v), s.param(1, z.c)
	for range z.l {
		l := &layerBench{n1: s.param(1, z.c), n2: s.param(1, z.c),
			wq: s.param(0.02, z.c, z.c), wk: s.param(0.02, z.c, kv), wv: s.param(0.02, z.c, kv), wo: s.param(0.004, z.c, z.c),
			wg: s.param(0.02, z.c, z.f), wu: s.param(0.02, z.c, z.f), wd: s.param(0.004, z.f, z.c)}
		l.x, l.xn, l.rms = s.f32(n, z.c), s.f32(n, z.c), s.f32(n)
		l.q, l.k, l.v = s.f32(z.b, z.t, z.h, d), s.f32(z.b, z.t, z.kvh, d), s.f32(z.b, z.t, z.kvh, d)
		l.att, l.lse, l.mid = s.f32(z.b, z.t, z.h, d), s.f32(z.b, z.h, z.t), s.f32(n, z.c)
		l.xn2, l.rms2 = s.f32(n, z.c), s.f32(n)
		l.gate, l.up, l.act = s.f32(n, z.f), s.f32(n, z.f), s.f32(n, z.f)
		s.layers = append(s.layers, l)
	}
	s.tokens, s.targets = s.alloc(tensor.I32, n), s.alloc(tensor.I32, n)
	ids := make([]int32, n)
	g := tensor.NewRNG(1, 2)
	for i := range ids {
		u := g.Intn(uint64(i), z.v)
		ids[i] = int32(u * u / z.v) // small ids are frequent
	}
	op.WriteSlice(s.r, s.tokens, ids)
	op.WriteSlice(s.r, s.targets, ids)
	s.table = s.f32(z.t, d)
	s.random(s.table, 0.7, 99)
	s.loss, s.x, s.xn, s.rms = s.f32(n), s.f32(n, z.c), s.f32(n, z.c), s.f32(n)
	s.dx, s.dxn, s.datt = s.f32(n, z.c), s.f32(n, z.c), s.f32(z.b, z.t, z.h, d)
	s.dq, s.dk, s.dv = s.f32(z.b, z.t, z.h, d), s.f32(z.b, z.t, z.kvh, d), s.f32(z.b, z.t, z.kvh, d)
	s.delta, s.dg, s.du = s.f32(z.b, z.h, z.t), s.f32(n, z.f), s.f32(n, z.f)
	s.logits = s.f32(z.headRows, z.v)
	total := 0
	for _, p := range s.params {
		s.partialOff = append(s.partialOff, total)
		total += (op.NormPartials(p.w.Len())*2 + op.AlignElems - 1) / op.AlignElems * op.AlignElems
	}
	s.partials, s.stats = s.f32(total/2, 2), s.f32(4)
	if err := s.r.Sync(); err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *stepBench) rows(x op.Tensor) op.Tensor { return x.Reshape(s.b*s.t, x.Len()/(s.b*s.t)) }

func (s *stepBench) scale() float32 { return 0.125 }

func (s *stepBench) forward() {
	r := s.r
	r.Embedding(op.Embedding{Tokens: s.tokens, W: s.emb.w16, Out: s.layers[0].x})
	for i, l := range s.layers {
		out := s.x
		if i+1 < len(s.layers) {
			out = s.layers[i+1].x
		}
		r.RMSNorm(op.RMSNorm{X: l.x, W: l.n1.w, Y: l.xn, RMSInv: l.rms, Eps: 1e-5})
		r.MatMulGroup([]op.MatMul{{A: l.xn, B: l.wq.w16, C: s.rows(l.q)}, {A: l.xn, B: l.wk.w16, C: s.rows(l.k)}, {A: l.xn, B: l.wv.w16, C: s.rows(l.v)}})
		r.RoPE(op.RoPE{X: l.q, X2: l.k, Table: s.table})
		r.Attention(op.Attention{Q: l.q, K: l.k, V: l.v, Out: l.att, LSE: l.lse, Scale: s.scale()})
		r.MatMul(op.MatMul{A: s.rows(l.att), B: l.wo.w16, C: l.mid, Residual: l.x})
		r.RMSNorm(op.RMSNorm{X: l.mid, W: l.n2.w, Y: l.xn2, RMSInv: l.rms2, Eps: 1e-5})
		r.GateUp(op.GateUp{X: l.xn2, WGate: l.wg.w16, WUp: l.wu.w16, Gate: l.gate, Up: l.up, Out: l.act})
		r.MatMul(op.MatMul{A: l.act, B: l.wd.w16, C: out, Residual: l.mid})
	}
	r.RMSNorm(op.RMSNorm{X: s.x, W: s.norm.w, Y: s.xn, RMSInv: s.rms, Eps: 1e-5})
}

func (s *stepBench) headLoss() {
	r, n := s.r, s.b*s.t
	for lo := 0; lo < n; lo += s.headRows {
		xn, targets, loss := s.xn.RowRange(lo, lo+s.headRows), op.Of(s.targets.Buf, lo, s.headRows), op.Of(s.loss.Buf, lo, s.headRows)
		r.MatMul(op.MatMul{A: xn, B: s.head.w16, C: s.logits})
		r.CrossEntropy(op.CrossEntropy{Logits: s.logits, Targets: targets, Loss: loss, GradScale: 1 / float32(n), Ignore: -100, Grad: true})
		r.MatMul(op.MatMul{A: s.logits, B: s.head.w16, C: s.dxn.RowRange(lo, lo+s.headRows), TransB: true})
		r.MatMul(op.MatMul{A: xn, B: s.logits, C: s.head.g, TransA: true, Acc: lo > 0})
	}
	r.RMSNormBackward(op.RMSNormBackward{X: s.x, W: s.norm.w, DY: s.dxn, RMSInv: s.rms, DX: s.dx, DW: s.norm.g})
}

func (s *stepBench) backward() {
	r := s.r
	for i := len(s.layers) - 1; i >= 0; i-- {
		l := s.layers[i]
		r.MatMul(op.MatMul{A: s.dx, B: l.wd.w16, C: s.du, TransB: true})
		r.MatMul(op.MatMul{A: l.act, B: s.dx, C: l.wd.g, TransA: true})
		r.GLUBackward(op.GLUBackward{Gate: l.gate, Up: l.up, DOut: s.du, DGate: s.dg, DUp: s.du})
		r.MatMulSum(op.MatMulSum{{A: s.dg, B: l.wg.w16, C: s.dxn, TransB: true}, {A: s.du, B: l.wu.w16, C: s.dxn, TransB: true}})
		r.MatMulGroup([]op.MatMul{{A: l.xn2, B: s.dg, C: l.wg.g, TransA: true}, {A: l.xn2, B: s.du, C: l.wu.g, TransA: true}})
		r.RMSNormBackward(op.RMSNormBackward{X: l.mid, W: l.n2.w, DY: s.dxn, RMSInv: l.rms2, DX: s.dx, DW: l.n2.g, AddDX: true})
		r.MatMul(op.MatMul{A: s.dx, B: l.wo.w16, C: s.rows(s.datt), TransB: true})
		r.MatMul(op.MatMul{A: s.rows(l.att), B: s.dx, C: l.wo.g, TransA: true})
		r.AttentionBackward(op.AttentionBackward{Q: l.q, K: l.k, V: l.v, Out: l.att, LSE: l.lse, DOut: s.datt, Delta: s.delta,
			DQ: s.dq, DK: s.dk, DV: s.dv, Scale: s.scale()})
		r.RoPE(op.RoPE{X: s.dq, X2: s.dk, Table: s.table, Inverse: true})
		dq, dk, dv := s.rows(s.dq), s.rows(s.dk), s.rows(s.dv)
		r.MatMulSum(op.MatMulSum{{A: dq, B: l.wq.w16, C: s.dxn, TransB: true}, {A: dk, B: l.wk.w16, C: s.dxn, TransB: true},
			{A: dv, B: l.wv.w16, C: s.dxn, TransB: true}})
		r.MatMulGroup([]op.MatMul{{A: l.xn, B: dq, C: l.wq.g, TransA: true}, {A: l.xn, B: dk, C: l.wk.g, TransA: true},
			{A: l.xn, B: dv, C: l.wv.g, TransA: true}})
		r.RMSNormBackward(op.RMSNormBackward{X: l.x, W: l.n1.w, DY: s.dxn, RMSInv: l.rms, DX: s.dx, DW: l.n1.g, AddDX: true})
	}
	r.EmbeddingBackward(op.EmbeddingBackward{Tokens: s.tokens, DOut: s.dx, DW: s.emb.g})
}

func (s *stepBench) optimize() {
	r := s.r
	s.step++
	for i, p := range s.params {
		n := op.NormPartials(p.g.Len())
		r.GradNormSq(op.GradNormSq{G: p.g.Flat(), Partials: op.Of(s.partials.Buf, s.partialOff[i], n, 2)})
	}
	r.FinalizeGradStats(op.FinalizeGradStats{Partials: s.partials, Stats: s.stats, MaxNorm: 1})
	h := op.AdamHyper{LR: 1e-4 * (1 + 0.01*float32(s.step)), Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1, Eps: 1e-8,
		Beta1Pow: 1 / float32(s.step+1), Beta2Pow: 1 / float32(s.step+1)}
	for _, p := range s.params {
		a := op.AdamW{W: p.w.Flat(), G: p.g.Flat(), M: p.m.Flat(), V: p.v.Flat(), Stats: s.stats, AdamHyper: h}
		if s.half {
			a.W16 = p.w16.Flat()
		}
		r.AdamW(a)
	}
}

// clear begins the gradients that no product writes.
func (s *stepBench) clear() {
	sums := []*param{s.emb, s.norm}
	for _, l := range s.layers {
		sums = append(sums, l.n1, l.n2)
	}
	for _, p := range sums {
		s.r.Zero(p.g)
	}
}

func (s *stepBench) run() error {
	s.clear()
	s.forward()
	s.headLoss()
	s.backward()
	s.optimize()
	return s.r.Err()
}

// BenchmarkStep reports tokens per second of a whole training step, the host's
// share, and a profile of one.
func BenchmarkStep(tb *testing.B) {
	b, real := benchBackend(tb)
	benchStep(tb, b, real)
}

// BenchmarkStepMatrix is BenchmarkStep with products on the matrix units.
func BenchmarkStepMatrix(tb *testing.B) {
	b, real := benchBackend(tb)
	for _, input := range b.Rounding() {
		tb.Run(input.String(), func(tb *testing.B) {
			if err := b.RoundProducts(input); err != nil {
				tb.Fatal(err)
			}
			benchStep(tb, b, real)
		})
	}
}

func benchStep(tb *testing.B, b *Backend, real bool) {
	begun := time.Now()
	s := newStepBench(tb, b, stepSize(real), true)
	fmt.Printf("memory allocated in %v\n", time.Since(begun))
	step := func() (host, whole time.Duration) {
		start := time.Now()
		if err := s.run(); err != nil {
			tb.Fatal(err)
		}
		host = time.Since(start)
		if err := b.Sync(); err != nil {
			tb.Fatal(err)
		}
		return host, time.Since(start)
	}
	_, first := step()
	best, host := time.Hour, time.Hour
	for range 8 {
		h, w := step()
		best, host = min(best, w), min(host, h)
	}
	n := s.b * s.t
	tb.ReportMetric(float64(n)/best.Seconds(), "tok/s")
	now, peak := b.MemoryBytes()
	fmt.Printf("first step %v, step %v, recording %v, %d pipelines, memory %d MB, peak %d MB\n", first, best, host, b.Compiled(), now>>20, peak>>20)
	for class, tile := range b.tuner.chosen {
		fmt.Printf("tile %-40v %v\n", class, tile)
	}
	overhead, err := b.submitOverhead()
	if err != nil {
		tb.Fatal(err)
	}
	p := &op.Profile{Overhead: overhead}
	stop, ok, err := s.r.ProfileKernels(p)
	if err != nil || !ok {
		tb.Fatalf("no timestamps: %v", err)
	}
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
	if err := stop(); err != nil {
		tb.Fatal(err)
	}
	for _, row := range p.Kernels() {
		fmt.Printf("kernel %-30s %4d calls %9.3f ms\n", row.Label, row.Calls, row.Time.Seconds()*1e3)
	}
	var sum time.Duration
	for _, row := range p.Rows() {
		sum += row.Time
	}
	for _, row := range p.Rows() {
		fmt.Printf("%-22s %4d calls %9.3f ms %5.1f%% %7.2f TFLOP/s %8.0f GB/s\n", row.Label, row.Calls, row.Time.Seconds()*1e3,
			100*float64(row.Time)/float64(sum), float64(row.FLOPs)/row.Time.Seconds()/1e12, float64(row.Bytes)/row.Time.Seconds()/1e9)
	}
	fmt.Printf("sum %v, overhead %v a call\n", sum, overhead)
}

// BenchmarkDecode reports tokens per second of one stream of preset small with
// f16 weights: the calls of one position, and a read of one number.
func BenchmarkDecode(tb *testing.B) {
	b, real := benchBackend(tb)
	z := stepConfig{b: 1, t: 1, c: 768, l: 12, h: 12, kvh: 4, f: 3072, v: 16384, headRows: 1}
	slots, steps := 1024, 200
	if !real {
		z.c, z.l, z.f, z.v, slots, steps = 96, 2, 128, 512, 64, 5
	}
	s := newStepBench(tb, b, z, true)
	s.table = s.f32(slots, z.c/z.h)
	s.random(s.table, 0.7, 99)
	caches := make([][2]op.Tensor, z.l)
	for i := range caches {
		caches[i] = [2]op.Tensor{s.f32(1, slots, z.kvh, z.c/z.h), s.f32(1, slots, z.kvh, z.c/z.h)}
	}
	r, out := s.r, make([]float32, z.v)
	token := func(pos int) {
		r.Embedding(op.Embedding{Tokens: s.tokens, W: s.emb.w16, Out: s.layers[0].x})
		for i, l := range s.layers {
			next := s.x
			if i+1 < len(s.layers) {
				next = s.layers[i+1].x
			}
			r.RMSNorm(op.RMSNorm{X: l.x, W: l.n1.w, Y: l.xn, RMSInv: l.rms, Eps: 1e-5})
			r.MatMulGroup([]op.MatMul{{A: l.xn, B: l.wq.w16, C: s.rows(l.q)}, {A: l.xn, B: l.wk.w16, C: s.rows(l.k)}, {A: l.xn, B: l.wv.w16, C: s.rows(l.v)}})
			r.RoPE(op.RoPE{X: l.q, X2: l.k, Table: s.table, Pos0: pos})
			r.KVAppend(op.KVAppend{K: l.k, V: l.v, KCache: caches[i][0], VCache: caches[i][1], Pos: pos})
			r.AttentionDecode(op.AttentionDecode{Q: l.q.Reshape(1, z.h, z.c/z.h), KCache: caches[i][0], VCache: caches[i][1],
				Out: l.att.Reshape(1, z.h, z.c/z.h), Len: pos + 1, Scale: 0.125})
			r.MatMul(op.MatMul{A: s.rows(l.att), B: l.wo.w16, C: l.mid, Residual: l.x})
			r.RMSNorm(op.RMSNorm{X: l.mid, W: l.n2.w, Y: l.xn2, RMSInv: l.rms2, Eps: 1e-5})
			r.GateUp(op.GateUp{X: l.xn2, WGate: l.wg.w16, WUp: l.wu.w16, Gate: l.gate, Up: l.up, Out: l.act})
			r.MatMul(op.MatMul{A: l.act, B: l.wd.w16, C: next, Residual: l.mid})
		}
		r.RMSNorm(op.RMSNorm{X: s.x, W: s.norm.w, Y: s.xn, RMSInv: s.rms, Eps: 1e-5})
		r.MatMul(op.MatMul{A: s.xn, B: s.head.w16, C: s.logits})
		if err := op.ReadSlice(r, out, s.logits); err != nil {
			tb.Fatal(err)
		}
	}
	token(0)
	start := time.Now()
	for i := range steps {
		token((512 + i) % slots)
	}
	d := time.Since(start) / time.Duration(steps)
	tb.ReportMetric(1/d.Seconds(), "tok/s")
	overhead, _ := b.submitOverhead()
	p := &op.Profile{Overhead: overhead}
	r.SetProfile(p)
	token(600 % slots)
	for _, row := range p.Rows() {
		fmt.Printf("%-22s %4d calls %9.3f ms\n", row.Label, row.Calls, row.Time.Seconds()*1e3)
	}
}

// BenchmarkOps reports the calls of the reference step that are no products,
// several in one submit, so that launch costs do not hide them.
func BenchmarkOps(tb *testing.B) {
	b, real := benchBackend(tb)
	z := stepSize(real)
	z.l = 1
	s := newStepBench(tb, b, z, true)
	l, r := s.layers[0], s.r
	big := 1 << 16
	if real {
		big = 60 << 20
	}
	w, g, m, v := s.f32(big), s.f32(big), s.f32(big), s.f32(big)
	m8, v8 := s.alloc(tensor.I8, big), s.alloc(tensor.I8, big)
	ms, vs := s.f32(big/256), s.f32(big/256)
	partials := s.f32(op.NormPartials(big), 2)
	var w16 op.Tensor
	if s.half {
		w16 = s.alloc(tensor.F16, big)
	}
	h := op.AdamHyper{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1, Eps: 1e-8, Beta1Pow: 0.5, Beta2Pow: 0.5}
	n := s.b * s.t
	const repeats = 10
	show := func(name string, bytes int, f func()) {
		d, err := b.shortest(5, func() error {
			for range repeats {
				f()
			}
			return r.Err()
		})
		d /= repeats
		fmt.Printf("%-24s %9.1f µs %7.0f GB/s %v\n", name, d.Seconds()*1e6, float64(bytes)/d.Seconds()/1e9, err)
	}
	row := 4 * n * z.c
	show("rmsnorm_forward", 2*row, func() {
		r.RMSNorm(op.RMSNorm{X: l.x, W: l.n1.w, Y: l.xn, RMSInv: l.rms, Eps: 1e-5})
	})
	show("rmsnorm_backward add", 4*row, func() {
		r.RMSNormBackward(op.RMSNormBackward{X: l.x, W: l.n1.w, DY: s.dxn, RMSInv: l.rms, DX: s.dx, DW: l.n1.g, AddDX: true})
	})
	show("rope q", 2*row, func() { r.RoPE(op.RoPE{X: l.q, Table: s.table}) })
	show("swiglu_backward", 5*4*n*z.f, func() {
		r.GLUBackward(op.GLUBackward{Gate: l.gate, Up: l.up, DOut: s.du, DGate: s.dg, DUp: s.du})
	})
	show("add", 3*row, func() { r.Add(op.Add{Dst: s.dx, Src: s.dxn}) })
	show("cross_entropy", 2*4*z.headRows*z.v, func() {
		r.CrossEntropy(op.CrossEntropy{Logits: s.logits, Targets: op.Of(s.targets.Buf, 0, z.headRows), Loss: op.Of(s.loss.Buf, 0, z.headRows), GradScale: 1, Ignore: -100, Grad: true})
	})
	show("embedding_backward", 3*row, func() {
		r.EmbeddingBackward(op.EmbeddingBackward{Tokens: s.tokens, DOut: s.dx, DW: s.emb.g})
	})
	show("reduce_norm_sq", 4*big, func() { r.GradNormSq(op.GradNormSq{G: g, Partials: partials}) })
	show("adamw_update", 28*big, func() { r.AdamW(op.AdamW{W: w, G: g, M: m, V: v, Stats: s.stats, AdamHyper: h}) })
	if s.half {
		show("adamw_update_f16", 30*big, func() { r.AdamW(op.AdamW{W: w, G: g, M: m, V: v, W16: w16, Stats: s.stats, AdamHyper: h}) })
	}
	brain := s.alloc(tensor.BF16, big)
	show("adamw_update_bf16", 30*big, func() { r.AdamW(op.AdamW{W: w, G: g, M: m, V: v, W16: brain, Stats: s.stats, AdamHyper: h}) })
	show("adamw_8bit_update", 16*big, func() {
		r.AdamW8(op.AdamW8{W: w, G: g, M: m8, V: v8, MScale: ms, VScale: vs, Stats: s.stats, AdamHyper: h})
	})
	show("copy", 8*big, func() { r.Copy(m, v) })
	p, err := b.MeasurePeak()
	fmt.Printf("peak: %.1f TFLOP/s, %.0f GB/s, submit %v %v\n", p.FLOPS/1e12, p.BytesPerSec/1e9, p.SubmitOverhead, err)
}
