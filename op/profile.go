package op

import (
	"cmp"
	"slices"
	"time"
)

// Profile gathers time and cost per label.
type Profile struct {
	rows    map[string]*ProfileRow
	kernels map[string]*ProfileRow
	timer   Timer  // while the device's own clock is used
	spans   []span // the calls since then
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

// Timer is what a backend may add whose device notes when each kernel ran.
type Timer interface {
	// StartTiming notes the times of the kernels from now on; false when this
	// device cannot.
	StartTiming() (bool, error)
	// Started is the number of kernels since StartTiming.
	Started() int
	// StopTiming waits and returns every kernel's time, in order.
	StopTiming() ([]KernelTime, error)
}

// KernelTime is how long one kernel ran on the device.
type KernelTime struct {
	Kernel string
	Time   time.Duration
}

// span is a call and the kernels that it started.
type span struct {
	label       string
	cost        Cost
	first, last int
}

// resolve spreads the kernels' times over the calls that started them.
func (p *Profile) resolve(times []KernelTime) {
	for _, s := range p.spans {
		var sum time.Duration
		for _, k := range times[min(s.first, len(times)):min(s.last, len(times))] {
			sum += k.Time
		}
		addRow(&p.rows, s.label, s.cost, sum)
	}
	for _, k := range times {
		addRow(&p.kernels, k.Kernel, Cost{}, k.Time)
	}
	p.spans, p.timer = nil, nil
}

// Kernels returns the time of each kernel in descending order: more detail than
// Rows, without costs. It is empty unless the device's own clock was used.
func (p *Profile) Kernels() []ProfileRow { return sortedRows(p.kernels) }

func (p *Profile) add(label string, c Cost, d time.Duration) {
	addRow(&p.rows, label, c, max(d-p.Overhead, 0))
}

func addRow(rows *map[string]*ProfileRow, label string, c Cost, d time.Duration) {
	if *rows == nil {
		*rows = map[string]*ProfileRow{}
	}
	row := (*rows)[label]
	if row == nil {
		row = &ProfileRow{Label: label}
		(*rows)[label] = row
	}
	row.Calls++
	row.Time += d
	row.FLOPs += c.FLOPs
	row.Bytes += c.Bytes
}

// Rows returns the rows in descending time.
func (p *Profile) Rows() []ProfileRow { return sortedRows(p.rows) }

func sortedRows(all map[string]*ProfileRow) []ProfileRow {
	rows := make([]ProfileRow, 0, len(all))
	for _, r := range all {
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
	MatrixFLOPS    float64       // of a large product on matrix units, 16-bit inputs; 0 without them
	BytesPerSec    float64       // read and written, of a large copy or triad
	SubmitOverhead time.Duration // of an empty call with its wait
	Copies         []CopyRate    // how fast smaller ones are, by size
}

// Measurer is what a backend may add to measure its own Peak. Measuring takes
// about a second.
type Measurer interface {
	MeasurePeak() (Peak, error)
}
