package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tezgah/bench"
	"tezgah/model"
	"tezgah/op"
)

type profileFlags struct {
	deviceFlags
	preset   string
	vocab    int
	batch    int
	context  int
	steps    int
	mixed    bool
	moments8 bool
	json     bool
}

func newProfile() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Show where the time of a training step goes, kernel by kernel",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run() },
	}
	f.deviceFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.preset, "preset", "mini", "model to profile")
	fl.IntVar(&f.vocab, "vocab-size", 0, "0: the preset's")
	fl.IntVar(&f.batch, "batch", 4, "rows of a step")
	fl.IntVar(&f.context, "context", 512, "tokens of a row")
	fl.IntVar(&f.steps, "steps", 3, "steps to average")
	fl.BoolVar(&f.mixed, "mixed", false, "16-bit weights where the device has them")
	fl.BoolVar(&f.moments8, "moments8", false, "8-bit optimizer moments")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

// profileRow is one kernel's part of a step.
type profileRow struct {
	Kernel        string  `json:"kernel"`
	Calls         float64 `json:"calls_per_step"`
	Ms            float64 `json:"ms_per_step"`
	Share         float64 `json:"share_of_step"`
	GBPerSec      float64 `json:"gb_per_s"`
	GFLOPS        float64 `json:"gflops"`
	ShareOfPeak   float64 `json:"share_of_peak"` // of whichever peak is nearer
	BoundByMemory bool    `json:"bound_by_memory"`
}

func (f *profileFlags) run() error {
	if err := f.check(); err != nil {
		return err
	}
	if f.batch < 1 || f.context < 1 || f.steps < 1 {
		return usagef("--batch, --context and --steps are %d, %d and %d, want positive numbers", f.batch, f.context, f.steps)
	}
	cfg, err := model.Preset(f.preset)
	if err != nil {
		return usageError{err}
	}
	if f.vocab > 0 {
		cfg.VocabSize = f.vocab
	}
	cfg.Context = f.context
	r, err := f.runner()
	if err != nil {
		return err
	}
	defer r.Backend().Close()
	m, ok := r.Backend().(op.Measurer)
	if !ok {
		return fmt.Errorf("profile: backend %s cannot measure its peak", r.Backend().Name())
	}
	peak, err := m.MeasurePeak()
	if err != nil {
		return err
	}
	opt := bench.StepOptions{Batch: f.batch, Context: f.context, Mixed: f.mixed, Moments8: f.moments8}
	prof, err := bench.ProfileStep(r, cfg, opt, f.steps, peak.SubmitOverhead)
	if err != nil {
		return err
	}
	rows, total := profileRows(prof, peak, f.steps)
	_, peakBytes := r.Backend().MemoryBytes()
	if f.json {
		return printJSON(map[string]any{
			"device": r.Backend().Device(), "preset": f.preset, "method": profileMethod, "peak_gflops": peak.FLOPS / 1e9,
			"peak_gb_per_s": peak.BytesPerSec / 1e9, "submit_us": float64(peak.SubmitOverhead) / 1e3, "ms_per_step": total,
			"tokens_per_second": float64(f.batch*f.context) / total * 1e3, "memory_bytes": peakBytes, "kernels": rows,
		})
	}
	fmt.Printf("%s\npeak %.0f GFLOP/s, %.1f GB/s; memory %s\n%s (%.1f µs)\n\n", r.Backend().Device(), peak.FLOPS/1e9, peak.BytesPerSec/1e9,
		formatBytes(peakBytes), profileMethod, float64(peak.SubmitOverhead)/1e3)
	fmt.Printf("%-24s %7s %10s %7s %10s %10s %8s\n", "kernel", "calls", "ms", "share", "GB/s", "GFLOP/s", "of peak")
	for _, p := range rows {
		fmt.Printf("%-24s %7.0f %10.3f %6.1f%% %10.1f %10.1f %7.1f%%\n", p.Kernel, p.Calls, p.Ms, 100*p.Share, p.GBPerSec, p.GFLOPS, 100*p.ShareOfPeak)
	}
	fmt.Printf("\n%.2f ms a step in kernels, %s tokens/s\n", total, count(float64(f.batch*f.context)/total*1e3))
	return nil
}

// profileMethod is said with every profile.
const profileMethod = "each call timed alone: start, wait, less the cost of an empty call"

func profileRows(prof *op.Profile, peak op.Peak, steps int) (rows []profileRow, totalMs float64) {
	n := float64(steps)
	var total time.Duration
	for _, r := range prof.Rows() {
		total += r.Time
	}
	for _, r := range prof.Rows() {
		s := r.Time.Seconds()
		row := profileRow{Kernel: r.Label, Calls: float64(r.Calls) / n, Ms: s * 1e3 / n, Share: float64(r.Time) / float64(total)}
		if r.Time > time.Duration(r.Calls)*time.Microsecond { // below that a rate would be noise
			compute, memory := float64(r.FLOPs)/s/peak.FLOPS, float64(r.Bytes)/s/peak.BytesPerSec
			row.GBPerSec, row.GFLOPS = float64(r.Bytes)/s/1e9, float64(r.FLOPs)/s/1e9
			row.ShareOfPeak, row.BoundByMemory = max(compute, memory), memory > compute
		}
		rows = append(rows, row)
	}
	return rows, total.Seconds() * 1e3 / n
}
