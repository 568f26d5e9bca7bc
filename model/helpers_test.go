package model

import (
	"math"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// Tiny models that differ in everything the forward pass looks at. No size is
// a multiple of another where it need not be.
var (
	tinyTied = Config{VocabSize: 23, Context: 9, DModel: 16, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 6,
		FFN: 20, Tied: true}
	tinyUntied = Config{VocabSize: 19, Context: 7, DModel: 12, Layers: 3, Heads: 3, KVHeads: 1, HeadDim: 4,
		FFN: 17, Activation: "gelu_tanh", RopeTheta: 500}
)

// lcg is the generator of testdata/gen/golden.py: x ← 1664525·x + 1013904223.
func lcg(seed uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		seed = seed*1664525 + 1013904223
		out[i] = seed
	}
	return out
}

// fill gives p the weights of golden.py: uniform in [−1/4, 1/4), gains around 1.
func fill(t testing.TB, p *Params) {
	t.Helper()
	for i, s := range p.Weights() {
		base := float32(1)
		if p.Infos()[i].Decay {
			base = 0
		}
		w := make([]float32, s.T.Len())
		for j, x := range lcg(1000+7919*uint32(i), len(w)) {
			w[j] = base + (float32(x>>16)-32768)/131072
		}
		op.WriteSlice(p.r, s.T, w)
	}
	p.stale = true
	if err := p.r.Err(); err != nil {
		t.Fatal(err)
	}
}

// batchOf is a batch of B·T tokens and their successors. About one target in
// seven is ignored.
func batchOf(c Config, B, T int, seed uint32) (tokens, targets []int32) {
	for _, x := range lcg(seed, B*T) {
		tokens = append(tokens, int32(x>>8)%int32(c.VocabSize))
		target := int32(x>>10) % int32(c.VocabSize)
		if x>>8%7 == 0 {
			target = IgnoreIndex
		}
		targets = append(targets, target)
	}
	return tokens, targets
}

// docStarts begins a document every period positions, shifted by the row.
func docStarts(B, T, period int) []int32 {
	var s []int32
	for b := range B {
		begin := int32(0)
		for t := range T {
			if t > 0 && (t+b)%period == 0 {
				begin = int32(t)
			}
			s = append(s, begin)
		}
	}
	return s
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// ref64 is a model on the float64 reference backend.
type ref64 struct {
	b *ref.Backend[float64]
	p *Params
}

func newRef64(t testing.TB, c Config, opt ParamOptions) ref64 {
	t.Helper()
	b := ref.New[float64]()
	p := must[*Params](t)(NewParams(op.NewRunner(b), c, opt))
	fill(t, p)
	return ref64{b, p}
}

func (m ref64) graph(t testing.TB, o TrainOptions) *Graph {
	t.Helper()
	return must[*Graph](t)(NewGraph(m.p.r, m.p, o))
}

// data shows the float64 elements of a tensor themselves.
func (m ref64) data(x op.Tensor) []float64 { return m.b.Data(x.Buf)[x.Off : x.Off+x.Len()] }

// takeLoss returns and clears the loss sum without rounding to float32.
func (m ref64) takeLoss(g *Graph) float64 {
	s := m.data(g.head.sum)
	v := s[0]
	s[0] = 0
	return v
}

// grads copies all gradients by name.
func (m ref64) grads() map[string][]float64 {
	all := map[string][]float64{}
	for _, s := range m.p.Grads() {
		all[s.Name] = append([]float64(nil), m.data(s.T)...)
	}
	return all
}

func (m ref64) clearGrads() { zeroGrads(m.p) }

func zeroGrads(p *Params) {
	for _, b := range p.Blocks() {
		p.r.Zero(b.G)
	}
}

// cpuParams is a model on the fast CPU backend.
func cpuParams(t testing.TB, threads int, c Config, opt ParamOptions) *Params {
	t.Helper()
	b := must[*cpu.Backend](t)(cpu.New(cpu.Options{Threads: threads}))
	t.Cleanup(func() { b.Close() })
	p := must[*Params](t)(NewParams(op.NewRunner(b), c, opt))
	fill(t, p)
	return p
}

// read32 reads a tensor in float32.
func read32(t testing.TB, r *op.Runner, x op.Tensor) []float32 {
	t.Helper()
	v := make([]float32, x.Len())
	if err := op.ReadSlice(r, v, x); err != nil {
		t.Fatal(err)
	}
	return v
}

// grads32 reads all gradients in float32, by name.
func grads32(t testing.TB, p *Params) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, s := range p.Grads() {
		all[s.Name] = read32(t, p.r, s.T)
	}
	return all
}

// near fails unless got is within bound·max|want| of want everywhere. A want
// that is zero everywhere is a mistake of the test: any all-zero output would
// pass.
func near[A, B float32 | float64](t testing.TB, what string, got []A, want []B, bound float64) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: got %d values, want %d", what, len(got), len(want))
	}
	top := 0.0
	for _, w := range want {
		top = max(top, math.Abs(float64(w)))
	}
	if top == 0 {
		t.Fatalf("%s: all wanted values are 0, which proves nothing", what)
	}
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= bound*top) {
			t.Fatalf("%s[%d]: got %v, want %v, error %.3g, bound %.3g", what, i, got[i], want[i], d, bound*top)
		}
	}
}

// sameBits fails unless a and b hold the same bits.
func sameBits(t testing.TB, what string, a, b []float32) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%s: %d and %d values", what, len(a), len(b))
	}
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			t.Fatalf("%s[%d]: %v and %v differ", what, i, a[i], b[i])
		}
	}
}

// limited is a backend with smaller limits.
type limited struct {
	op.Backend
	lim op.Limits
}

func (l limited) Limits() op.Limits { return l.lim }

// junk is a backend whose buffers are full of NaN (or absurd integers) where
// nothing promises zeros: everything but the parameters and the loss sum.
type junk struct{ op.Backend }

func (j junk) Alloc(label string, t tensor.DType, n int) (op.Buffer, error) {
	b, err := j.Backend.Alloc(label, t, n)
	if err != nil || t != tensor.F32 || label == "loss_sum" ||
		strings.HasPrefix(label, "mega") || strings.HasPrefix(label, "grad") {
		return b, err
	}
	nan := make([]float32, n)
	for i := range nan {
		nan[i] = float32(math.NaN())
	}
	return b, j.Write(op.Of(b, 0, n), tensor.Bytes(nan))
}
