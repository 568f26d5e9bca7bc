package webgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/tensor"
)

// unitRig makes tensors of random numbers for calls on the matrix units.
type unitRig struct {
	t   *testing.T
	b   *Backend
	r   *op.Runner
	rng *rand.Rand
}

func newUnitRig(t *testing.T) *unitRig {
	b := matrixBackend(t)
	t.Cleanup(func() { b.Close() })
	return &unitRig{t, b, op.NewRunner(b), rand.New(rand.NewPCG(7, 8))}
}

// random is a tensor of type F32 or of 16 bits.
func (g *unitRig) random(typ tensor.DType, dims ...int) op.Tensor {
	x := tensorOn(g.t, g.b, typ, dims...)
	v := make([]float32, x.Len())
	for i := range v {
		v[i] = float32(g.rng.NormFloat64())
	}
	if typ == tensor.F32 {
		op.WriteSlice(g.r, x, v)
	} else {
		op.WriteSlice(g.r, x, rounded(v, typ))
	}
	return x
}

// values are a tensor's numbers.
func (g *unitRig) values(x op.Tensor) []float32 {
	p := probeTensors{b: g.b, p: attentionProbe{input: x.Type()}}
	v, err := p.read(x)
	if err != nil {
		g.t.Fatal(err)
	}
	return v
}

// same compares results that may differ by a rounding to their type and what one
// fused multiplication changes.
func (g *unitRig) same(name string, got, want op.Tensor) {
	g.t.Helper()
	unit := 0x1p-20
	switch got.Type() {
	case tensor.BF16:
		unit = 0x1p-8
	case tensor.F16:
		unit = 0x1p-11
	}
	a, b := g.values(got), g.values(want)
	for i := range a {
		if d := math.Abs(float64(a[i] - b[i])); !(d <= 2*unit*math.Abs(float64(b[i]))+0x1p-18) {
			g.t.Fatalf("%s[%d] is %v, want %v", name, i, a[i], b[i])
		}
	}
}

// angles is a table of n positions for heads of d.
func (g *unitRig) angles(n, d int) op.Tensor {
	x := tensorOn(g.t, g.b, tensor.F32, n, d)
	v := make([]float32, n*d)
	for p := range n {
		for i := range d / 2 {
			s, c := math.Sincos(float64(p) * math.Pow(100, -2*float64(i)/float64(d)))
			v[p*d+i], v[p*d+d/2+i] = float32(c), float32(s)
		}
	}
	op.WriteSlice(g.r, x, v)
	return x
}

// TestProductsTurn compares q, k and v of one dispatch with a product and a rotation
// each: several heads of several sizes, fewer heads of k, results in 16 bits and in
// place, and a sequence that ends within a tile.
func TestProductsTurn(t *testing.T) {
	g := newUnitRig(t)
	for _, input := range g.b.Rounding() {
		if err := g.b.RoundProducts(input); err != nil {
			t.Fatal(err)
		}
		for _, z := range []struct{ b, t, h, kvh, d, c int }{{2, 37, 4, 2, 16, 64}, {1, 70, 2, 2, 32, 72}, {3, 11, 6, 2, 8, 40}} {
			for _, narrow := range []bool{true, false} {
				g.group(input, z.b, z.t, z.h, z.kvh, z.d, z.c, narrow)
			}
		}
	}
}

