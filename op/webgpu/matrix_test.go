package webgpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// matrixBackend is a backend with matrix units, or the test is skipped;
// TEZGAH_REQUIRE_MATRIX=1 makes their absence a failure.
func matrixBackend(t *testing.T) *Backend {
	t.Helper()
	b := open(t, gpu.Options{}, Options{})
	if len(b.Rounding()) == 0 {
		if os.Getenv("TEZGAH_REQUIRE_MATRIX") == "1" {
			t.Fatalf("TEZGAH_REQUIRE_MATRIX=1, but %s has no matrix units that can be reached", b.Device())
		}
		t.Skipf("%s has no matrix units that can be reached", b.Device())
	}
	return b
}

// TestMatrixProducts compares every form of a product with sums in float64 of
// inputs that were rounded by the host: only the order of the additions differs.
func TestMatrixProducts(t *testing.T) {
	b := matrixBackend(t)
	for _, input := range b.Rounding() {
		for _, s := range [][3]int{{128, 128, 64}, {33, 70, 45}, {40, 72, 96}, {64, 96, 1100}} {
			for form := range 24 {
				a := op.MatMul{TransA: form&1 != 0, TransB: form&2 != 0, Acc: form&4 != 0}
				residual, stored := form/8 == 1, tensor.F32
				if form >= 16 {
					stored = input
				}
				if err := checkMatrixProduct(b, input, stored, s, a, residual); err != nil {
					t.Errorf("%v stored as %v, %v %+v residual %v: %v", input, stored, s, a, residual, err)
				}
			}
		}
	}
}

