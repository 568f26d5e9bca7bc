package chat

import (
	"fmt"

	"tezgah/tensor"
)

// Sampler draws training batches from a set, as corpus.Sampler does from token files. In each epoch every row of the
// packing, and so every conversation, comes once, in a seeded order of that epoch's own. Everything drawn follows from
// the set, T, the seed and one integer, the number of rows drawn. It must not be used from several goroutines at once.
type Sampler struct {
	rows  *rows
	rng   tensor.RNG
	drawn int64

	epoch int64 // that order belongs to
	order []int32
}

// NewSampler packs a set into rows of T tokens and stands before the first.
func NewSampler(set *Set, T int, seed uint64) (*Sampler, error) {
	r, err := newRows(set, T, seed)
	if err != nil {
		return nil, fmt.Errorf("chat sampler: %w", err)
	}
	return &Sampler{rows: r, rng: tensor.NewRNG(seed, orderStream), epoch: -1, order: make([]int32, r.Rows)}, nil
}

// Next fills tokens, targets and docStart, each (B, T), with the next B = len(tokens)/T rows. A target is
// corpus.IgnoreTarget where the loss does not count; every row has at least one that does. docStart is, for each
// position, the first position of its row that it may see, the start of its conversation; it must not be nil.
func (s *Sampler) Next(tokens, targets, docStart []int32) error {
	if err := s.rows.checkBatch(tokens, targets, docStart); err != nil {
		return fmt.Errorf("chat sampler: %w", err)
	}
	T := s.rows.T
	for at := 0; at < len(tokens); at += T {
		s.rows.read(s.row(), tokens[at:at+T], targets[at:at+T], docStart[at:at+T])
		s.drawn++
	}
	return nil
}

// row is the row to draw next.
func (s *Sampler) row() int64 {
	n := s.rows.Rows
	if epoch := s.drawn / n; epoch != s.epoch {
		for i := range s.order {
			s.order[i] = int32(i)
		}
		shuffle(s.order, s.rng, uint64(epoch)<<32)
		s.epoch = epoch
	}
	return int64(s.order[s.drawn%n])
}

// Cursor returns the number of rows drawn: with set, T and seed the whole state of the sampler.
func (s *Sampler) Cursor() []int64 { return []int64{s.drawn} }

// SetCursor goes on where a sampler of the same set, T and seed had this cursor. Whether the set is the same its Hash
// tells.
func (s *Sampler) SetCursor(c []int64) error {
	if len(c) != 1 || c[0] < 0 {
		return fmt.Errorf("chat sampler: cursor %v, want one number that is not negative: give the same data as before", c)
	}
	s.drawn = c[0]
	return nil
}

// WindowsPerEpoch is the number of rows in one pass over the set.
func (s *Sampler) WindowsPerEpoch() int64 { return s.rows.Rows }

// Epoch is the number of rows drawn by the number in one pass.
func (s *Sampler) Epoch() float64 { return float64(s.drawn) / float64(s.rows.Rows) }

// Packing says how the set was packed.
func (s *Sampler) Packing() Packing { return s.rows.Packing }

// Windows reads a set in a fixed order, every conversation once, for evaluation as with corpus.Windows. It has no
// state; any row can be read at any time, also from several goroutines.
type Windows struct{ rows *rows }

// NewWindows packs a set into rows of T tokens.
func NewWindows(set *Set, T int) (*Windows, error) {
	r, err := newRows(set, T, 0)
	if err != nil {
		return nil, fmt.Errorf("chat windows: %w", err)
	}
	return &Windows{r}, nil
}

// Count is the number of rows.
func (w *Windows) Count() int64 { return w.rows.Rows }

// Targets is the number of targets that count in all rows.
func (w *Windows) Targets() int64 { return w.rows.Targets }

// Packing says how the set was packed.
func (w *Windows) Packing() Packing { return w.rows.Packing }

// Read fills tokens, targets and docStart, each (B, T), with the B = len(tokens)/T rows from number first on, as
// Sampler.Next does. Behind the last row nothing counts.
func (w *Windows) Read(first int64, tokens, targets, docStart []int32) error {
	if err := w.rows.checkBatch(tokens, targets, docStart); err != nil {
		return fmt.Errorf("chat windows: %w", err)
	}
	if first < 0 {
		return fmt.Errorf("chat windows: row %d, want one from 0 on", first)
	}
	T := w.rows.T
	for b := range len(tokens) / T {
		lo, hi := b*T, (b+1)*T
		if row := first + int64(b); row < w.rows.Rows {
			w.rows.read(row, tokens[lo:hi], targets[lo:hi], docStart[lo:hi])
		} else {
			pad(0, tokens[lo:hi], targets[lo:hi], docStart[lo:hi])
		}
	}
	return nil
}
