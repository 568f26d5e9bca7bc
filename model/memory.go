package model

import (
	"fmt"
	"math"
	"strings"

	"tezgah/op"
	"tezgah/tensor"
)

// PlanRow is the memory of one purpose.
type PlanRow struct {
	Label string
	Bytes int64
}

// Plan is what a model, its optimizer and its activations occupy, by purpose.
// It is made by the same code that allocates, so the two agree to the byte.
type Plan struct{ Rows []PlanRow }

// Total is the sum of all rows.
func (p Plan) Total() int64 {
	var n int64
	for _, r := range p.Rows {
		n += r.Bytes
	}
	return n
}

// String renders the plan as a table with a total.
func (p Plan) String() string {
	var b strings.Builder
	for _, r := range append(p.Rows[:len(p.Rows):len(p.Rows)], PlanRow{"total", p.Total()}) {
		fmt.Fprintf(&b, "%-24s %12s\n", r.Label, FormatBytes(r.Bytes))
	}
	return b.String()
}

// FormatBytes renders n with a binary unit: 1536 is "1.5 KiB".
func FormatBytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/1024, 0
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTP"[unit])
}

// PredictMemory says what NewParams and NewGraph will allocate with these
// arguments, the optimizer's work space included, without allocating it. An
// error means that they would fail too, and says why. operands is the type of
// operand tensors on the device when NewGraph is called; see op.OperandType.
func PredictMemory(cfg Config, p ParamOptions, t TrainOptions, lim op.Limits, operands tensor.DType) (Plan, error) {
	params, mem, err := planParams(cfg, p, lim)
	if err != nil {
		return Plan{}, err
	}
	mem.operands = operands
	if _, err := newGraph(mem, nil, params, t); err != nil {
		return Plan{}, err
	}
	return Plan{mem.rows}, nil
}

// PredictDecoder says what NewParams and NewDecoder will allocate.
func PredictDecoder(cfg Config, p ParamOptions, batch, slots int, lim op.Limits) (Plan, error) {
	params, mem, err := planParams(cfg, p, lim)
	if err != nil {
		return Plan{}, err
	}
	if _, err := newDecoder(mem, nil, params, batch, slots); err != nil {
		return Plan{}, err
	}
	return Plan{mem.rows}, nil
}

func planParams(cfg Config, p ParamOptions, lim op.Limits) (*Params, *memory, error) {
	mem := &memory{lim: lim}
	params, err := newParams(mem, nil, cfg, p)
	return params, mem, err
}

// memory hands out buffers and keeps count of them. Without a backend it only
// counts, and hands out buffers that nobody may compute with. The first error
// stays and makes later calls do nothing.
type memory struct {
	b        op.Backend // nil: plan only
	lim      op.Limits
	operands tensor.DType // type of operand tensors
	purpose  string       // label of the plan row that buffers are counted in
	rows     []PlanRow
	bufs     []op.Buffer
	err      error
}

// buf returns a zeroed buffer of n elements.
func (m *memory) buf(label string, t tensor.DType, n int) op.Buffer {
	planned := plannedBuffer{label, t, n}
	if m.err != nil {
		return planned
	}
	size := int64(n) * int64(t.Size())
	if most := maxElems(m.lim, t); n > most {
		m.err = fmt.Errorf("buffer %s needs %s, this device's limit is %s: use a smaller batch, context, vocabulary or model",
			label, FormatBytes(size), FormatBytes(int64(most)*int64(t.Size())))
		return planned
	}
	m.count(size)
	if m.b == nil {
		return planned
	}
	b, err := m.b.Alloc(label, t, n)
	if err != nil {
		m.err = fmt.Errorf("allocating %s (%s): %w", label, FormatBytes(size), err)
		return planned
	}
	m.bufs = append(m.bufs, b)
	return b
}

// f32, i32 and operand return a zeroed tensor in a buffer of its own. An operand is
// what products read; see op.Rounder.
func (m *memory) f32(label string, dims ...int) op.Tensor { return m.tensor(label, tensor.F32, dims) }
func (m *memory) i32(label string, dims ...int) op.Tensor { return m.tensor(label, tensor.I32, dims) }
func (m *memory) operand(label string, dims ...int) op.Tensor {
	return m.tensor(label, m.operands, dims)
}

// operandIf is operand, or f32 where the tensor has to be that.
func (m *memory) operandIf(ok bool, label string, dims ...int) op.Tensor {
	if !ok {
		return m.f32(label, dims...)
	}
	return m.operand(label, dims...)
}

// operandOr is operand where that is smaller than float32, else t itself: the
// operation that writes it then works in place.
func (m *memory) operandOr(t op.Tensor, label string) op.Tensor {
	if m.operands == tensor.F32 {
		return t
	}
	return m.operand(label, t.Dims[:t.Rank]...)
}

func (m *memory) tensor(label string, t tensor.DType, dims []int) op.Tensor {
	n := 1
	for _, d := range dims {
		if d > 0 && n > math.MaxInt/8/d {
			m.fail("buffer %s %v is absurdly large: use a smaller batch, context or model", label, dims)
			return op.Of(plannedBuffer{label, t, 0}, 0, dims...)
		}
		n *= d
	}
	return op.Of(m.buf(label, t, n), 0, dims...)
}

func (m *memory) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf(format, args...)
	}
}

func (m *memory) count(size int64) {
	for i := range m.rows {
		if m.rows[i].Label == m.purpose {
			m.rows[i].Bytes += size
			return
		}
	}
	m.rows = append(m.rows, PlanRow{m.purpose, size})
}

// free gives every buffer back.
func (m *memory) free() {
	for _, b := range m.bufs {
		m.b.Free(b)
	}
	m.bufs = nil
}

// plannedBuffer stands for a buffer that was not allocated.
type plannedBuffer struct {
	label string
	typ   tensor.DType
	n     int
}

func (b plannedBuffer) Len() int           { return b.n }
func (b plannedBuffer) Type() tensor.DType { return b.typ }
func (b plannedBuffer) Label() string      { return b.label }
