package optest

import (
	"fmt"

	"tezgah/op"
)

// matmulForm is one way to call MatMul.
type matmulForm struct {
	name           string
	transA, transB bool
	acc            bool
	residual       int // 0 none, 1 a tensor of its own, 2 C itself
	half           bool
}

func matmulCases() []Case {
	sizes := [][3]int{{1, 1, 1}, {1, 7, 5}, {7, 1, 13}, {3, 5, 1}, {16, 16, 16}, {17, 13, 19}, {64, 64, 64}, {65, 33, 67},
		{128, 64, 32}, {129, 127, 65}, {1, 300, 200}, {2, 515, 129}, {40, 72, 500}}
	var cs []Case
	for _, z := range sizes {
		for _, f := range matmulForms() {
			cs = append(cs, matmulCase(z, f, 1, false))
		}
	}
	for _, r := range []int{1, 2, 3, 4, 8, 16} { // low-rank adapters: one dimension is a rank
		for _, z := range [][3]int{{37, r, 52}, {37, 52, r}, {r, 52, 37}} {
			for _, f := range matmulForms()[:6] {
				cs = append(cs, matmulCase(z, f, 1, false))
			}
		}
	}
	plain := matmulForms()[:3]
	for _, f := range plain {
		cs = append(cs, matmulCase([3]int{20, 30, 50}, f, 1e15, false), matmulCase([3]int{20, 30, 50}, f, 1e-17, false),
			matmulCase([3]int{130, 200, 1603}, f, 1, true), matmulCase([3]int{3, 4100, 700}, f, 1, true),
			matmulCase([3]int{1030, 257, 33}, f, 1, true), matmulCase([3]int{2048, 16, 768}, f, 1, true),
			matmulCase([3]int{16, 768, 2048}, f, 1, true))
	}
	return cs
}

// matmulForms lists the three forms plain, with each way of adding, and with
// float16 weights.
func matmulForms() []matmulForm {
	return []matmulForm{
		{name: "nn"}, {name: "nt", transB: true}, {name: "tn", transA: true},
		{name: "nn acc", acc: true}, {name: "nt acc", transB: true, acc: true}, {name: "tn acc", transA: true, acc: true},
		{name: "nn residual", residual: 1}, {name: "nn residual=c", residual: 2}, {name: "nt residual", transB: true, residual: 1},
		{name: "nn acc residual", acc: true, residual: 1},
		{name: "nn f16", half: true}, {name: "nt f16", transB: true, half: true}, {name: "nn f16 residual", half: true, residual: 1},
		{name: "nt f16 acc", transB: true, half: true, acc: true},
	}
}

func matmulCase(z [3]int, f matmulForm, std float64, large bool) Case {
	label := op.MatMul{TransA: f.transA, TransB: f.transB}.Label()
	return Case{Name: fmt.Sprintf("%s/%s M%d N%d K%d std %g", label, f.name, z[0], z[1], z[2], std), Op: label, Large: large, F16: f.half,
		body: func(e *env) { matmulBody(e, z[0], z[1], z[2], f, std) }}
}

func matmulBody(e *env, m, n, k int, f matmulForm, std float64) {
	matmulSides(e, m, n, k, f, std, 0)
}

// matmulSides makes A an operand tensor of the case's type with bit 0 of sides, B
// with bit 1, and with bit 2 C is one, which the reference
// has beside a C in float32.
func matmulSides(e *env, m, n, k int, f matmulForm, std float64, sides int) {
	ad, bd := []int{m, k}, []int{k, n}
	if f.transA {
		ad = []int{k, m}
	}
	if f.transB {
		bd = []int{n, k}
	}
	make := func(label string, operand, half bool, v []float32, dims []int) *tens {
		if operand {
			return e.operand(label, v, dims...)
		}
		return e.weight(label, half, v, dims...)
	}
	a := make("a", sides&1 != 0, false, e.normal(std, m*k), ad)
	b := make("b", sides&2 != 0, f.half, e.normal(std, k*n), bd)
	c := e.out("c", m, n)
	var res *tens
	if f.acc || f.residual == 2 {
		c = e.acc("c", e.normal(std*std, m*n), m, n)
	}
	switch f.residual {
	case 1:
		res = e.in("residual", e.normal(std*std, m*n), m, n)
	case 2:
		res = c
	}
	var c16 *tens
	if sides&4 != 0 {
		c16 = e.outOperand("c16", m, n)
	}
	e.run(func(s side) {
		p := op.MatMul{A: s.t(a), B: s.t(b), C: s.t(c), Residual: s.t(res), TransA: f.transA, TransB: f.transB, Acc: f.acc}
		if c16 == nil || s.ref {
			s.MatMul(p)
		}
		if c16 != nil {
			p.C = s.t(c16)
			s.MatMul(p)
		}
	})
	mag := matmulMagnitude(m, n, k, a.before(), b.before(), f)
	for _, x := range []*tens{c, res} {
		if x != nil && x.role != output {
			for i, v := range x.before() {
				mag[i] += abs(v)
			}
		}
	}
	bound := func(i int) float64 { return sumErr(k+2)*mag[i] + float64(k)*tiny }
	if c16 != nil {
		e.nearRounded(c16, c, bound)
		return
	}
	e.compare(c, bound)
}

// matmulMagnitude is Σ_k |a·b| for every element of C.
func matmulMagnitude(m, n, k int, a, b []float64, f matmulForm) []float64 {
	mag := make([]float64, m*n)
	for l := range k {
		for i := range m {
			x := a[i*k+l : i*k+l+1]
			if f.transA {
				x = a[l*m+i : l*m+i+1]
			}
			for j := range n {
				at := l*n + j
				if f.transB {
					at = j*k + l
				}
				mag[i*n+j] += abs(x[0] * b[at])
			}
		}
	}
	return mag
}
