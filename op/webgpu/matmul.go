package webgpu

import (
	"math"
	"slices"

	"tezgah/op"
)

// matmulForm is what a matrix kernel is compiled for, apart from its tile.
type matmulForm struct {
	transA, transB bool
	half           bool // B is f16
	vec            bool // all sizes that matter are multiples of 4
	acc, residual  bool
	check          bool // edges need checks
	paired         bool // matmul_gate_up
	gelu           bool // its activation
	group          bool // matmul_group
}

// name is the kernel's name with the marks of its form, as profiles show it.
func (f matmulForm) name() string {
	s := f.kernel()
	for _, mark := range []struct {
		on   bool
		text string
	}{{f.half, "_w16"}, {f.residual, "_residual"}, {f.acc, "_acc"}, {f.gelu, "_gelu"}} {
		if mark.on {
			s += mark.text
		}
	}
	return s
}

// kernel is the name in 03_linear.wgsl.
func (f matmulForm) kernel() string {
	switch {
	case f.paired:
		return "matmul_gate_up"
	case f.group:
		return "matmul_group"
	}
	s := op.MatMul{TransA: f.transA, TransB: f.transB}.Label()
	if !f.vec {
		s += "_scalar"
	}
	return s
}

// mode is what the kernel reads of the form at run time.
func (f matmulForm) mode() uint32 { return uint32(bit(f.acc) | bit(f.residual)<<1) }

// matmulKernel finds the kernel of a form and tile.
func (b *Backend) matmulKernel(f matmulForm, t Tile) *kernel {
	v := variant{name: f.kernel()}
	v.c = [10]int32{int32(t.BM), int32(t.BN), int32(t.BK), int32(t.MQ), int32(t.NQ), int32(t.Bufs), int32(t.Pad),
		int32(t.Unroll), bit(f.half) | bit(f.check)<<1 | bit(f.gelu)<<2}
	k := b.kernel(v, func() []define {
		d := []define{u("BM", t.BM), u("BN", t.BN), u("BK", t.BK), u("MQ", t.MQ), u("NQ", t.NQ), u("BUFS", t.Bufs), u("PAD", t.Pad), u("KU", t.Unroll), u("KLOW", t.kLow()),
			flag("W16", f.half), flag("CHECK", f.check), flag("EXACT", t.exact())}
		if f.paired {
			d = append(d, flag("GELU", f.gelu))
		}
		return d
	})
	if len(k.forms) == 0 {
		f.acc, f.residual = false, false // the same kernel
		k.label = f.name()
	}
	return k
}

// MatMul is C = op(A)·op(B), + C with Acc, + Residual when present.
func (b *Backend) MatMul(a op.MatMul) error {
	m, n, k := a.Sizes()
	a = addInPlace(a)
	if needsUnits(a) {
		return b.matrixMatMul(a)
	}
	f := matmulForm{transA: a.TransA, transB: a.TransB, half: isHalf(a.B), acc: a.Acc, residual: a.Residual.Ok()}
	if m <= maxVecRows && !a.TransA {
		if a.TransB && k%4 == 0 {
			return b.matvec("matvec_t", a, f)
		}
		if !a.TransB && n%4 == 0 {
			return b.matvec("matvec", a, f)
		}
	}
	if b.matrix.worth(m, n, k) {
		return b.matrixMatMul(a)
	}
	f.vec = n%4 == 0 && (a.TransA && m%4 == 0 || !a.TransA && k%4 == 0)
	for {
		t := b.tile(f, m, n, k)
		if err := b.runMatMul(a, f, t); err == nil || !b.dropTile(t, err) {
			return err
		}
	}
}

// addInPlace makes a residual that is C itself Acc, so that no kernel has one tensor twice.
func addInPlace(a op.MatMul) op.MatMul {
	if a.Residual.Ok() && !a.Acc && samePlace(a.Residual, a.C) {
		a.Residual, a.Acc = op.Tensor{}, true
	}
	return a
}

// needsUnits reports whether a product has a tensor that only the matrix units read
// or write, which then do it in any size. B in f16 is none: all kernels take weights so.
func needsUnits(a op.MatMul) bool { return is16(a.A) || isBrain(a.B) || is16(a.C) }

// runMatMul runs a product with a given tile, in one dispatch, in several by
// rows when it would be too long for the device, or split along K.
func (b *Backend) runMatMul(a op.MatMul, f matmulForm, t Tile) error {
	m, n, k := a.Sizes()
	splits, depth := 1, k
	if a.TransA || ceil(m, 128)*ceil(n, 128) <= fewTiles {
		splits, depth = splitK(m, n, k, b.dev.Limits().BindingSize)
	}
	whole := f
	if splits > 1 {
		f.acc, f.residual = false, false
	}
	f.check = !f.vec || m%t.BM != 0 || n%t.BN != 0 || k%t.BK != 0 || depth%t.BK != 0
	kern := b.matmulKernel(f, t)
	err := b.rowParts(m, t.BM, 2*float64(n)*float64(k), func(row0, rows int) error {
		c := b.begin(kern)
		c.in(a.A)
		c.in(a.B)
		c.inOr(a.Residual)
		if splits > 1 {
			c.scratch(scratchSplit, uint64(4*splits*m*n), true)
		} else {
			c.out(a.C)
		}
		c.words(uint32(m), uint32(n), uint32(k), uint32(row0), uint32(depth), 0, 0, 0, f.mode())
		return c.grid(uint32(ceil(n, t.BN)), uint32(ceil(rows, t.BM)), uint32(splits))
	})
	if err != nil || splits == 1 {
		return err
	}
	return b.reduceSplits(a, whole, splits, m*n)
}

