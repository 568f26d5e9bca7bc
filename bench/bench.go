// Package bench measures a backend: products in a model's shapes, the
// optimizer, whole training steps and decoding, each beside the peak that the
// same device reaches in the same run.
//
// The folder also keeps dated results as JSON and the programs that measure
// peers. Open this file first, then products.go and step.go.
package bench

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"tezgah/op"
	"tezgah/tensor"
)

// Result is one measurement. Share compares with the peak of the same run.
type Result struct {
	Name      string  `json:"name"`
	MedianMs  float64 `json:"median_ms"`
	SpreadMs  float64 `json:"spread_ms"` // third quartile minus first
	Reps      int     `json:"reps"`
	GFLOPS    float64 `json:"gflops,omitempty"`
	GBPerSec  float64 `json:"gb_per_s,omitempty"`
	Share     float64 `json:"share_of_peak"`           // of the matrix units' peak with Rounds
	OfCopy    float64 `json:"share_of_copy,omitempty"` // of what a copy of as many bytes reaches, where bytes count
	Rounds    string  `json:"rounds,omitempty"`        // what products round their inputs to: BF16 or F16
	TokPerSec float64 `json:"tokens_per_second,omitempty"`
}

// Report is a run of measurements on one device.
type Report struct {
	Device       string     `json:"device"`
	Go           string     `json:"go"`
	Version      string     `json:"version"`
	PeakGFLOPS   float64    `json:"peak_gflops"`
	MatrixGFLOPS float64    `json:"matrix_gflops,omitempty"` // of a large product on matrix units
	PeakGBPerSec float64    `json:"peak_gb_per_s"`
	Copies       []CopyRate `json:"copies"` // of all sizes, the large copy last
	SubmitMicros float64    `json:"submit_us"`
	Results      []Result   `json:"results"`
}

// CopyRate is op.CopyRate in the report's units.
type CopyRate struct {
	Bytes    int64   `json:"bytes"` // read and written
	GBPerSec float64 `json:"gb_per_s"`
}

// Copies are the copies of a peak, for reports.
func Copies(p op.Peak) (list []CopyRate) {
	for _, c := range p.Copies {
		list = append(list, CopyRate{c.Bytes, c.BytesPerSec / 1e9})
	}
	return list
}

// Options say how long to measure.
type Options struct {
	Version string
	Each    time.Duration // time for one measurement; 0: one second
	Report  func(Result)  // called as results come; may be nil
}

// Bencher measures on one runner.
type Bencher struct {
	r    *op.Runner
	opt  Options
	peak op.Peak
	out  Report
}

// New measures the device's peak and returns a Bencher.
func New(r *op.Runner, opt Options) (*Bencher, error) {
	if opt.Each == 0 {
		opt.Each = time.Second
	}
	m, ok := r.Backend().(op.Measurer)
	if !ok {
		return nil, fmt.Errorf("bench: backend %s cannot measure its peak", r.Backend().Name())
	}
	peak, err := m.MeasurePeak()
	if err != nil {
		return nil, fmt.Errorf("bench: measuring the peak: %w", err)
	}
	b := &Bencher{r: r, opt: opt, peak: peak}
	b.out = Report{
		Device: r.Backend().Device(), Go: runtime.Version(), Version: opt.Version,
		PeakGFLOPS: peak.FLOPS / 1e9, MatrixGFLOPS: peak.MatrixFLOPS / 1e9, PeakGBPerSec: peak.BytesPerSec / 1e9, Copies: Copies(peak), SubmitMicros: float64(peak.SubmitOverhead) / 1e3,
	}
	return b, nil
}

// Report returns what was measured so far.
func (b *Bencher) Report() Report { return b.out }

// task is something to measure.
type task struct {
	name   string
	cost   op.Cost      // of one call; zero where neither arithmetic nor traffic is compared
	tokens int          // of one call; 0 where they are not counted
	calls  int          // between two waits; 0 means 1
	rounds tensor.DType // what products round to meanwhile; F32 for exact inputs
	run    func()       // one call; its error stays with the runner
}