func (g *unitRig) group(input tensor.DType, b, t, h, kvh, d, c int, narrow bool) {
	a, table := g.random(input, b*t, c), g.angles(t+3, d)
	to := tensor.F32
	if narrow {
		to = input
	}
	// products gives the items, with results of random numbers, and the rotation.
	ws := []op.Tensor{g.random(tensor.F32, c, h*d), g.random(tensor.F32, c, kvh*d), g.random(tensor.F32, c, kvh*d)}
	products := func() (items []op.MatMul, turn op.RoPE, v op.Tensor) {
		q, k := g.random(tensor.F32, b, t, h, d), g.random(tensor.F32, b, t, kvh, d)
		v = g.random(to, b*t, kvh*d)
		turn = op.RoPE{X: q, X2: k, Table: table}
		if narrow {
			turn.Out, turn.Out2 = g.random(to, b, t, h, d), g.random(to, b, t, kvh, d)
		}
		return []op.MatMul{{A: a, B: ws[0], C: q.Reshape(b*t, h*d)}, {A: a, B: ws[1], C: k.Reshape(b*t, kvh*d)}, {A: a, B: ws[2], C: v}}, turn, v
	}
	items, turn, v := products()
	if !g.b.RotatesGroup(items, turn) {
		g.t.Fatalf("%d heads of %d are not turned by the product", h, d)
	}
	kernels := timedKernels(g.t, g.b, func() { g.r.MatMulGroupRoPE(items, turn) })
	plainItems, plainTurn, plainV := products()
	g.r.MatMulGroup(plainItems)
	g.r.RoPE(plainTurn)
	if err := g.r.Err(); err != nil {
		g.t.Fatal(err)
	}
	first, second := turn.Split()
	plainFirst, plainSecond := plainTurn.Split()
	name := fmt.Sprintf("%v, %d heads of %d, 16 bits %v: ", input, h, d, narrow)
	g.same(name+"q", rotatedTo(first), rotatedTo(plainFirst))
	g.same(name+"k", rotatedTo(second), rotatedTo(plainSecond))
	g.same(name+"v", v, plainV)
	want := "_group3_rope"
	if narrow {
		want += "_to16"
	}
	for _, k := range kernels {
		if strings.HasPrefix(k, matrixProductName) && !strings.HasSuffix(k, want) || strings.HasPrefix(k, "rope") {
			g.t.Errorf("%sran %v, want a product ending in %s and no rotation", name, kernels, want)
		}
	}
}

// timedKernels are the names of the kernels that run.
func timedKernels(t *testing.T, b *Backend, run func()) (names []string) {
	if ok, err := b.StartTiming(); err != nil || !ok {
		t.Skipf("no clock: %v", err)
	}
	run()
	times, err := b.StopTiming()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range times {
		names = append(names, k.Kernel)
	}
	return names
}

// TestGradientsTurn compares dq and dk that attention turns back with a rotation after
// it.
func TestGradientsTurn(t *testing.T) {
	g := newUnitRig(t)
	for _, input := range g.b.Rounding() {
		if err := g.b.RoundProducts(input); err != nil {
			t.Fatal(err)
		}
		n, m := g.b.matrix.fragments[input].N, g.b.matrix.fragments[input].M
		for _, z := range []struct {
			b, t, h, kvh, d int
			doc, narrow     bool
		}{{2, 6 * m, 4, 2, 2 * n, false, true}, {1, 3 * m, 2, 2, 4 * n, true, true}, {1, 2 * m, 2, 1, 2 * n, true, false}} {
			g.attention(input, z.b, z.t, z.h, z.kvh, z.d, z.doc, z.narrow)
		}
	}
}