// rowParts calls run for ranges of rows, multiples of bm, whose work stays
// within the device's budget for a dispatch.
func (b *Backend) rowParts(m, bm int, flopsPerRow float64, run func(row0, rows int) error) error {
	part := m
	if most := b.tuner.budget / flopsPerRow; most < float64(m) {
		part = max(bm, int(most)/bm*bm)
	}
	for row0 := 0; row0 < m; row0 += part {
		if err := run(row0, min(part, m-row0)); err != nil {
			return err
		}
	}
	return nil
}

// reduceSplits adds the parts of a split product.
func (b *Backend) reduceSplits(a op.MatMul, f matmulForm, splits, n int) error {
	c := b.begin(b.plain("matmul_reduce"))
	c.scratch(scratchSplit, uint64(4*splits*n), false)
	c.inOr(a.Residual)
	c.out(a.C)
	c.words(uint32(n), uint32(splits), f.mode())
	return c.threads(n)
}

// fewTiles is the number of 128×128 tiles up to which any product may be split
// along K; weight gradients, whose K is all rows of a batch, always may.
const fewTiles = 132

// splitK decides into how many parts along K a product is cut, and their depth.
// It looks at the shape alone, so that sums have the same order on every device:
// a weight gradient has few tiles and a long K, and a large GPU would idle.
func splitK(m, n, k int, bindingBytes uint64) (splits, depth int) {
	const (
		slots = 264 // workgroups that a large GPU runs at once
		unit  = 64  // depth is a multiple of it: of every BK
		// The parts are written and read once, the result written: 8·splits + 4
		// bytes for 2·k FLOPs an element. A large GPU does 38 TFLOP/s and 4 TB/s.
		flopsPerByte = 38.0 / 4
	)
	tiles := ceil(m, 128) * ceil(n, 128)
	best, bestGain := 1, 0.0
	for s := 1; s <= 32 && s*512 <= k && uint64(4*s*m*n) <= min(bindingBytes, 64<<20); s++ {
		waves := float64(tiles*s) / slots
		gain := waves / math.Ceil(waves)
		if s > 1 {
			gain -= flopsPerByte * float64(8*s+4) / float64(2*k)
		}
		if gain > bestGain+0.01 {
			best, bestGain = s, gain
		}
	}
	if best == 1 {
		return 1, k
	}
	depth = ceil(ceil(k, best), unit) * unit
	return ceil(k, depth), depth
}

// maxVecRows is the most rows for which the one-row kernels are used.
const maxVecRows = 8

// matvecKernel finds the kernel for products of few rows; rows is a power of two.
func (b *Backend) matvecKernel(name string, rows, lanes int, half bool) *kernel {
	v := variant{name: name}
	v.c = [10]int32{int32(rows), int32(lanes), bit(half)}
	return b.kernel(v, func() []define {
		return []define{u("MR", rows), u("LANES", lanes), flag("W16", half)}
	})
}

// matvec runs a product of at most maxVecRows rows.
func (b *Backend) matvec(name string, a op.MatMul, f matmulForm) error {
	m, n, k := a.Sizes()
	rows := 1
	for rows < m {
		rows *= 2
	}
	lanes, groups := 8, ceil(n/4, 8)
	switch {
	case name == "matvec_t":
		lanes, groups = 32, ceil(n, 8)
	case n >= 8192:
		lanes, groups = 32, ceil(n/4, 32)
	}
	c := b.begin(b.matvecKernel(name, rows, lanes, f.half))
	c.in(a.A)
	c.in(a.B)
	c.inOr(a.Residual)
	c.out(a.C)
	c.words(uint32(m), uint32(n), uint32(k), f.mode())
	return c.groups(groups)
}

// MatMulGroup runs products that share A: up to three plain ones in one
// dispatch, so that their tiles fill the GPU together.
func (b *Backend) MatMulGroup(items []op.MatMul) error {
	if m, n, k := items[0].Sizes(); b.matrix.worth(m, n, k) || slices.ContainsFunc(items, needsUnits) {
		return b.matrixGroup(items)
	}
	if f, ok := groupForm(items); ok {
		m, n, k := items[0].Sizes()
		for _, a := range items[1:] {
			n += a.B.Cols()
		}
		for {
			t := b.tile(f, m, n/len(items), k)
			if err := b.runGroup(items, f, t); err == nil || !b.dropTile(t, err) {
				return err
			}
		}
	}
	for _, a := range items {
		if err := b.MatMul(a); err != nil {
			return err
		}
	}
	return nil
}

