package checkpoint

import (
	"fmt"
	"slices"

	"tezgah/tensor"
)

// turnBytes is the memory that turning a matrix may take for its data. Tests
// make it small.
var turnBytes = 64 << 20

// source is a tensor of a file on its way to another format: read as float32,
// turned from (rows, cols) to (cols, rows) if asked, its output rows permuted
// within groups of unit.
type source struct {
	f      *File
	name   string
	shape  []int // as stored
	turned bool
	unit   int           // output rows that belong together, at least 1
	perm   func(int) int // output row i of a group is its row perm(i); nil for none
}

// check compares the stored shape and type with what is expected.
func (s source) check() error {
	info, ok := s.f.Lookup(s.name)
	if !ok {
		return fmt.Errorf("%s has no tensor %q", s.f.name, s.name)
	}
	if !slices.Equal(info.Shape, s.shape) {
		return fmt.Errorf("%s: tensor %q has shape %v, want %v by its configuration", s.f.name, s.name, info.Shape, s.shape)
	}
	switch info.Type {
	case tensor.F32, tensor.F16, tensor.BF16:
		return nil
	}
	return fmt.Errorf("%s: tensor %q is %v, want F32, F16 or BF16", s.f.name, s.name, info.Type)
}

// stream hands the values to each in output order, in pieces valid only during
// the call. A NaN or an infinity is an error: no model computes with them.
func (s source) stream(each func(x []float32) error) error {
	if err := s.check(); err != nil {
		return err
	}
	finite := func(x []float32) error {
		if i := firstNonFinite(x); i >= 0 {
			return fmt.Errorf("%s: tensor %q holds %v: a model with such weights is broken; use an earlier checkpoint", s.f.name, s.name, x[i])
		}
		return each(x)
	}
	if !s.turned {
		return s.streamStraight(finite)
	}
	return s.streamTurned(finite)
}

func (s source) streamStraight(each func(x []float32) error) error {
	info, _ := s.f.Lookup(s.name)
	widen, err := widener(info.Type)
	if err != nil {
		return err
	}
	var x []float32
	return s.f.Stream(s.name, func(p []byte, _ int64) error {
		n := len(p) / info.Type.Size()
		x = slices.Grow(x[:0], n)[:n]
		widen(x, p)
		return each(x)
	})
}

// streamTurned takes as many columns at a time as fit turnBytes. Reading parts
// of rows cannot check the tensor's checksum, so a matrix that does not fit in
// one go is read through once before.
func (s source) streamTurned(each func(x []float32) error) error {
	rows, cols := s.shape[0], s.shape[1]
	unit := max(s.unit, 1)
	block := max(turnBytes/4/rows/unit, 1) * unit
	if block >= cols {
		block = cols
	}
	if s.f.hasSums {
		if err := s.f.Stream(s.name, func([]byte, int64) error { return nil }); err != nil {
			return err
		}
	}
	out := make([]float32, block*rows)
	for c := 0; c < cols; c += block {
		n := min(block, cols-c)
		if err := s.turnBlock(out[:n*rows], c, n); err != nil {
			return err
		}
		if err := each(out[:n*rows]); err != nil {
			return err
		}
	}
	return nil
}

// bandRows is how many rows are read before they are spread over the output:
// every visit of an output row then fills a cache line.
const bandRows = 16

// turnBlock fills out (n, rows) with the columns first … first+n-1, permuted.
func (s source) turnBlock(out []float32, first, n int) error {
	info, _ := s.f.Lookup(s.name)
	widen, err := widener(info.Type)
	if err != nil {
		return err
	}
	rows, cols, size := s.shape[0], s.shape[1], info.Type.Size()
	raw := make([]byte, n*size)
	var band [bandRows][]float32
	for i := range band {
		band[i] = make([]float32, n)
	}
	from := s.rowOrder(n)
	for r := 0; r < rows; r += bandRows {
		height := min(bandRows, rows-r)
		for i := range height {
			if err := s.f.ReadAt(s.name, raw, (int64(r+i)*int64(cols)+int64(first))*int64(size)); err != nil {
				return err
			}
			widen(band[i], raw)
		}
		for o, c := range from {
			dst := out[o*rows+r:][:height]
			for i := range dst {
				dst[i] = band[i][c]
			}
		}
	}
	return nil
}

// rowOrder lists for each of n output rows the column it comes from.
func (s source) rowOrder(n int) []int {
	from := make([]int, n)
	for o := range from {
		from[o] = o
		if s.perm != nil {
			from[o] = o/s.unit*s.unit + s.perm(o%s.unit)
		}
	}
	return from
}
