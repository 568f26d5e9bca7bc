package webgpu

import (
	"slices"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// ringSize is how many operands of a size class are kept: the weights of a group of
// products, their common factor, and what the group before left for the next.
const ringSize = 8

// largeOperand is the size from which operands go to a ring of their own, of
// largeRing: scratch memory grows to the largest operand times its ring.
const (
	largeOperand = 48 << 20
	largeRing    = 3
)

// conversions are operands of the matrix units: 16-bit copies of tensors, in
// scratch memory. A copy is used again as long as its source has not been
// written; the one that was not used for the longest time gives its place to the
// next.
type conversions struct {
	small [ringSize]slot
	large [largeRing]slot
	clock int
	held  []conversion
}

// slot is scratch memory for one operand.
type slot struct {
	mem  *gpu.Buffer
	used int // when, by the clock
}

// operand is a matrix of 16-bit floats in memory.
type operand struct {
	mem           *gpu.Buffer
	offset, bytes uint64
	stride        int // elements from row to row
}

// reads binds an operand.
func (c *call) reads(o operand) { c.memory(o.mem, o.offset, o.bytes, false) }

// conversion says what an operand in scratch memory was made from.
type conversion struct {
	mem            *gpu.Buffer
	from           *gpu.Buffer
	offset, to     uint64 // bytes
	rows, cols     int    // of the source
	turn           bool
	outRows, width int // of the operand, with padding
	typ            tensor.DType
}

func (c conversion) operand() operand {
	return operand{mem: c.mem, bytes: uint64(2 * c.outRows * c.width), stride: c.width}
}

// forget drops what was made from bytes of a buffer that are being written, and
// what lies in a buffer that is.
func (v *conversions) forget(mem *gpu.Buffer, offset, n uint64) {
	v.held = slices.DeleteFunc(v.held, func(h conversion) bool {
		return h.mem == mem || h.from == mem && h.offset < offset+n && offset < h.to
	})
}

// startOver forgets everything, so that what follows finds the slots as the step
// before did: equal steps then take equal slots, whose bind groups are there. It
// is called when the host waits, which ends a step.
func (v *conversions) startOver() {
	v.held, v.clock = v.held[:0], 0
	for i := range v.small {
		v.small[i].used = 0
	}
	for i := range v.large {
		v.large[i].used = 0
	}
}

// free gives the scratch memory back.
func (v *conversions) free(b *Backend) {
	for _, ring := range [][]slot{v.small[:], v.large[:]} {
		for i := range ring {
			if ring[i].mem != nil {
				b.dropScratch(ring[i].mem)
			}
			ring[i] = slot{}
		}
	}
	v.held = v.held[:0]
}

// take returns scratch memory of at least n bytes.
func (v *conversions) take(b *Backend, n uint64) (*gpu.Buffer, error) {
	ring := v.small[:]
	if n >= largeOperand {
		ring = v.large[:]
	}
	oldest := &ring[0]
	for i := range ring {
		if ring[i].used < oldest.used {
			oldest = &ring[i]
		}
	}
	v.clock++
	oldest.used = v.clock
	if oldest.mem != nil {
		v.forget(oldest.mem, 0, 0)
		if oldest.mem.Size() >= n {
			return oldest.mem, nil
		}
		b.dropScratch(oldest.mem)
		oldest.mem = nil
	}
	var err error
	oldest.mem, err = b.newScratch("matrix operand", n)
	return oldest.mem, err
}

// use notes that an operand is needed now.
func (v *conversions) use(mem *gpu.Buffer) {
	v.clock++
	for _, ring := range [][]slot{v.small[:], v.large[:]} {
		for i := range ring {
			if ring[i].mem == mem {
				ring[i].used = v.clock
			}
		}
	}
}

// factor is a tensor as a product reads it, or with turn its transpose: 16-bit floats
// with the given numbers of rows and columns, at least its own; what is added is zero.
type factor struct {
	t          op.Tensor
	rows, cols int
	turn       bool
}

// asItLies returns a tensor that is a factor already as an operand.
func (b *Backend) asItLies(f factor) (o operand, ok bool) {
	from, offset, bytes := place(f.t)
	ok = f.t.Type() == b.matrix.rounding && !f.turn && f.rows == f.t.Rows() && f.cols == f.t.Cols() && offset%b.dev.Limits().StorageAlign == 0
	return operand{from, offset, bytes, f.cols}, ok
}

// operandRoom counts the places that operands which are needed together take.
type operandRoom struct{ small, large int }

// fits takes places for factors that do not lie in memory as they are read, and
// reports whether there were enough.
func (b *Backend) fits(r *operandRoom, fs ...factor) bool {
	for _, f := range fs {
		switch _, ok := b.asItLies(f); {
		case ok:
		case 2*uint64(f.rows)*uint64(f.cols) >= largeOperand:
			r.large++
		default:
			r.small++
		}
	}
	return r.small <= ringSize && r.large <= largeRing
}

// operandOf returns a factor in memory: the tensor where it is, or a copy that was
// made of it before or is made now.
func (b *Backend) operandOf(f factor) (operand, error) {
	if o, ok := b.asItLies(f); ok {
		return o, nil
	}
	t := f.t
	from, offset, bytes := place(t)
	v := &b.matrix.converted
	c := conversion{from: from, offset: offset, to: offset + bytes, rows: t.Rows(), cols: t.Cols(),
		turn: f.turn, outRows: f.rows, width: f.cols, typ: b.matrix.rounding}
	for _, h := range v.held {
		c.mem = h.mem
		if h == c {
			v.use(h.mem)
			return h.operand(), nil
		}
	}
	var err error
	if c.mem, err = v.take(b, c.operand().bytes); err != nil {
		return operand{}, err
	}
	if err := b.runConversion(t, c); err != nil {
		return operand{}, err
	}
	v.held = append(v.held, c)
	return c.operand(), nil
}

// runConversion fills an operand.
func (b *Backend) runConversion(t op.Tensor, o conversion) error {
	plain := !o.turn && o.outRows == o.rows && o.width == o.cols
	name := "matrix_cast"
	switch {
	case plain:
		name = "matrix_cast_flat"
	case o.turn:
		name = "matrix_cast_t"
	}
	half, brain, bf16 := isHalf(t), isBrain(t), b.matrix.rounding == tensor.BF16
	c := b.begin(b.kernel(variant{name: name, c: [10]int32{bit(half), bit(bf16), bit(brain)}}, func() []define {
		return []define{flag("W16", half), flag("SB16", brain), flag("BF16", bf16)}
	}))
	c.in(t)
	c.memory(o.mem, 0, o.operand().bytes, true)
	if plain {
		c.words(uint32(o.rows * o.cols))
		return c.threads(o.rows * o.cols / 8)
	}
	c.words(uint32(o.rows), uint32(o.cols), uint32(o.outRows), uint32(o.width))
	if o.turn {
		return c.grid(uint32(ceil(o.outRows, 32)), uint32(ceil(o.width, 64)), 1)
	}
	return c.threads(o.outRows * o.width / 8)
}
