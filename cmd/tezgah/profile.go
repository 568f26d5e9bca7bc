package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tezgah/bench"
	"tezgah/op"
)

type profileFlags struct {
	deviceFlags
	stepFlags
	steps int
	json  bool
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
	f.stepFlags.register(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.steps, "steps", 3, "steps to average")
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
	ShareOfCopy   float64 `json:"share_of_copy"` // of as many bytes, where bound by memory
}

func (f *profileFlags) run() error {
	if err := f.check(); err != nil {
		return err
	}
	if f.steps < 1 {
		return usagef("--steps is %d, want a positive number", f.steps)
	}
	cfg, opt, err := f.resolve()
	if err != nil {
		return err
	}
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
	prof, err := bench.ProfileStep(r, cfg, opt, f.steps, peak.SubmitOverhead)
	if err != nil {
		return err
	}
	rows, total := profileRows(prof, peak)
	_, peakBytes := r.Backend().MemoryBytes()
	if f.json {
		return printJSON(map[string]any{
			"device": r.Backend().Device(), "preset": f.preset, "method": prof.Method(), "precision": f.precision, "undisturbed_ms": ms(prof.Step), "host_ms": ms(prof.Host), "peak_gflops": peak.FLOPS / 1e9,
			"peak_gb_per_s": peak.BytesPerSec / 1e9, "copies": bench.Copies(peak), "submit_us": float64(peak.SubmitOverhead) / 1e3, "ms_per_step": total,
			"tokens_per_second": float64(f.batch*f.context) / prof.Step.Seconds(), "memory_bytes": peakBytes, "kernels": rows, "dispatches": dispatchRows(prof.Profile, f.steps),
		})
	}
	fmt.Printf("%s\npeak %.0f GFLOP/s%s, %.1f GB/s; memory %s\n%s\n%s (%.1f µs)\n\n", r.Backend().Device(), peak.FLOPS/1e9, matrixPeak(peak.MatrixFLOPS/1e9), peak.BytesPerSec/1e9,
		formatBytes(peakBytes), copyLine(bench.Copies(peak)), prof.Method(), float64(peak.SubmitOverhead)/1e3)
	fmt.Printf("%-24s %7s %10s %7s %10s %10s %8s %9s\n", "kernel", "calls", "ms", "share", "GB/s", "GFLOP/s", "of peak", "of a copy")
	for _, p := range rows {
		fmt.Printf("%-24s %7.0f %10.3f %6.1f%% %10.1f %10.1f %7.1f%% %9s\n", p.Kernel, p.Calls, p.Ms, 100*p.Share, p.GBPerSec, p.GFLOPS, 100*p.ShareOfPeak, ofCopy(p.ShareOfCopy))
	}
	if list := dispatchRows(prof.Profile, f.steps); len(list) > 0 {
		fmt.Printf("\n%-32s %7s %10s\n", "dispatches of", "a step", "ms")
		for _, d := range list {
			fmt.Printf("%-32s %7.0f %10.3f\n", d.Kernel, d.Count, d.Ms)
		}
	}
	fmt.Printf("\n%.2f ms a step in kernels; an undisturbed step takes %.2f ms, of which the host records for %.2f: %s tokens/s\n",
		total, ms(prof.Step), ms(prof.Host), count(float64(f.batch*f.context)/prof.Step.Seconds()))
	return nil
}

// ms is a duration in milliseconds.
func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// dispatchRow is one kernel of the device; an operation may start several.
type dispatchRow struct {
	Kernel string  `json:"kernel"`
	Count  float64 `json:"count_per_step"`
	Ms     float64 `json:"ms_per_step"`
}

func dispatchRows(prof *op.Profile, steps int) (rows []dispatchRow) {
	for _, k := range prof.Kernels() {
		rows = append(rows, dispatchRow{k.Label, float64(k.Calls) / float64(steps), ms(k.Time) / float64(steps)})
	}
	return rows
}

func profileRows(prof bench.StepProfile, peak op.Peak) (rows []profileRow, totalMs float64) {
	list, totalMs := prof.OpRows(peak)
	for _, r := range list {
		rows = append(rows, profileRow{r.Name, r.Calls, r.Ms, r.Share, r.GBPerSec, r.GFLOPS, r.OfPeak, r.ByMemory, r.OfCopy})
	}
	return rows, totalMs
}
