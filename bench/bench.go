// Package bench measures a backend: products in a model's shapes, the
// optimizer, whole training steps and decoding, each beside the peak that the
// same device reaches in the same run.
//
// The folder also keeps dated results as JSON and the programs that measure
// peers. Open this file first, then step.go.
package bench

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"tezgah/model"
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
	Share     float64 `json:"share_of_peak"`
	TokPerSec float64 `json:"tokens_per_second,omitempty"`
}

// Report is a run of measurements on one device.
type Report struct {
	Device       string   `json:"device"`
	Go           string   `json:"go"`
	Version      string   `json:"version"`
	PeakGFLOPS   float64  `json:"peak_gflops"`
	MatrixGFLOPS float64  `json:"matrix_gflops,omitempty"` // of a large product on matrix units
	PeakGBPerSec float64  `json:"peak_gb_per_s"`
	SubmitMicros float64  `json:"submit_us"`
	Results      []Result `json:"results"`
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
		PeakGFLOPS: peak.FLOPS / 1e9, MatrixGFLOPS: peak.MatrixFLOPS / 1e9, PeakGBPerSec: peak.BytesPerSec / 1e9, SubmitMicros: float64(peak.SubmitOverhead) / 1e3,
	}
	return b, nil
}

// Report returns what was measured so far.
func (b *Bencher) Report() Report { return b.out }

// measure times f until the time is up, at least five times, and records the
// median. cost may be zero where neither arithmetic nor traffic is compared.
func (b *Bencher) measure(name string, cost op.Cost, tokens int, f func()) error {
	f() // kernels are built and memory is touched here
	if err := b.r.Sync(); err != nil {
		return fmt.Errorf("bench %s: %w", name, err)
	}
	var times []float64
	for begin := time.Now(); len(times) < 5 || time.Since(begin) < b.opt.Each; {
		t := time.Now()
		f()
		if err := b.r.Sync(); err != nil {
			return fmt.Errorf("bench %s: %w", name, err)
		}
		times = append(times, max(1e-9, (time.Since(t)-b.peak.SubmitOverhead).Seconds()))
	}
	slices.Sort(times)
	median := times[len(times)/2]
	res := Result{Name: name, MedianMs: median * 1e3, SpreadMs: (times[len(times)*3/4] - times[len(times)/4]) * 1e3, Reps: len(times)}
	if cost.FLOPs > 0 {
		res.GFLOPS = float64(cost.FLOPs) / median / 1e9
		res.Share = float64(cost.FLOPs) / median / b.peak.FLOPS
	} else if cost.Bytes > 0 {
		res.GBPerSec = float64(cost.Bytes) / median / 1e9
		res.Share = float64(cost.Bytes) / median / b.peak.BytesPerSec
	}
	if tokens > 0 {
		res.TokPerSec = float64(tokens) / median
	}
	b.out.Results = append(b.out.Results, res)
	if b.opt.Report != nil {
		b.opt.Report(res)
	}
	return nil
}

// random allocates a tensor of small random numbers.
func (b *Bencher) random(label string, seed uint64, dims ...int) (op.Tensor, error) {
	t := op.Of(nil, 0, dims...)
	buf, err := b.r.Backend().Alloc(label, tensor.F32, t.Len())
	if err != nil {
		return t, err
	}
	t.Buf = buf
	x := make([]float32, t.Len())
	tensor.NewRNG(seed, 77).Normal(x[:min(len(x), 1<<16)], 0, 1)
	for n := 1 << 16; n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
	op.WriteSlice(b.r, t, x)
	return t, b.r.Err()
}

// MatMul measures the forward product and both backward products of one
// weight (k, n) with m rows.
func (b *Bencher) MatMul(name string, m, k, n int) error {
	x, err := b.random("x", 1, m, k)
	if err != nil {
		return err
	}
	defer b.r.Backend().Free(x.Buf)
	w, err := b.random("w", 2, k, n)
	if err != nil {
		return err
	}
	defer b.r.Backend().Free(w.Buf)
	y, err := b.random("y", 3, m, n)
	if err != nil {
		return err
	}
	defer b.r.Backend().Free(y.Buf)
	forms := []op.MatMul{
		{A: x, B: w, C: y},
		{A: y, B: w, C: x, TransB: true},
		{A: x, B: y, C: w, TransA: true},
	}
	cost := op.Cost{FLOPs: 2 * int64(m) * int64(k) * int64(n)}
	for _, a := range forms {
		label := fmt.Sprintf("%s %s M %d K %d N %d", a.Label(), name, m, k, n)
		if err := b.measure(label, cost, 0, func() { b.r.MatMul(a) }); err != nil {
			return err
		}
	}
	return nil
}

// MatMuls measures every distinct weight shape of a model with rows rows.
func (b *Bencher) MatMuls(cfg model.Config, rows int) error {
	c := cfg.WithDefaults()
	shapes := []struct {
		name string
		k, n int
	}{
		{"wq", c.DModel, c.Heads * c.HeadDim},
		{"wk", c.DModel, c.KVHeads * c.HeadDim},
		{"w_gate", c.DModel, c.FFN},
		{"w_down", c.FFN, c.DModel},
		{"lm_head", c.DModel, c.VocabSize},
	}
	for _, s := range shapes {
		if err := b.MatMul(s.name, rows, s.k, s.n); err != nil {
			return err
		}
	}
	return nil
}
