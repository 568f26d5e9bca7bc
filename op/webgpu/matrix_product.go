package webgpu

import (
	"fmt"
	"slices"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// maxProducts is how many products one dispatch does side by side or adds.
const maxProducts = 3

// productForm is what a kernel is compiled for, apart from its tile. One of pairs and
// group is 1.
type productForm struct {
	input            tensor.DType
	turnedA, turnedB bool
	pairs            int    // products that are added
	group            int    // products side by side that share A
	halves           uint32 // bit i: C of product i has 16 bits
	gated, gelu      bool   // a third C is act(C0)·C1, by SiLU or GELU; group is 2
	turned           uint32 // bit i: C of product i is turned by RoPE's angles
	head             int    // columns of a head then
}

// formOf is the form of a product alone, in float32.
func (b *Backend) formOf(a op.MatMul) productForm {
	return productForm{input: b.matrix.rounding, turnedA: a.TransA, turnedB: a.TransB && !turnsB(a), pairs: 1, group: 1}
}

// turnsB reports whether Bᵀ is turned in memory first. Pieces of rows that lie further
// apart than that are slow to read, and turning costs a small part of a long product.
func turnsB(a op.MatMul) bool {
	_, _, k := a.Sizes()
	return a.TransB && k > 8192
}

// matrixMatMul is MatMul on the matrix units.
func (b *Backend) matrixMatMul(a op.MatMul) error {
	return b.matrixTogether([]op.MatMul{a})
}

// matrixGroup runs products that share A, as many in a dispatch as go together.
func (b *Backend) matrixGroup(items []op.MatMul) error {
	for len(items) > 0 {
		n := b.groupSize(items)
		if err := b.matrixTogether(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// groupSize is how many of the items, from the first on, go into one dispatch: they
// have one form, nothing but C is added to them, their operands have places, and each
// alone would leave much of the device without work.
func (b *Backend) groupSize(items []op.MatMul) int {
	n, most := 1, min(len(items), maxProducts)
	if m, width, _ := items[0].Sizes(); ceil(m, 128)*ceil(width, 128) >= 3*matrixSlots {
		return 1
	}
	var room operandRoom
	fa, fb := factors(items[0], depthOf(items[0]))
	b.fits(&room, fa, fb)
	for ; n < most; n++ {
		x, y := &items[0], &items[n]
		_, fb := factors(*y, depthOf(*y))
		if x.TransB != y.TransB || x.Acc != y.Acc || x.Residual.Ok() || y.Residual.Ok() || !b.fits(&room, fb) {
			break
		}
	}
	return n
}

// depthOf is K of a product in whole slices of 32, to which it is padded unless a tile
// asks for more.
func depthOf(a op.MatMul) int {
	_, _, k := a.Sizes()
	return roundUp(k, 32)
}

// matrixTogether runs a product, or a group, in one dispatch; and a second one for
// each product of which parts along K are to be added.
func (b *Backend) matrixTogether(items []op.MatMul) error {
	m, width, k := items[0].Sizes()
	for _, a := range items[1:] {
		_, n, _ := a.Sizes()
		width += n
	}
	splits := matrixSplits(m, width, k, b.dev.Limits().BindingSize)
	tile := b.matrixTile(shapeOf(b.formOf(items[0]), m, width, k, splits))
	return b.runMatrixGroup(items, tile, splits)
}

// runMatrixGroup runs products that share A in parts along K.
func (b *Backend) runMatrixGroup(items []op.MatMul, tile matrix.Tile, splits int) error {
	l := launch{form: b.formOf(items[0]), tile: tile, splits: splits}
	l.form.group = len(items)
	for i, a := range items {
		if err := b.takeTerm(&l, i, a); err != nil {
			return err
		}
	}
	return b.launch(&l, items)
}

// takeTerm makes the operands of term i of a launch, whose tile is chosen, ready.
func (b *Backend) takeTerm(l *launch, i int, a op.MatMul) (err error) {
	_, _, k := a.Sizes()
	t := &l.terms[i]
	t.depth = roundUp(k, l.tile.BK*l.splits)
	fa, fb := factors(a, t.depth)
	if t.a, err = b.operandOf(fa); err == nil {
		t.b, err = b.operandOf(fb)
	}
	return err
}

// factors are what a product over depth of K, at least its own, multiplies, as they
// lie in memory. Rows are whole vectors.
func factors(a op.MatMul, depth int) (fa, fb factor) {
	m, n, _ := a.Sizes()
	fa, fb = factor{t: a.A, rows: m, cols: depth}, factor{t: a.B, rows: depth, cols: roundUp(n, 8), turn: turnsB(a)}
	if a.TransA {
		fa.rows, fa.cols = depth, roundUp(m, 8)
	}
	if a.TransB && !fb.turn {
		fb.rows, fb.cols = n, depth
	}
	return fa, fb
}

func roundUp(n, unit int) int { return ceil(n, unit) * unit }

// launch is one dispatch of matmul.comp: products side by side or terms of a sum, with
// their operands.
type launch struct {
	form   productForm
	tile   matrix.Tile
	splits int // parts along K
	terms  [maxProducts]term
	out    op.Tensor // act(C0)·C1, with form.gated
	turn   op.RoPE   // with form.turned
}

// term is a product's operands over depth of K.
type term struct {
	a, b  operand
	depth int
}

// launch runs products side by side, or with form.pairs above 1 the terms of a sum,
// whose C is that of items[0]. Results go to C at once, or by way of scratch memory
// where parts are to be added or a row is no whole vec4s.
func (b *Backend) launch(l *launch, items []op.MatMul) error {
	results := items[:l.form.group]
	direct := l.splits == 1 && isDirect(results)
	var parts partials
	if direct {
		for i, a := range results {
			l.form.halves |= uint32(bit(is16(a.C))) << i
		}
		if l.form.gated {
			l.form.halves |= uint32(bit(is16(l.out))) << len(results)
		}
	} else if err := b.placeParts(&parts, results, l.splits); err != nil {
		return err
	}
	c := b.begin(b.matrixKernel(l.tile, l.form))
	l.bindFactors(c)
	mode := uint32(0)
	switch {
	case l.form.turned != 0:
		c.in(l.turn.Table)
	case direct:
		mode = uint32(bit(items[0].Acc) | bit(items[0].Residual.Ok())<<1)
		c.inOr(items[0].Residual)
	default:
		c.inOr(op.Tensor{})
	}
	for i := range maxProducts {
		switch {
		case i == len(results) && l.form.gated:
			c.out(l.out)
		case i >= len(results):
			c.inOr(op.Tensor{})
		case direct:
			c.out(results[i].C)
		default:
			c.memory(parts.mem, parts.at[i], parts.bytes[i], true)
		}
	}
	tilesM, tilesN := l.dims(c, results, mode)
	if err := c.grid(tilesM*tilesN, 1, uint32(l.splits)); err != nil || direct {
		return err
	}
	for i, a := range results {
		if err := b.matrixFinish(a, &parts, i, l.splits); err != nil {
			return err
		}
	}
	return nil
}

// isDirect reports whether a kernel can write the results where they belong.
func isDirect(items []op.MatMul) bool {
	return !(items[0].Acc && items[0].Residual.Ok()) &&
		!slices.ContainsFunc(items, func(a op.MatMul) bool { _, n, _ := a.Sizes(); return n%4 != 0 })
}

// bindFactors binds A and B of every term, and those of the first in place of the
// terms that are absent.
func (l *launch) bindFactors(c *call) {
	n := max(l.form.pairs, l.form.group)
	at := func(i int) *term {
		if i < n {
			return &l.terms[i]
		}
		return &l.terms[0]
	}
	for i := range maxProducts {
		c.reads(at(i).a)
	}
	for i := range maxProducts {
		c.reads(at(i).b)
	}
}

// dims writes the kernel's uniform and returns the number of tiles along M and N.
func (l *launch) dims(c *call, results []op.MatMul, mode uint32) (tilesM, tilesN uint32) {
	const head, each, positionsWord = 4, 8, 6 // words; see matmul.comp
	var w [head + maxProducts*each]uint32
	m, _, _ := results[0].Sizes()
	tilesM = uint32(ceil(m, l.tile.BM))
	cols := l.tile.BN
	if l.form.gated { // a tile has columns of both products
		cols, results = cols/2, results[:1]
	}
	for i, t := range l.terms {
		p := w[head+each*i:]
		p[0], p[1], p[2] = uint32(t.a.stride/8), uint32(t.b.stride/8), uint32(t.depth/l.tile.BK/l.splits)
		if i < len(results) {
			_, n, _ := results[i].Sizes()
			p[3], p[4] = uint32(ceil(n, cols)), uint32(ceil(n, 4))
			tilesN += p[3]
		}
	}
	if l.form.turned != 0 {
		w[head+positionsWord] = uint32(l.turn.X.Dims[1])
	}
	w[0], w[1], w[2], w[3] = tilesM, tilesN, uint32(m), mode
	c.words(w[:]...)
	return tilesM, tilesN
}

// partials are where the parts of products lie in scratch memory, in bytes.
type partials struct {
	mem       *gpu.Buffer
	at, bytes [maxProducts]uint64
}

// placeParts finds room for the parts along K of each product.
func (b *Backend) placeParts(p *partials, items []op.MatMul, splits int) (err error) {
	var all uint64
	align := b.dev.Limits().StorageAlign
	for i, a := range items {
		m, n, _ := a.Sizes()
		p.at[i], p.bytes[i] = all, uint64(16*splits*m*ceil(n, 4))
		all += (p.bytes[i] + align - 1) / align * align
	}
	p.mem, err = b.scratchOf(scratchMatrixC, all)
	return err
}

// matrixFinish adds the parts of product i and puts them into its C, in 16 bits by
// way of scratch memory.
func (b *Backend) matrixFinish(a op.MatMul, p *partials, i, splits int) error {
	m, n, _ := a.Sizes()
	quads, vec := ceil(n, 4), n%4 == 0
	cols, stride := n, 4*quads
	if vec {
		cols, stride = quads, quads
	}
	c := b.begin(b.kernel(variant{name: "matrix_finish", c: [10]int32{bit(vec)}}, func() []define { return []define{flag("VEC", vec)} }))
	c.memory(p.mem, p.at[i], p.bytes[i], false)
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

// matrixKernel finds the kernel of a tile and a form.
func (b *Backend) matrixKernel(t matrix.Tile, f productForm) *kernel {
	splits := bit(b.matrix.splits && f.input == tensor.BF16)
	v := variant{name: "matrix_product", c: [10]int32{int32(t.BM), int32(t.BN), int32(t.BK), int32(t.WM), int32(t.WN),
		bit(f.input == tensor.BF16) | bit(f.turnedA)<<1 | bit(f.turnedB)<<2 | bit(f.gated)<<3 | bit(f.gelu)<<4 | splits<<5,
		int32(f.pairs), int32(f.group), int32(f.halves) | int32(f.turned)<<8 | int32(f.head)<<16}}
	k := b.kernel(v, nil)
	if k.module == nil {
		k.label = matrixProductName + t.String() + f.String()
		fragment := b.matrix.fragments[f.input]
		code, _ := matrix.Module("matmul", matrixInput(f.input)) // embedded; a test reads them all
		k.module = &gpu.Module{Code: code, Entry: "main", Subgroup: fragment.Threads, Slots: f.slots(),
			Constants: append(append(t.Constants(fragment), f.constants()...), uint32(splits))}
	}
	return k
}

// String is what a kernel's name says of its form.
func (f productForm) String() string {
	s := ""
	for _, mark := range []struct {
		on   bool
		text string
	}{{f.turnedA, "_tn"}, {f.turnedB, "_nt"}, {f.pairs > 1, fmt.Sprintf("_sum%d", f.pairs)}, {f.group > 1 && !f.gated, fmt.Sprintf("_group%d", f.group)},
		{f.gated && !f.gelu, "_swiglu"}, {f.gelu, "_geglu"}, {f.turned != 0, "_rope"}, {f.halves != 0, "_to16"}} {
		if mark.on {
			s += mark.text
		}
	}
	return s
}

// constants are the specialization constants that follow those of the tile.
func (f productForm) constants() []uint32 {
	group := f.group
	if f.gated {
		group = 1 // the kernel's word for products whose tiles lie side by side
	}
	return []uint32{uint32(bit(f.turnedA)), uint32(bit(f.turnedB)), uint32(f.pairs), uint32(group), f.halves, uint32(bit(f.gated)), uint32(bit(f.gelu)),
		uint32(max(8, f.head)), f.turned}
}

// slots are the kernel's bindings. Of the results those are written that it has.
func (f productForm) slots() []gpu.Slot {
	s := []gpu.Slot{{Name: "a0"}, {Name: "a1"}, {Name: "a2"}, {Name: "b0"}, {Name: "b1"}, {Name: "b2"}, {Name: "r"}}
	for i, name := range []string{"c0", "c1", "c2"} {
		slot := gpu.Slot{Name: name}
		if i < f.group || f.gated {
			slot.Kind = gpu.ReadWrite
		}
		s = append(s, slot)
	}
	return append(s, gpu.Slot{Name: "dims", Kind: gpu.UniformSlot})
}
