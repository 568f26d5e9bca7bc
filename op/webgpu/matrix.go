package webgpu

import (
	"fmt"
	"slices"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// matrixUnits is how products run while they may round their inputs. They read
// 16-bit floats, rows as they lie in tensors of that type; other tensors are
// converted into scratch memory first, once for all products that follow.
type matrixUnits struct {
	fragments       map[tensor.DType]matrix.Fragment // what the device multiplies
	rounding        tensor.DType                     // F32: off
	splits          bool                             // bfloat16 results are rounded by splitting
	converted       conversions
	tiles           map[matrixShape]matrix.Tile           // chosen
	disk            map[string]string                     // shape to tile, kept on disk
	attention       [attentionParts]*matrix.AttentionTile // fixed by benchmarks, else nil
	attentionChosen map[attentionClass]matrix.AttentionTile
	attentionDisk   map[string]string       // class to tile
	fast            map[tensor.DType]bool   // seen to be faster than float32
	attends         map[attentionProbe]bool // whether attention was seen to be right
}

// findMatrixUnits chooses a fragment for each type that the device multiplies and
// checks it with a small product, so that a driver that lies is found now.
func (b *Backend) findMatrixUnits() {
	b.matrix.fragments = map[tensor.DType]matrix.Fragment{}
	for _, t := range []tensor.DType{tensor.BF16, tensor.F16} {
		if f, ok := b.fragment(t); ok {
			b.matrix.fragments[t] = f
			if err := b.tryMatrixUnits(t); err != nil {
				delete(b.matrix.fragments, t)
				b.notice = joinNotice(b.notice, fmt.Sprintf("NOTE: the matrix units are not used for %v: %v", t, err))
			}
		}
	}
	b.chooseRounding()
}

// fragment picks the largest shape whose dimensions divide a tile's parts.
func (b *Backend) fragment(t tensor.DType) (best matrix.Fragment, ok bool) {
	input := matrixInput(t)
	size := b.dev.Features().SubgroupSize
	for _, s := range b.dev.Info().Matrix {
		f := matrix.Fragment{M: s.M, N: s.N, K: s.K, Threads: size}
		if s.Input == input && size > 0 && len(b.matrixTiles(f)) > 0 && f.M*f.N*f.K > best.M*best.N*best.K {
			best, ok = f, true
		}
	}
	return best, ok
}

// matrixTiles are the tiles that the device can run.
func (b *Backend) matrixTiles(f matrix.Fragment) (fit []matrix.Tile) {
	l := b.dev.Limits()
	for _, t := range matrix.Tiles {
		if b.dev.Info().Kind == gpu.Software && t.BM*t.BN > 64*64 {
			continue // a driver that compiles for the CPU takes minutes for large tiles
		}
		if t.Fits(f, min(l.Invocations, l.WorkgroupSizeX), l.WorkgroupMemory) {
			fit = append(fit, t)
		}
	}
	return fit
}

// matrixInput is matrix.Module's name of a type.
func matrixInput(t tensor.DType) string {
	if t == tensor.BF16 {
		return "bf16"
	}
	return "f16"
}

// Rounding lists the types that the matrix units multiply, bfloat16 first: it
// has float32's range, so that gradients need no scaling.
func (b *Backend) Rounding() (types []tensor.DType) {
	for t := range b.matrix.fragments {
		types = append(types, t)
	}
	slices.SortFunc(types, func(x, y tensor.DType) int { return bitOf(x == tensor.BF16, -1, 1) })
	return types
}

func bitOf(c bool, yes, no int) int {
	if c {
		return yes
	}
	return no
}

// RoundProducts lets products round their inputs to t, or not with F32.
func (b *Backend) RoundProducts(t tensor.DType) error {
	if _, ok := b.matrix.fragments[t]; !ok && t != tensor.F32 {
		return fmt.Errorf("webgpu: products cannot round to %v on %s: its matrix units do %v", t, b.dev.Info().Name, b.Rounding())
	}
	if err := b.checkSpeed(t, b.raceUnits); err != nil {
		return fmt.Errorf("webgpu: %w", err)
	}
	b.matrix.rounding = t
	return nil
}

// worth reports whether a product is large enough for the matrix units.
func (u *matrixUnits) worth(m, n, k int) bool {
	return u.rounding != tensor.F32 && m >= 32 && n >= 32 && k >= 32
}

// onUnits reports whether MatMul would run a product on the matrix units.
func (b *Backend) onUnits(a op.MatMul) bool {
	m, n, k := a.Sizes()
	return needsUnits(a) || b.matrix.worth(m, n, k)
}

// tryMatrixUnits multiplies small matrices whose product is known exactly: whole
// numbers below 8, which both types hold.
func (b *Backend) tryMatrixUnits(t tensor.DType) error {
	const m, n, k = 48, 80, 96 // ragged for every tile
	var bufs []op.Buffer
	defer func() {
		for _, x := range bufs {
			b.Free(x)
		}
		b.matrix.rounding = tensor.F32
	}()
	make := func(label string, rows, cols int, values []float32) (op.Tensor, error) {
		buf, err := b.Alloc(label, tensor.F32, rows*cols)
		if err != nil {
			return op.Tensor{}, err
		}
		bufs = append(bufs, buf)
		x := op.Of(buf, 0, rows, cols)
		return x, b.Write(x, gpu.Bytes(values))
	}
	va, vb := wholes(m*k, 5), wholes(k*n, 7)
	ta, err := make("matrix test a", m, k, va)
	if err != nil {
		return err
	}
	tb, err := make("matrix test b", k, n, vb)
	if err != nil {
		return err
	}
	got := slices.Repeat([]float32{-1}, m*n)
	tc, err := make("matrix test c", m, n, got)
	if err != nil {
		return err
	}
	b.matrix.rounding = t
	if err := b.matrixMatMul(op.MatMul{A: ta, B: tb, C: tc}); err != nil {
		return err
	}
	if err := b.Read(gpu.Bytes(got), tc); err != nil {
		return err
	}
	for i := range m {
		for j := range n {
			var want float32
			for l := range k {
				want += va[i*k+l] * vb[l*n+j]
			}
			if got[i*n+j] != want {
				return fmt.Errorf("a product of whole numbers gave %v at (%d, %d), want %v", got[i*n+j], i, j, want)
			}
		}
	}
	return nil
}

// wholes are n whole numbers from −3 to 3.
func wholes(n, step int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32((i*step+i/7)%7 - 3)
	}
	return v
}
