package optest

import (
	"fmt"
	"math"
	"slices"

	"tezgah/op"
	"tezgah/tensor"
)

// sumTerm is one product of a sum.
type sumTerm struct {
	k              int
	transA, transB bool
	half           bool // B is float16 weights
	a, b           bool // operand tensors of the case's type
}

// sumShape is a sum of products.
type sumShape struct {
	name     string
	m, n     int
	terms    []sumTerm
	acc      bool
	residual int // as in matmulForm
}

func (z sumShape) label() string {
	s := fmt.Sprintf("%s M%d N%d K", z.name, z.m, z.n)
	for i, t := range z.terms {
		if i > 0 {
			s += "+"
		}
		s += fmt.Sprint(t.k)
	}
	return s
}

// inputGrads are terms dY·Wᵀ.
func inputGrads(ks ...int) (ts []sumTerm) {
	for _, k := range ks {
		ts = append(ts, sumTerm{k: k, transB: true})
	}
	return ts
}

// with returns terms with a change.
func with(ts []sumTerm, change func(i int, t *sumTerm)) []sumTerm {
	ts = slices.Clone(ts)
	for i := range ts {
		change(i, &ts[i])
	}
	return ts
}

// forms gives the terms all three forms in turn.
func forms(i int, t *sumTerm) { t.transA, t.transB = i%3 == 1, i%3 == 0 }

func plain(_ int, t *sumTerm) { t.transB = false }

// sumShapes are sums of every kind, small and ragged, and with the sizes that matrix
// units take.
func sumShapes() []sumShape {
	return []sumShape{
		{name: "nt", m: 1, n: 1, terms: inputGrads(1, 1)},
		{name: "nt", m: 1, n: 7, terms: inputGrads(5, 3)},
		{name: "nt", m: 7, n: 1, terms: inputGrads(13, 1, 2)},
		{name: "nt", m: 20, n: 30, terms: inputGrads(50)},
		{name: "nt", m: 64, n: 64, terms: inputGrads(64, 32, 32)},
		{name: "nt", m: 65, n: 33, terms: inputGrads(67, 20, 131)},
		{name: "nt", m: 33, n: 40, terms: inputGrads(32, 33, 34, 35, 36)},
		{name: "nt", m: 40, n: 72, terms: inputGrads(1100, 40)},
		{name: "nn", m: 35, n: 68, terms: with(inputGrads(36, 52), plain)},
		{name: "all forms", m: 37, n: 44, terms: with(inputGrads(40, 33, 48), forms)},
		{name: "all forms", m: 5, n: 12, terms: with(inputGrads(8, 4, 3), forms)},
		{name: "nt acc", m: 38, n: 70, terms: inputGrads(45, 64), acc: true},
		{name: "nt residual", m: 33, n: 36, terms: inputGrads(48, 32, 37), residual: 1},
		{name: "nt residual=c", m: 33, n: 35, terms: inputGrads(48, 32), residual: 2},
		{name: "nt acc residual", m: 34, n: 36, terms: inputGrads(40, 50), acc: true, residual: 1},
	}
}

func matmulSumCase(z sumShape) Case {
	return Case{Name: "matmul sum/" + z.label(), Op: op.MatMulSum{}.Label(), body: func(e *env) { matmulSumBody(e, z) }}
}

func matmulSumCases() (cs []Case) {
	for _, z := range sumShapes() {
		cs = append(cs, matmulSumCase(z))
	}
	for _, m := range []int{3, 41} {
		c := matmulSumCase(sumShape{name: "nt f16", m: m, n: 40, terms: with(inputGrads(36, 65), func(_ int, t *sumTerm) { t.half = true })})
		c.F16 = true
		cs = append(cs, c)
	}
	cs = append(cs, Case{Name: "matmul sum/not finite", Op: op.MatMulSum{}.Label(), body: func(e *env) { sumNotFinite(e, false) }})
	for _, t := range []tensor.DType{tensor.BF16, tensor.F16} {
		cs = append(cs, sumUnitCases(t)...)
	}
	return cs
}

