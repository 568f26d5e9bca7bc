package op_test

import (
	"fmt"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/tensor"
)

// sum is a right MatMulSum of 5 × 9 with K of 6, 4 and 3, in all three forms.
func (x *bench) sum() op.MatMulSum {
	c := x.f("c", 5, 9)
	return op.MatMulSum{
		{A: x.f("a", 5, 6), B: x.f("b", 9, 6), C: c, TransB: true, Residual: x.f("residual", 5, 9)},
		{A: x.f("a1", 5, 4), B: x.f("b1", 4, 9), C: c},
		{A: x.f("a2", 3, 5), B: x.f("b2", 3, 9), C: c, TransA: true},
	}
}

// TestMatMulSumChecks spoils one product of a sum at a time, on a backend with fused
// forms and on one without, and wants an error that says which and why.
func TestMatMulSumChecks(t *testing.T) {
	x := newBench()
	other := op.Of(x.f("other", 2*45).Buf, 45, 5, 9)
	for name, c := range map[string]struct {
		spoil func(a op.MatMulSum) op.MatMulSum
		want  []string
	}{
		"none":            {func(a op.MatMulSum) op.MatMulSum { return nil }, []string{"no products", "at least one"}},
		"first":           {func(a op.MatMulSum) op.MatMulSum { a[0].TransB = false; return a }, []string{"product 0: matmul: b is b (9, 6)"}},
		"k":               {func(a op.MatMulSum) op.MatMulSum { a[1].B = x.f("b1", 3, 9); return a }, []string{"product 1: matmul: b is b1 (3, 9)", "K 4"}},
		"m":               {func(a op.MatMulSum) op.MatMulSum { a[2].A = x.f("a2", 3, 4); return a }, []string{"product 2: matmul_at: c is c (5, 9)", "M 4"}},
		"both transposed": {func(a op.MatMulSum) op.MatMulSum { a[2].TransB = true; return a }, []string{"product 2: ", "both operands transposed"}},
		"acc":             {func(a op.MatMulSum) op.MatMulSum { a[2].Acc = true; return a }, []string{"product 2 of 3 has acc or a residual", "product 0 alone"}},
		"residual":        {func(a op.MatMulSum) op.MatMulSum { a[1].Residual = a[0].Residual; return a }, []string{"product 1 of 3 has acc or a residual"}},
		"absent c":        {func(a op.MatMulSum) op.MatMulSum { a[1].C = op.Tensor{}; return a }, []string{"product 1: matmul: c is absent"}},
		"another c":       {func(a op.MatMulSum) op.MatMulSum { a[1].C = other; return a }, []string{"c of product 1 is other (5, 9) from element 45", "that of product 0, c (5, 9) from element 0"}},
		"c of 16 bits": {func(a op.MatMulSum) op.MatMulSum {
			a[0].Residual = op.Tensor{}
			for i := range a {
				a[i].C = x.tensor("c16", tensor.BF16, 5, 9)
			}
			return a
		}, []string{"product 1: matmul: c c16 (5, 9) is BF16, want F32 with acc"}},
		"operand": {func(a op.MatMulSum) op.MatMulSum { a[2].A = x.tensor("a16", tensor.BF16, 3, 5); return a }, []string{"a16 (3, 5) is BF16", "RoundProducts"}},
		"weights": {func(a op.MatMulSum) op.MatMulSum { a[1].B = x.tensor("b16", tensor.BF16, 4, 9); return a }, []string{"b16 (4, 9) is BF16", "RoundProducts"}},
	} {
		for _, r := range []*op.Runner{x.r, op.NewRunner(fused{x.b})} {
			a := x.sum()
			out := a[0].C
			before := x.fill(out)
			r.MatMulSum(c.spoil(a))
			err := r.Reset()
			for _, want := range append(c.want, "matmul_sum: ") {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("%s: error %v, want it to say %q", name, err, want)
				}
			}
			if got := x.b.Data(out.Buf); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Errorf("%s: a sum that failed its check wrote to c", name)
			}
		}
	}
}

// fill puts ones into a tensor and returns them.
func (x *bench) fill(t op.Tensor) []float32 {
	ones := make([]float32, t.Len())
	for i := range ones {
		ones[i] = 1
	}
	op.WriteSlice(x.r, t, ones)
	return ones
}

