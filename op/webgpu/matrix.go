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

// matrixMatMul is MatMul on the matrix units.
func (b *Backend) matrixMatMul(a op.MatMul) error { return b.matrixGroup([]op.MatMul{a}) }

// matrixGroup runs products that share A, which is converted once. All
// conversions come first, so that no product waits for another.
func (b *Backend) matrixGroup(items []op.MatMul) error {
	for most := matrixGroupSize(items); len(items) > most; items = items[most:] {
		if err := b.matrixGroup(items[:most]); err != nil {
			return err
		}
	}
	m, width, k := items[0].Sizes()
	for _, a := range items[1:] {
		_, n, _ := a.Sizes()
		width += n
	}
	f := b.matrix.fragments[b.matrix.rounding]
	splits := matrixSplits(m, width, k, b.dev.Limits().BindingSize)
	tile := b.matrixTile(f, items[0].TransA, m, width, k, splits)
	return b.runMatrixGroup(items, tile, splits)
}

// maxMatrixGroup is bounded by the scratch buffers for operands.
const maxMatrixGroup = ringSize - 1

// matrixGroupSize is how many of the items may run together: each operand takes a
// slot, and none may take that of another which is still to be read.
func matrixGroupSize(items []op.MatMul) int {
	for _, a := range items {
		m, n, k := a.Sizes()
		if 2*uint64(k)*uint64(max(roundUp(m, 8), roundUp(n, 8))) >= largeOperand {
			return largeRing - 1
		}
	}
	return maxMatrixGroup
}

// runMatrixGroup runs products in parts along K. Operands stay as they lie, but for
// Wᵀ, which is turned; K is padded to whole slices.
func (b *Backend) runMatrixGroup(items []op.MatMul, tile matrix.Tile, splits int) error {
	_, _, k := items[0].Sizes()
	depth := roundUp(k, tile.BK*splits)
	fa, _ := factors(items[0], depth)
	sa, err := b.operandOf(fa)
	if err != nil {
		return err
	}
	var sb [maxMatrixGroup]operand
	for i, a := range items {
		_, fb := factors(a, depth)
		if sb[i], err = b.operandOf(fb); err != nil {
			return err
		}
	}
	for i, a := range items {
		if err := b.matrixProduct(a, tile, sa, sb[i], depth, splits); err != nil {
			return err
		}
	}
	return nil
}

// factors are what a product over depth of K, at least its own, multiplies. Rows are
// whole vectors.
func factors(a op.MatMul, depth int) (fa, fb factor) {
	m, n, _ := a.Sizes()
	fa = factor{t: a.A, rows: m, cols: depth}
	if a.TransA {
		fa.rows, fa.cols = depth, roundUp(m, 8)
	}
	return fa, factor{t: a.B, turn: a.TransB, rows: depth, cols: roundUp(n, 8)}
}

func roundUp(n, unit int) int { return ceil(n, unit) * unit }

// matrixProduct runs one product of 16-bit operands over depth of K.
func (b *Backend) matrixProduct(a op.MatMul, t matrix.Tile, sa, sb operand, depth, splits int) error {
	m, n, _ := a.Sizes()
	direct := splits == 1 && n%4 == 0 && !(a.Acc && a.Residual.Ok())
	c := b.begin(b.matrixKernel(t, b.matrix.rounding, a.TransA, direct && is16(a.C)))
	c.reads(sa)
	c.reads(sb)
	mode := uint32(0)
	if direct {
		mode = uint32(bit(a.Acc) | bit(a.Residual.Ok())<<1)
	}
	if direct && a.Residual.Ok() {
		c.out(a.Residual) // only read; see matrixKernel
	} else {
		c.memory(b.none, 0, b.none.Size(), true)
	}
	quads := ceil(n, 4)
	if direct {
		c.out(a.C)
	} else {
		c.scratch(scratchMatrixC, uint64(16*splits*m*quads), true)
	}
	c.words(uint32(ceil(m, t.BM)), uint32(ceil(n, t.BN)), uint32(sa.stride/8), uint32(sb.stride/8), uint32(quads),
		uint32(depth/t.BK/splits), mode, uint32(m*quads), uint32(m), uint32(quads))
	if err := c.grid(uint32(ceil(m, t.BM)*ceil(n, t.BN)), 1, uint32(splits)); err != nil || direct {
		return err
	}
	return b.matrixFinish(a, splits)
}

// matrixFinish adds the parts of a product and puts them into C, in 16 bits by way
// of scratch memory.
func (b *Backend) matrixFinish(a op.MatMul, splits int) error {
	m, n, _ := a.Sizes()
	quads, vec := ceil(n, 4), n%4 == 0
	cols, stride := n, 4*quads
	if vec {
		cols, stride = quads, quads
	}
	c := b.begin(b.kernel(variant{name: "matrix_finish", c: [10]int32{bit(vec)}}, func() []define { return []define{flag("VEC", vec)} }))
	c.scratch(scratchMatrixC, uint64(16*splits*m*quads), false)
	c.inOr(a.Residual)
	if is16(a.C) {
		c.scratch(scratchWide, uint64(4*m*n), true)
	} else {
		c.out(a.C)
	}
	c.words(uint32(m), uint32(cols), uint32(stride), uint32(m*stride), uint32(splits), uint32(bit(a.Acc)|bit(a.Residual.Ok())<<1))
	if err := c.threads(m * cols); err != nil || !is16(a.C) {
		return err
	}
	return b.narrowWide(a.C)
}

// matrixProductName begins the kernel's name in profiles; the tile follows.
const matrixProductName = "matrix_product_"

// matrixKernel finds the kernel of a tile, for A as it is or turned and C in float32
// or in 16 bits. Its residual is declared read_write, because it may lie in C's
// buffer.
func (b *Backend) matrixKernel(t matrix.Tile, input tensor.DType, turned, half bool) *kernel {
	v := variant{name: "matrix_product", c: [10]int32{int32(t.BM), int32(t.BN), int32(t.BK), int32(t.WM), int32(t.WN), bit(input == tensor.BF16), bit(turned), bit(half)}}
	k := b.kernel(v, nil)
	if k.module == nil {
		k.label = matrixProductName + t.String()
		if turned {
			k.label += "_tn"
		}
		if half {
			k.label += "_to16"
		}
		f := b.matrix.fragments[input]
		code, _ := matrix.Module("matmul", matrixInput(input)) // embedded; a test reads them all
		k.module = &gpu.Module{Code: code, Entry: "main", Subgroup: f.Threads, Constants: t.Constants(f, turned, half), Slots: []gpu.Slot{
			{Name: "a"}, {Name: "b"}, {Name: "r", Kind: gpu.ReadWrite}, {Name: "c", Kind: gpu.ReadWrite}, {Name: "dims", Kind: gpu.UniformSlot}}}
	}
	return k
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