// measure times calls until the time is up, at least five times, and records the
// median of one.
func (b *Bencher) measure(t task) error {
	calls := max(1, t.calls)
	round := func() error {
		for range calls {
			t.run()
		}
		if err := b.r.Sync(); err != nil {
			return fmt.Errorf("bench %s: %w", t.name, err)
		}
		return nil
	}
	if err := round(); err != nil { // kernels are built and memory is touched here
		return err
	}
	var times []float64
	for begin := time.Now(); len(times) < 5 || time.Since(begin) < b.opt.Each; {
		start := time.Now()
		if err := round(); err != nil {
			return err
		}
		times = append(times, max(1e-9, (time.Since(start)-b.peak.SubmitOverhead).Seconds()/float64(calls)))
	}
	res := b.result(t, times)
	b.out.Results = append(b.out.Results, res)
	if b.opt.Report != nil {
		b.opt.Report(res)
	}
	return nil
}

// result is what the times of a task, in seconds, come to.
func (b *Bencher) result(t task, times []float64) Result {
	slices.Sort(times)
	median := times[len(times)/2]
	res := Result{Name: t.name, MedianMs: median * 1e3, SpreadMs: (times[len(times)*3/4] - times[len(times)/4]) * 1e3, Reps: len(times)}
	if t.rounds != tensor.F32 {
		res.Rounds = t.rounds.String()
	}
	if t.cost.FLOPs > 0 {
		res.GFLOPS = float64(t.cost.FLOPs) / median / 1e9
		res.Share = float64(t.cost.FLOPs) / median / productPeak(b.peak, t.rounds)
	} else if t.cost.Bytes > 0 {
		res.GBPerSec = float64(t.cost.Bytes) / median / 1e9
		res.Share = float64(t.cost.Bytes) / median / b.peak.BytesPerSec
		res.OfCopy = float64(t.cost.Bytes) / median / b.peak.CopyRate(float64(t.cost.Bytes))
	}
	if t.tokens > 0 {
		res.TokPerSec = float64(t.tokens) / median
	}
	return res
}

// productPeak is the arithmetic, in FLOPs per second, that products are held
// against: that of the matrix units where they round their inputs.
func productPeak(p op.Peak, rounds tensor.DType) float64 {
	if rounds != tensor.F32 && p.MatrixFLOPS > 0 {
		return p.MatrixFLOPS
	}
	return p.FLOPS
}

// random allocates a float32 tensor of normal random numbers.
func (b *Bencher) random(label string, seed uint64, dims ...int) (op.Tensor, error) {
	return b.randomOf(tensor.F32, label, seed, dims...)
}

// randomOf is random for elements of type F32, F16 or BF16.
func (b *Bencher) randomOf(typ tensor.DType, label string, seed uint64, dims ...int) (op.Tensor, error) {
	t := op.Of(nil, 0, dims...)
	buf, err := b.r.Backend().Alloc(label, typ, t.Len())
	if err != nil {
		return t, err
	}
	t.Buf = buf
	x := make([]float32, min(t.Len(), 1<<16))
	tensor.NewRNG(seed, 77).Normal(x, 0, 1)
	b.r.Write(t, repeated(narrowed(x, typ), t.Len()*typ.Size()))
	return t, b.r.Err()
}

// narrowed is x as elements of type t, little-endian.
func narrowed(x []float32, t tensor.DType) []byte {
	to := map[tensor.DType]func(float32) uint16{tensor.F16: tensor.ToF16, tensor.BF16: tensor.ToBF16}[t]
	if to == nil {
		return tensor.Bytes(x)
	}
	y := make([]uint16, len(x))
	for i, v := range x {
		y[i] = to(v)
	}
	return tensor.Bytes(y)
}

// repeated is p again and again, n bytes in all.
func repeated(p []byte, n int) []byte {
	all := make([]byte, n)
	for done := copy(all, p); done > 0 && done < n; done *= 2 {
		copy(all[done:], all[:done])
	}
	return all
}