// TestMatMulSumTypes wants operand tensors of the type that products round to now,
// and weights in F16 at any time.
func TestMatMulSumTypes(t *testing.T) {
	x := newBench()
	a := x.sum()
	a[1].B = x.tensor("b16", tensor.F16, 4, 9)
	if x.r.MatMulSum(a); x.r.Err() != nil {
		t.Error(x.r.Reset())
	}
	x.b.RoundProducts(tensor.BF16)
	a[2].A = x.tensor("a16", tensor.BF16, 3, 5)
	if x.r.MatMulSum(a); x.r.Err() != nil {
		t.Error(x.r.Reset())
	}
	one := op.MatMulSum{{A: a[2].A, B: a[2].B, C: x.tensor("c16", tensor.BF16, 5, 9), TransA: true}}
	if x.r.MatMulSum(one); x.r.Err() != nil {
		t.Errorf("a sum of one product into an operand tensor: %v", x.r.Reset())
	}
}

// TestMatMulSumIsItsProducts wants the bits of the products one after another, and
// the caller's slice as it was.
func TestMatMulSumIsItsProducts(t *testing.T) {
	x := newBench()
	a := x.sum()
	for i, p := range a {
		for j, s := range []op.Tensor{p.A, p.B} {
			v := x.b.Data(s.Buf)
			for l := range v {
				v[l] = float32((l*7+3*i+j)%11) / 3
			}
		}
	}
	x.fill(a[0].Residual)
	x.r.MatMulSum(a)
	got := append([]float32(nil), x.b.Data(a[0].C.Buf)...)
	for i, p := range a {
		if p.Acc {
			t.Errorf("the call changed product %d", i)
		}
		p.Acc = i > 0
		x.r.MatMul(p)
	}
	if err := x.r.Err(); err != nil {
		t.Fatal(err)
	}
	if want := x.b.Data(a[0].C.Buf); fmt.Sprint(got) != fmt.Sprint(want) || got[0] == 0 {
		t.Errorf("sum %v, its products give %v", got, want)
	}
}

// TestMatMulSumProfile wants one row for a sum, fused or not, with every factor read
// once and C written once, and no allocation.
func TestMatMulSumProfile(t *testing.T) {
	x := newBench()
	a := x.sum()
	for name, r := range map[string]*op.Runner{"fused": op.NewRunner(fused{x.b}), "plain": x.r} {
		var p op.Profile
		r.SetProfile(&p)
		r.MatMulSum(a)
		r.SetProfile(nil)
		const flops, bytes = 2 * 5 * 9 * (6 + 4 + 3), 4 * (5*(6+4+3) + 9*(6+4+3) + 2*45)
		if rows := p.Rows(); len(rows) != 1 || rows[0].Label != "matmul_sum" || rows[0].FLOPs != flops || rows[0].Bytes != bytes {
			t.Errorf("%s: profile %+v, want one matmul_sum of %d FLOPs and %d bytes", name, rows, flops, bytes)
		}
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]*op.Runner{"fused": op.NewRunner(fused{x.b}), "plain": op.NewRunner(free{x.b})} {
		if n := testing.AllocsPerRun(100, func() { r.MatMulSum(a) }); n != 0 {
			t.Errorf("%s: a sum allocates %v times", name, n)
		}
	}
}

// TestMatMulSumErrorOfTheBackend wants a backend's own error to end the sum, with
// its label.
func TestMatMulSumErrorOfTheBackend(t *testing.T) {
	x := newBench()
	calls := 0
	r := op.NewRunner(failing{x.b, &calls})
	r.MatMulSum(x.sum())
	if err := r.Err(); fmt.Sprint(err) != "matmul_sum: out of luck" || calls != 2 {
		t.Errorf("error %v after %d products, want matmul_sum: out of luck after 2", err, calls)
	}
}

// failing is a backend whose second product fails.
type failing struct {
	op.Backend
	calls *int
}

func (f failing) MatMul(op.MatMul) error {
	if *f.calls++; *f.calls == 2 {
		return fmt.Errorf("out of luck")
	}
	return nil
}
