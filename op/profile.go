package op

import (
	"cmp"
	"slices"
	"time"
)

// Profile gathers time and cost per label.
type Profile struct {
	rows map[string]*ProfileRow
	// Overhead is subtracted from each call: the cost of an empty submit on a
	// device, measured by the caller; zero on a CPU.
	Overhead time.Duration
}

// ProfileRow is the sum over the calls of one label.
type ProfileRow struct {
	Label string
	Calls int
	Time  time.Duration
	Cost
}

func (p *Profile) add(label string, c Cost, d time.Duration) {
	if p.rows == nil {
		p.rows = map[string]*ProfileRow{}
	}
	row := p.rows[label]
	if row == nil {
		row = &ProfileRow{Label: label}
		p.rows[label] = row
	}
	row.Calls++
	row.Time += max(d-p.Overhead, 0)
	row.FLOPs += c.FLOPs
	row.Bytes += c.Bytes
}

// Rows returns the rows in descending time.
func (p *Profile) Rows() []ProfileRow {
	rows := make([]ProfileRow, 0, len(p.rows))
	for _, r := range p.rows {
		rows = append(rows, *r)
	}
	slices.SortFunc(rows, func(a, b ProfileRow) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Label, b.Label))
	})
	return rows
}

// Peak is what a device reaches on the simplest work, measured, to compare
// everything else with.
type Peak struct {
	FLOPS          float64       // per second, a fused multiply-add counted as two
	BytesPerSec    float64       // read and written, of a large copy or triad
	SubmitOverhead time.Duration // of an empty call with its wait
}

// Measurer is what a backend may add to measure its own Peak. Measuring takes
// about a second.
type Measurer interface {
	MeasurePeak() (Peak, error)
}