// sumUnitCases are sums on matrix units, of float32 and of operand tensors.
func sumUnitCases(t tensor.DType) (cs []Case) {
	add := func(c Case, operands bool) {
		c.Name, c.Op, c.Round = fmt.Sprintf("%s %v units", c.Name, t), fmt.Sprintf("%s %v units", c.Op, t), t
		if operands {
			c.Name, c.Operands = c.Name+" operands", t
		}
		cs = append(cs, c)
	}
	for _, z := range sumShapes() {
		add(matmulSumCase(z), false)
		z.terms = with(z.terms, func(_ int, t *sumTerm) { t.a = true })
		add(matmulSumCase(z), true)
	}
	// A product for the units, one too small for them, one that needs them.
	add(matmulSumCase(sumShape{name: "nt some", m: 40, n: 36, terms: []sumTerm{{k: 33, transB: true}, {k: 4, transB: true}, {k: 8, transB: true, a: true, b: true}}}), true)
	for _, operands := range []bool{false, true} {
		add(Case{Name: "matmul sum/not finite", Op: op.MatMulSum{}.Label(), body: func(e *env) { sumNotFinite(e, operands) }}, operands)
	}
	return cs
}

// sumFactors makes A and B of a term.
func sumFactors(e *env, z sumShape, t sumTerm) (a, b *tens) {
	ad, bd := []int{z.m, t.k}, []int{t.k, z.n}
	if t.transA {
		ad = []int{t.k, z.m}
	}
	if t.transB {
		bd = []int{z.n, t.k}
	}
	a = e.inIf(t.a, "a", e.normal(1, z.m*t.k), ad...)
	if t.half {
		return a, e.weight("b", true, e.normal(1, t.k*z.n), bd...)
	}
	return a, e.inIf(t.b, "b", e.normal(1, t.k*z.n), bd...)
}

// matmulSumBody compares a sum with products that the reference runs one by one.
func matmulSumBody(e *env, z sumShape) {
	var as, bs []*tens
	depth, mag := 0, make([]float64, z.m*z.n)
	for _, t := range z.terms {
		a, b := sumFactors(e, z, t)
		as, bs = append(as, a), append(bs, b)
		depth += t.k
		for i, x := range matmulMagnitude(z.m, z.n, t.k, a.before(), b.before(), matmulForm{transA: t.transA, transB: t.transB}) {
			mag[i] += x
		}
	}
	c := e.out("c", z.m, z.n)
	var res *tens
	if z.acc || z.residual == 2 {
		c = e.acc("c", e.normal(1, z.m*z.n), z.m, z.n)
	}
	switch z.residual {
	case 1:
		res = e.in("residual", e.normal(1, z.m*z.n), z.m, z.n)
	case 2:
		res = c
	}
	e.run(func(s side) {
		var items op.MatMulSum
		for i, t := range z.terms {
			items = append(items, op.MatMul{A: s.t(as[i]), B: s.t(bs[i]), C: s.t(c), TransA: t.transA, TransB: t.transB})
		}
		items[0].Acc, items[0].Residual = z.acc, s.t(res)
		s.sum(items)
	})
	for _, x := range []*tens{c, res} {
		if x != nil && x.role != output {
			for i, v := range x.before() {
				mag[i] += abs(v)
			}
		}
	}
	e.compare(c, func(i int) float64 { return sumErr(depth+len(z.terms)+2)*mag[i] + float64(depth)*tiny })
}

// sum is MatMulSum on the device, and what it means on the reference.
func (s side) sum(items op.MatMulSum) {
	if !s.ref {
		s.MatMulSum(items)
		return
	}
	for i, p := range items {
		p.Acc = p.Acc || i > 0
		s.MatMul(p)
	}
}

// sumNotFinite adds whole numbers, which is exact, and in some rows infinities of one
// sign, of both, of two terms, and NaN.
func sumNotFinite(e *env, operands bool) {
	const m, n = 34, 36
	inf := float32(math.Inf(1))
	odd := [][]struct {
		row, col int
		v        float32
	}{{{1, 0, inf}, {2, 3, -inf}, {5, 1, inf}, {5, 4, inf}}, {{2, 2, inf}, {3, 30, nan32}}, {{5, 0, -inf}, {33, 39, inf}}}
	c := e.out("c", m, n)
	var as, bs []*tens
	for i, k := range []int{33, 35, 40} {
		av, bv := e.wholes(m*k), e.wholes(n*k)
		for _, o := range odd[i] {
			av[o.row*k+o.col] = o.v
		}
		as, bs = append(as, e.inIf(operands, "a", av, m, k)), append(bs, e.inIf(operands, "b", bv, n, k))
	}
	e.run(func(s side) {
		var items op.MatMulSum
		for i := range as {
			items = append(items, op.MatMul{A: s.t(as[i]), B: s.t(bs[i]), C: s.t(c), TransB: true})
		}
		s.sum(items)
	})
	e.exact(c)
}

// wholes draws n whole numbers from −3 to 3.
func (e *env) wholes(n int) []float32 {
	v := make([]float32, n)
	for i, x := range e.intn(7, n) {
		v[i] = float32(x - 3)
	}
	return v
}
