package webgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// matrixBackend is a backend with matrix units, or the test is skipped.
func matrixBackend(t *testing.T) *Backend {
	t.Helper()
	b := open(t, gpu.Options{}, Options{})
	if len(b.Rounding()) == 0 {
		t.Skipf("%s has no matrix units that can be reached", b.Device())
	}
	return b
}

// TestMatrixProducts compares every form of a product with sums in float64 of
// inputs that were rounded by the host: only the order of the additions differs.
func TestMatrixProducts(t *testing.T) {
	b := matrixBackend(t)
	for _, input := range b.Rounding() {
		for _, s := range [][3]int{{128, 128, 64}, {33, 70, 45}, {64, 96, 1100}} {
			for form := range 12 {
				a := op.MatMul{TransA: form&1 != 0, TransB: form&2 != 0, Acc: form&4 != 0}
				residual := form >= 8
				if err := checkMatrixProduct(b, input, s, a, residual); err != nil {
					t.Errorf("%v %v %+v residual %v: %v", input, s, a, residual, err)
				}
			}
		}
	}
}

// TestMatrixTilesAddInOneOrder: the tuner's choice changes no bit.
func TestMatrixTilesAddInOneOrder(t *testing.T) {
	b := matrixBackend(t)
	input := b.Rounding()[0]
	f := b.matrix.fragments[input]
	p, err := b.newTrial(matmulForm{}, 64, 96, 200)
	defer p.free(b)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, x := range []op.Tensor{p.a, p.b} {
		v := make([]float32, x.Len())
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		if err := b.Write(x, gpu.Bytes(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RoundProducts(input); err != nil {
		t.Fatal(err)
	}
	var first []float32
	for _, tile := range b.matrixTiles(f) {
		if err := b.runMatrixGroup([]op.MatMul{{A: p.a, B: p.b, C: p.c}}, tile, 1); err != nil {
			t.Fatalf("%v: %v", tile, err)
		}
		got := make([]float32, 64*96)
		if err := b.Read(gpu.Bytes(got), p.c); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = got
		}
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(first[i]) {
				t.Fatalf("%v: element %d is %v, with the first tile %v", tile, i, got[i], first[i])
			}
		}
	}
}

func checkMatrixProduct(b *Backend, input tensor.DType, s [3]int, a op.MatMul, residual bool) error {
	m, n, k := s[0], s[1], s[2]
	r := rand.New(rand.NewPCG(uint64(m*n), uint64(k)))
	var bufs []op.Buffer
	defer func() {
		for _, x := range bufs {
			b.Free(x)
		}
	}()
	var failed error
	put := func(rows, cols int) (op.Tensor, []float32) {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		buf, err := b.Alloc("x", tensor.F32, len(v))
		if err != nil {
			failed = err
			return op.Tensor{}, v
		}
		bufs = append(bufs, buf)
		x := op.Of(buf, 0, rows, cols)
		failed = b.Write(x, gpu.Bytes(v))
		return x, v
	}
	var va, vb, vc, vr []float32
	if a.TransA {
		a.A, va = put(k, m)
	} else {
		a.A, va = put(m, k)
	}
	if a.TransB {
		a.B, vb = put(n, k)
	} else {
		a.B, vb = put(k, n)
	}
	a.C, vc = put(m, n)
	if residual {
		a.Residual, vr = put(m, n)
	}
	if failed != nil {
		return failed
	}
	if err := b.RoundProducts(input); err != nil {
		return err
	}
	defer b.RoundProducts(tensor.F32)
	if err := b.MatMul(a); err != nil {
		return err
	}
	got := make([]float32, m*n)
	if err := b.Read(gpu.Bytes(got), a.C); err != nil {
		return err
	}
	round := func(x float32) float64 {
		if input == tensor.BF16 {
			return float64(tensor.FromBF16(tensor.ToBF16(x)))
		}
		return float64(tensor.FromF16(tensor.ToF16(x)))
	}
	for i := range m {
		for j := range n {
			var sum, size float64
			for l := range k {
				x, y := va[i*k+l], vb[l*n+j]
				if a.TransA {
					x = va[l*m+i]
				}
				if a.TransB {
					y = vb[j*k+l]
				}
				p := round(x) * round(y)
				sum, size = sum+p, size+math.Abs(p)
			}
			if a.Acc {
				sum += float64(vc[i*n+j])
			}
			if residual {
				sum += float64(vr[i*n+j])
			}
			if d := math.Abs(float64(got[i*n+j]) - sum); !(d <= (size+8)*float64(k)*6e-8) {
				return fmt.Errorf("c[%d, %d] is %v, want %v", i, j, got[i*n+j], sum)
			}
		}
	}
	return nil
}

// TestConversionsAreUsedAgainUntilTheirSourceChanges counts kernels: a second
// product with the same operands converts none, and one whose operand was written
// in between, in any of the ways there are, converts that one.
func TestConversionsAreUsedAgainUntilTheirSourceChanges(t *testing.T) {
	b := matrixBackend(t)
	input := b.Rounding()[len(b.Rounding())-1]
	p, err := b.newTrial(matmulForm{}, 64, 64, 64)
	defer p.free(b)
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.newTrial(matmulForm{}, 64, 64, 64)
	defer other.free(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.RoundProducts(input); err != nil {
		t.Fatal(err)
	}
	a := op.MatMul{A: p.a, B: p.b, C: p.c}
	kernels := func(f func() error) int {
		t.Helper()
		if ok, err := b.StartTiming(); err != nil || !ok {
			t.Skipf("no clock: %v", err)
		}
		if err := f(); err != nil {
			t.Fatal(err)
		}
		times, err := b.StopTiming()
		if err != nil {
			t.Fatal(err)
		}
		return len(times)
	}
	product := func() error { return b.MatMul(a) }
	if n := kernels(product); n != 3 {
		t.Fatalf("the first product took %d kernels, want 3", n)
	}
	if n := kernels(product); n != 1 {
		t.Fatalf("the second product took %d kernels, want 1", n)
	}
	twos := make([]float32, 64*64)
	for i := range twos {
		twos[i] = 2
	}
	for name, write := range map[string]func() error{
		"Write":  func() error { return b.Write(p.a, gpu.Bytes(twos)) },
		"Zero":   func() error { return b.Zero(p.a) },
		"Copy":   func() error { return b.Copy(p.a, other.a) },
		"Scale":  func() error { return b.Scale(op.Scale{Dst: p.a, Src: p.a, Factor: 3}) },
		"MatMul": func() error { return b.MatMul(op.MatMul{A: other.a, B: other.b, C: p.a}) },
	} {
		if err := product(); err != nil {
			t.Fatal(err)
		}
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if n := kernels(product); n != 2 {
			t.Errorf("after %s the product took %d kernels, want 2", name, n)
		}
	}
	got := make([]float32, 64*64)
	if err := b.Read(gpu.Bytes(got), p.c); err != nil {
		t.Fatal(err)
	}
	if n := kernels(product); n != 3 {
		t.Errorf("after a read, which ends a step, the product took %d kernels, want 3", n)
	}
}

// TestGradientsAreConvertedInBothForms: after a weight's gradient Xᵀ·dY the product
// with dY turned converts only its other operand.
func TestGradientsAreConvertedInBothForms(t *testing.T) {
	b := matrixBackend(t)
	input := b.Rounding()[len(b.Rounding())-1]
	for _, s := range [][3]int{{128, 64, 96}, {100, 64, 70}} { // rows, X's columns, dY's columns
		if err := checkBothForms(b, input, s[0], s[1], s[2]); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

func checkBothForms(b *Backend, input tensor.DType, rows, c, f int) error {
	var bufs []op.Buffer
	defer func() {
		for _, x := range bufs {
			b.Free(x)
		}
	}()
	var failed error
	r := rand.New(rand.NewPCG(7, 8))
	put := func(n, m int) (op.Tensor, []float32) {
		v := make([]float32, n*m)
		for i := range v {
			v[i] = float32(r.IntN(15) - 7) // exact in either type
		}
		buf, err := b.Alloc("x", tensor.F32, len(v))
		if err != nil {
			failed = err
			return op.Tensor{}, v
		}
		bufs = append(bufs, buf)
		x := op.Of(buf, 0, n, m)
		if err := b.Write(x, gpu.Bytes(v)); err != nil {
			failed = err
		}
		return x, v
	}
	x, vx := put(rows, c)
	dy, vdy := put(rows, f)
	w, vw := put(c, f)
	dw, _ := put(c, f)
	dx, _ := put(rows, c)
	if failed != nil {
		return failed
	}
	if err := b.RoundProducts(input); err != nil {
		return err
	}
	defer b.RoundProducts(tensor.F32)
	if err := b.MatMul(op.MatMul{A: x, TransA: true, B: dy, C: dw}); err != nil {
		return err
	}
	if err := b.MatMul(op.MatMul{A: dy, B: w, TransB: true, C: dx}); err != nil {
		return err
	}
	gotW, gotX := make([]float32, c*f), make([]float32, rows*c)
	if err := b.Read(gpu.Bytes(gotW), dw); err != nil {
		return err
	}
	if err := b.Read(gpu.Bytes(gotX), dx); err != nil {
		return err
	}
	for i := range c {
		for j := range f {
			var want float32
			for l := range rows {
				want += vx[l*c+i] * vdy[l*f+j]
			}
			if gotW[i*f+j] != want {
				return fmt.Errorf("dw[%d, %d] is %v, want %v", i, j, gotW[i*f+j], want)
			}
		}
	}
	for i := range rows {
		for j := range c {
			var want float32
			for l := range f {
				want += vdy[i*f+l] * vw[j*f+l]
			}
			if gotX[i*c+j] != want {
				return fmt.Errorf("dx[%d, %d] is %v, want %v", i, j, gotX[i*c+j], want)
			}
		}
	}
	return nil
}
