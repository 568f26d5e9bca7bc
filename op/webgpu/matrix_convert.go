package webgpu

import (
	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// ringSize is how many operands of a size class are kept. It is enough for the
// products that follow a group of three gradients.
const ringSize = 12

// largeOperand is the size from which operands go to a ring of their own, of
// largeRing: scratch memory grows to the largest operand times its ring.
const (
	largeOperand = 48 << 20
	largeRing    = 4
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

// operand is a converted tensor: (k, n) 16-bit floats.
type operand struct {
	mem  *gpu.Buffer
	k, n int
}

func (o operand) bytes() uint64 { return uint64(2 * o.k * o.n) }

// conversion says what an operand was made from.
type conversion struct {
	operand
	from       *gpu.Buffer
	offset, to uint64 // bytes
	rows, cols int
	turn       bool
	typ        tensor.DType
}

// forget drops what was made from bytes of a buffer that are being written, and
// what lies in a buffer that is.
func (v *conversions) forget(mem *gpu.Buffer, offset, n uint64) {
	if len(v.held) == 0 {
		return
	}
	kept := v.held[:0]
	for _, h := range v.held {
		if h.mem != mem && (h.from != mem || h.to <= offset || offset+n <= h.offset) {
			kept = append(kept, h)
		}
	}
	v.held = kept
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

// convert returns a tensor, or with turn its transpose, as (k, n) 16-bit floats,
// padded with zeros. With both, it is made in both forms where that costs only
// the writing: the other one will be wanted next.
func (b *Backend) convert(t op.Tensor, turn bool, k, n int, both bool) (operand, error) {
	v := &b.matrix.converted
	from, offset, bytes := place(t)
	c := conversion{operand: operand{k: k, n: n}, from: from, offset: offset, to: offset + bytes,
		rows: t.Rows(), cols: t.Cols(), turn: turn, typ: b.matrix.rounding}
	for _, h := range v.held {
		c.mem = h.mem
		if h == c {
			v.use(h.mem)
			return h.operand, nil
		}
	}
	var err error
	if c.mem, err = v.take(b, c.bytes()); err != nil {
		return c.operand, err
	}
	if err := b.runConversion(t, &c, both); err != nil {
		return c.operand, err
	}
	v.held = append(v.held, c)
	return c.operand, nil
}

// runConversion fills an operand, and with both also holds its other form.
func (b *Backend) runConversion(t op.Tensor, o *conversion, both bool) error {
	rows, cols := o.rows, o.cols
	exact := rows%64 == 0 && cols%32 == 0
	switch {
	case exact && o.turn && o.k == cols && o.n == rows:
		return b.convertBoth(t, o.operand, operand{})
	case exact && both && !o.turn && o.k == rows && o.n == cols:
		other := *o
		other.turn, other.k, other.n = true, cols, rows
		var err error
		if other.mem, err = b.matrix.converted.take(b, other.bytes()); err != nil {
			return err
		}
		if err := b.convertBoth(t, other.operand, o.operand); err != nil {
			return err
		}
		b.matrix.converted.held = append(b.matrix.converted.held, other)
		return nil
	case !o.turn && o.k == rows && o.n == cols && cols%8 == 0:
		c := b.beginConversion("matrix_cast_flat", t, false)
		c.in(t)
		c.memory(o.mem, 0, o.bytes(), true)
		c.words(uint32(rows * cols))
		return c.threads(rows * cols / 8)
	}
	name := "matrix_cast"
	if o.turn {
		name = "matrix_cast_t"
	}
	c := b.beginConversion(name, t, false)
	c.in(t)
	c.memory(o.mem, 0, o.bytes(), true)
	c.words(uint32(rows), uint32(cols), uint32(o.k), uint32(o.n))
	if o.turn {
		return c.grid(uint32(ceil(o.k, 32)), uint32(ceil(o.n, 64)), 1)
	}
	return c.threads(o.k * o.n / 8)
}

// convertBoth fills the transpose of a tensor, and its plain form if there is one.
func (b *Backend) convertBoth(t op.Tensor, turned, plain operand) error {
	c := b.beginConversion("matrix_cast_both", t, plain.mem != nil)
	c.in(t)
	c.memory(turned.mem, 0, turned.bytes(), true)
	if plain.mem != nil {
		c.memory(plain.mem, 0, plain.bytes(), true)
	} else {
		c.memory(b.none, 0, b.none.Size(), true)
	}
	c.words(uint32(t.Rows()), uint32(t.Cols()), 0, 0)
	return c.grid(uint32(t.Cols()/32), uint32(t.Rows()/64), 1)
}

func (b *Backend) beginConversion(name string, t op.Tensor, plain bool) *call {
	half, brain, bf16 := isHalf(t), isBrain(t), b.matrix.rounding == tensor.BF16
	v := variant{name: name, c: [10]int32{bit(half), bit(bf16), bit(plain), bit(brain)}}
	return b.begin(b.kernel(v, func() []define {
		d := []define{flag("W16", half), flag("SB16", brain), flag("BF16", bf16)}
		if name == "matrix_cast_both" {
			d = append(d, flag("PLAIN", plain))
		}
		return d
	}))
}