// MatMulSum runs products whose sum is C: together on the matrix units where all of
// them belong there, otherwise one after another.
func (b *Backend) MatMulSum(a op.MatMulSum) error {
	if !slices.ContainsFunc(a, func(p op.MatMul) bool { return !b.onUnits(p) }) {
		return b.matrixSum(a)
	}
	for i := range a {
		if err := b.MatMul(a.Product(i)); err != nil {
			return err
		}
	}
	return nil
}

// groupForm decides whether items can run as one dispatch.
func groupForm(items []op.MatMul) (f matmulForm, ok bool) {
	if len(items) < 2 || len(items) > 3 {
		return f, false
	}
	f = matmulForm{half: isHalf(items[0].B), vec: true, acc: items[0].Acc, group: true}
	m, _, k := items[0].Sizes()
	if m <= maxVecRows || k%4 != 0 {
		return f, false
	}
	for _, a := range items {
		_, n, _ := a.Sizes()
		if a.TransA || a.TransB || a.Residual.Ok() || n%4 != 0 || isHalf(a.B) != f.half || a.Acc != f.acc ||
			!samePlace(a.A, items[0].A) {
			return f, false
		}
	}
	return f, true
}

// runGroup runs a group with a given tile.
func (b *Backend) runGroup(items []op.MatMul, f matmulForm, t Tile) error {
	m, _, k := items[0].Sizes()
	f.check = m%t.BM != 0 || k%t.BK != 0
	var widths [3]int
	tiles, sum := 0, 0
	for i, a := range items {
		widths[i] = a.B.Cols()
		f.check = f.check || widths[i]%t.BN != 0
		tiles += ceil(widths[i], t.BN)
		sum += widths[i]
	}
	kern := b.matmulKernel(f, t)
	return b.rowParts(m, t.BM, 2*float64(sum)*float64(k), func(row0, rows int) error {
		c := b.begin(kern)
		c.in(items[0].A)
		for i := range 3 {
			c.in(items[min(i, len(items)-1)].B)
		}
		for _, a := range items {
			c.out(a.C)
		}
		if len(items) < 3 {
			c.scratch(scratchGroup, 256, true)
		}
		c.words(uint32(m), 0, uint32(k), uint32(row0), uint32(k), uint32(widths[0]), uint32(widths[1]), uint32(widths[2]), f.mode())
		return c.grid(uint32(tiles), uint32(ceil(rows, t.BM)), 1)
	})
}

// GateUp is Gate = X·WGate, Up = X·WUp, Out = act(Gate)·Up, in one dispatch
// where the shapes allow it.
func (b *Backend) GateUp(a op.GateUp) error {
	m, k := a.X.Dims[0], a.X.Dims[1]
	n := a.WGate.Dims[1]
	units := b.matrix.worth(m, n, k) || is16(a.X) || is16(a.Out) || is16(a.Gate) || isBrain(a.WGate) || isBrain(a.WUp)
	if units {
		if ok, err := b.matrixGateUp(a); ok || err != nil {
			return err
		}
	}
	if units || m <= maxVecRows || n%4 != 0 || k%4 != 0 || isHalf(a.WGate) != isHalf(a.WUp) || samePlace(a.Out, a.Up) || samePlace(a.Out, a.Gate) {
		if err := b.MatMulGroup([]op.MatMul{{A: a.X, B: a.WGate, C: a.Gate}, {A: a.X, B: a.WUp, C: a.Up}}); err != nil {
			return err
		}
		return b.GLU(op.GLU{Gate: a.Gate, Up: a.Up, Out: a.Out, Act: a.Act})
	}
	f := matmulForm{half: isHalf(a.WGate), vec: true, paired: true, gelu: a.Act == op.GeLUTanh}
	for {
		t := b.tile(f, m, 2*n, k)
		if err := b.runGateUp(a, f, t); err == nil || !b.dropTile(t, err) {
			return err
		}
	}
}

// runGateUp runs the fused kernel with a given tile, whose NQ is even.
func (b *Backend) runGateUp(a op.GateUp, f matmulForm, t Tile) error {
	m, k, n := a.X.Dims[0], a.X.Dims[1], a.WGate.Dims[1]
	f.check = m%t.BM != 0 || k%t.BK != 0 || n%(t.BN/2) != 0
	kern := b.matmulKernel(f, t)
	return b.rowParts(m, t.BM, 4*float64(n)*float64(k), func(row0, rows int) error {
		c := b.begin(kern)
		c.in(a.X)
		c.in(a.WGate)
		c.in(a.WUp)
		c.out(a.Gate)
		c.out(a.Up)
		c.out(a.Out)
		c.words(uint32(m), uint32(n), uint32(k), uint32(row0), uint32(k), 0, 0, 0, 0)
		return c.grid(uint32(ceil(n, t.BN/2)), uint32(ceil(rows, t.BM)), 1)
	})
}