func (g *unitRig) attention(input tensor.DType, b, t, h, kvh, d int, doc, narrow bool) {
	to := tensor.F32
	if narrow {
		to = input
	}
	query, key := []int{b, t, h, d}, []int{b, t, kvh, d}
	att := op.Attention{Q: g.random(input, query...), K: g.random(input, key...), V: g.random(input, key...), Out: g.random(input, query...),
		LSE: g.random(tensor.F32, b, h, t), Scale: 0.3}
	if doc {
		att.DocStart = tensorOn(g.t, g.b, tensor.I32, b, t)
		starts := make([]int32, b*t)
		for i := range starts {
			starts[i] = int32(i % t / 5 * 5)
		}
		op.WriteSlice(g.r, att.DocStart, starts)
	}
	g.r.Attention(att)
	dout, delta, table := g.random(input, query...), g.random(tensor.F32, b, h, t), g.angles(t, d)
	backward := func() (op.AttentionBackward, op.RoPE) {
		a := op.AttentionBackward{Q: att.Q, K: att.K, V: att.V, Out: att.Out, LSE: att.LSE, DocStart: att.DocStart, DOut: dout, Delta: delta,
			DQ: g.random(tensor.F32, query...), DK: g.random(tensor.F32, key...), DV: g.random(to, key...), Scale: att.Scale}
		turn := op.RoPE{X: a.DQ, X2: a.DK, Table: table, Inverse: true}
		if narrow {
			turn.Out, turn.Out2 = g.random(to, query...), g.random(to, key...)
		}
		return a, turn
	}
	a, turn := backward()
	if !g.b.RotatesGradients(a, turn) {
		g.t.Fatalf("heads of %d are not turned back by attention", d)
	}
	kernels := timedKernels(g.t, g.b, func() { g.r.AttentionBackwardRoPE(a, turn) })
	plain, plainTurn := backward()
	g.r.AttentionBackward(plain)
	g.r.RoPE(plainTurn)
	if err := g.r.Err(); err != nil {
		g.t.Fatal(err)
	}
	first, second := turn.Split()
	plainFirst, plainSecond := plainTurn.Split()
	name := fmt.Sprintf("%v, T %d, heads of %d, documents %v, 16 bits %v: ", input, t, d, doc, narrow)
	g.same(name+"dq", rotatedTo(first), rotatedTo(plainFirst))
	g.same(name+"dk", rotatedTo(second), rotatedTo(plainSecond))
	g.same(name+"dv", a.DV, plain.DV)
	if len(kernels) != 2 {
		g.t.Errorf("%sran %v, want two kernels", name, kernels)
	}
}

// TestTurnsThatDoNotFit run apart.
func TestTurnsThatDoNotFit(t *testing.T) {
	g := newUnitRig(t)
	input := g.b.Rounding()[0]
	if err := g.b.RoundProducts(input); err != nil {
		t.Fatal(err)
	}
	n, m := g.b.matrix.fragments[input].N, g.b.matrix.fragments[input].M
	a, w := g.random(input, 48, 64), g.random(tensor.F32, 64, 96)
	for name, z := range map[string]struct{ heads, d, pos0, splitTo int }{"a position": {6, 16, 1, 0}, "heads of 12": {8, 12, 0, 0}} {
		q := g.random(tensor.F32, 2, 24, z.heads, z.d)
		turn := op.RoPE{X: q, Table: g.angles(32, z.d), Pos0: z.pos0}
		if g.b.RotatesGroup([]op.MatMul{{A: a, B: w, C: q.Reshape(48, 96)}}, turn) {
			t.Errorf("%s: taken", name)
		}
		g.r.MatMulGroupRoPE([]op.MatMul{{A: a, B: w, C: q.Reshape(48, 96)}}, turn)
	}
	for name, z := range map[string]struct{ t, d int }{"a sequence that ends in a fragment": {m + 1, 2 * n}, "half a head that ends in a fragment": {m, n}} {
		x := func() op.Tensor { return g.random(tensor.F32, 1, z.t, 2, z.d) }
		back := op.AttentionBackward{Q: x(), K: x(), V: x(), Out: x(), DOut: x(), DQ: x(), DK: x(), DV: x(), Scale: 1,
			LSE: g.random(tensor.F32, 1, 2, z.t), Delta: g.random(tensor.F32, 1, 2, z.t)}
		turn := op.RoPE{X: back.DQ, X2: back.DK, Table: g.angles(z.t, z.d), Inverse: true}
		if g.b.RotatesGradients(back, turn) {
			t.Errorf("%s: taken", name)
		}
		g.r.AttentionBackwardRoPE(back, turn)
	}
	if err := g.r.Err(); err != nil {
		t.Error(err)
	}
}