// TestMatrixTilesAddInOneOrder: the tuner's choice changes no bit, nor how A and B lie.
func TestMatrixTilesAddInOneOrder(t *testing.T) {
	b := matrixBackend(t)
	input := b.Rounding()[0]
	f := b.matrix.fragments[input]
	p, err := b.newTrial(matmulForm{}, 64, 96, 200)
	defer p.free(b)
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.newTrial(matmulForm{transA: true, transB: true}, 64, 96, 200)
	defer other.free(b)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	va, ta, vb, tb := make([]float32, 64*200), make([]float32, 64*200), make([]float32, 200*96), make([]float32, 200*96)
	for i := range va {
		va[i] = float32(r.NormFloat64())
		ta[i%200*64+i/200] = va[i]
	}
	for i := range vb {
		vb[i] = float32(r.NormFloat64())
		tb[i%96*200+i/96] = vb[i]
	}
	for _, w := range []struct {
		x op.Tensor
		v []float32
	}{{p.a, va}, {p.b, vb}, {other.a, ta}, {other.b, tb}} {
		if err := b.Write(w.x, gpu.Bytes(w.v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.RoundProducts(input); err != nil {
		t.Fatal(err)
	}
	var first []float32
	tiles := b.matrixTiles(f)
	for i := range 4 * len(tiles) {
		tile, a := tiles[i/4], op.MatMul{A: p.a, B: p.b, C: p.c}
		if i&1 != 0 {
			a.A, a.TransA = other.a, true
		}
		if i&2 != 0 {
			a.B, a.TransB = other.b, true
		}
		if err := b.runMatrixGroup([]op.MatMul{a}, tile, 1); err != nil {
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
				t.Fatalf("%v, A turned %v, B turned %v: element %d is %v, with the first tile %v", tile, a.TransA, a.TransB, i, got[i], first[i])
			}
		}
	}
}

// checkMatrixProduct runs a product of random operands, which lie in memory as
// stored, F32 or input.
func checkMatrixProduct(b *Backend, input, stored tensor.DType, s [3]int, a op.MatMul, residual bool) error {
	m, n, k := s[0], s[1], s[2]
	r := rand.New(rand.NewPCG(uint64(m*n), uint64(k)))
	var bufs []op.Buffer
	defer func() {
		for _, x := range bufs {
			b.Free(x)
		}
	}()
	var failed error
	put := func(t tensor.DType, rows, cols int) (op.Tensor, []float32) {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
		buf, err := b.Alloc("x", t, len(v))
		if err != nil {
			failed = err
			return op.Tensor{}, v
		}
		bufs = append(bufs, buf)
		x, bytes := op.Of(buf, 0, rows, cols), gpu.Bytes(v)
		if t != tensor.F32 {
			bytes = gpu.Bytes(rounded(v, t))
		}
		if err := b.Write(x, bytes); err != nil {
			failed = err
		}
		return x, v
	}
	var va, vb, vc, vr []float32
	if a.TransA {
		a.A, va = put(stored, k, m)
	} else {
		a.A, va = put(stored, m, k)
	}
	if a.TransB {
		a.B, vb = put(stored, n, k)
	} else {
		a.B, vb = put(stored, k, n)
	}
	a.C, vc = put(tensor.F32, m, n)
	if residual {
		a.Residual, vr = put(tensor.F32, m, n)
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

// rounded are the 16 bits of numbers.
func rounded(v []float32, t tensor.DType) []uint16 {
	out := make([]uint16, len(v))
	for i, x := range v {
		if t == tensor.BF16 {
			out[i] = tensor.ToBF16(x)
		} else {
			out[i] = tensor.ToF16(x)
		}
	}
	return out
}

// TestGroupsAndSumsAreOneDispatch: products of one A, and products that are added.
func TestGroupsAndSumsAreOneDispatch(t *testing.T) {
	b := matrixBackend(t)
	defer b.Close()
	input := b.Rounding()[len(b.Rounding())-1]
	if err := b.RoundProducts(input); err != nil {
		t.Fatal(err)
	}
	x := func(rows, cols int) op.Tensor { return tensorOn(t, b, input, rows, cols) }
	c := func() op.Tensor { return tensorOn(t, b, tensor.F32, 64, 96) }
	a, w, sum := x(64, 64), x(64, 96), c()
	for _, s := range []struct {
		kernel string
		run    func() error
	}{
		{"_group3", func() error {
			return b.MatMulGroup([]op.MatMul{{A: a, B: w, C: c()}, {A: a, B: w, C: c()}, {A: a, B: w, C: c()}})
		}},
		{"_group2_to16", func() error {
			return b.MatMulGroup([]op.MatMul{{A: a, B: w, C: x(64, 96)}, {A: a, B: w, C: c()}})
		}},
		{"_sum3", func() error {
			return b.MatMulSum(op.MatMulSum{{A: a, B: w, C: sum}, {A: a, B: w, C: sum}, {A: a, B: w, C: sum}})
		}},
		{"_swiglu_to16", func() error {
			return b.GateUp(op.GateUp{X: a, WGate: w, WUp: x(64, 96), Gate: x(64, 96), Up: x(64, 96), Out: x(64, 96)})
		}},
		{"_nt_sum2", func() error {
			return b.MatMulSum(op.MatMulSum{{A: a, B: x(96, 64), TransB: true, C: sum, Acc: true}, {A: a, B: x(96, 64), TransB: true, C: sum}})
		}},
	} {
		if ok, err := b.StartTiming(); err != nil || !ok {
			t.Skipf("no clock: %v", err)
		}
		if err := s.run(); err != nil {
			t.Fatal(err)
		}
		times, err := b.StopTiming()
		if err != nil {
			t.Fatal(err)
		}
		if len(times) != 1 || !strings.HasSuffix(times[0].Kernel, s.kernel) {
			t.Errorf("got %v, want one kernel %s", times, s.kernel)
		}
	}
}

// TestGrain: slices of 64 are only for depths that they divide, in every part along K.
func TestGrain(t *testing.T) {
	for _, c := range []struct{ k, splits, want int }{{128, 1, 64}, {100, 1, 64}, {96, 1, 32}, {40, 1, 64}, {32, 1, 32}, {256, 2, 64}, {192, 2, 32}, {250, 2, 64}} {
		if got := shapeOf(productForm{}, 1, 1, c.k, c.splits).grain; got != c.want {
			t.Errorf("K of %d in %d parts: grain %d, want %d", c.k, c.splits, got, c.want)
		}
	}
}
