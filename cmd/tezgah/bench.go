package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tezgah/bench"
	"tezgah/model"
)

type benchFlags struct {
	deviceFlags
	stepFlags
	only string
	each time.Duration
	json bool
}

func newBench() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this device: products, optimizer, training step, decoding",
		Long: "Measures the device's peak arithmetic and bandwidth, then products in the preset's shapes, AdamW,\n" +
			"whole training steps and decoding, each as a share of that peak. With --precision bf16 or f16\n" +
			"products and steps run on matrix units, with inputs of 16 bits as in training, and are held\n" +
			"against a large product on them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run() },
	}
	f.deviceFlags.register(cmd)
	f.stepFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.only, "only", "", "gemm, adamw, step or decode (empty: all)")
	fl.DurationVar(&f.each, "each", time.Second, "time for each measurement")
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

func (f *benchFlags) run() error {
	if err := f.check(); err != nil {
		return err
	}
	if f.only != "" {
		if err := checkWord("only", f.only, []string{"gemm", "adamw", "step", "decode"}); err != nil {
			return err
		}
	}
	cfg, step, err := f.resolve()
	if err != nil {
		return err
	}
	r, err := f.runner()
	if err != nil {
		return err
	}
	defer r.Backend().Close()
	opt := bench.Options{Version: version(), Each: f.each}
	if !f.json {
		opt.Report = printResult
	}
	b, err := bench.New(r, opt)
	if err != nil {
		return err
	}
	if !f.json {
		rep := b.Report()
		fmt.Printf("%s\npeak %.0f GFLOP/s%s, %.1f GB/s, empty call %.1f µs\n%s\n\n", rep.Device, rep.PeakGFLOPS, matrixPeak(rep.MatrixGFLOPS), rep.PeakGBPerSec, rep.SubmitMicros, copyLine(rep.Copies))
		fmt.Printf("%-46s %10s %8s %15s %7s %9s\n", "", "median ms", "spread", "", "of peak", "of a copy")
	}
	if err := f.measure(b, cfg, step); err != nil {
		return err
	}
	if f.json {
		return printJSON(b.Report())
	}
	return nil
}

func (f *benchFlags) measure(b *bench.Bencher, cfg model.Config, step bench.StepOptions) error {
	parts := []struct {
		name string
		run  func() error
	}{
		{"gemm", func() error { return b.MatMuls(cfg, step) }},
		{"adamw", func() error { return b.AdamW(min(cfg.NumParams(), 32<<20)) }},
		{"step", func() error { return b.Step(f.preset, cfg, step) }},
		{"decode", func() error { return b.Decode(f.preset, cfg, min(64, f.context), step.Mixed) }},
	}
	for _, p := range parts {
		if f.only == "" || f.only == p.name {
			if err := p.run(); err != nil {
				return err
			}
		}
	}
	return nil
}

func printResult(r bench.Result) {
	rate := fmt.Sprintf("%.1f GB/s", r.GBPerSec)
	switch {
	case r.GFLOPS >= 1e3:
		rate = fmt.Sprintf("%.1f TFLOP/s", r.GFLOPS/1e3)
	case r.GFLOPS > 0:
		rate = fmt.Sprintf("%.1f GFLOP/s", r.GFLOPS)
	}
	fmt.Printf("%-46s %10.3f %8.3f %15s %6.1f%% %9s", r.Name, r.MedianMs, r.SpreadMs, rate, 100*r.Share, ofCopy(r.OfCopy))
	if r.TokPerSec > 0 {
		fmt.Printf("  %s tokens/s", count(r.TokPerSec))
	}
	fmt.Println()
}

// matrixPeak adds the peak of matrix units to a line, where there are any.
func matrixPeak(gflops float64) string {
	if gflops == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.0f on matrix units)", gflops)
}

// ofCopy is a share of what a copy of as many bytes reaches, "" for what is not bound
// by memory.
func ofCopy(share float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// copyLine says how fast copies of every measured size are.
func copyLine(list []bench.CopyRate) string {
	var b strings.Builder
	for i, c := range list {
		sep := ", "
		if i == 0 {
			sep = "copies moving "
		}
		fmt.Fprintf(&b, "%s%s %.1f", sep, formatBytes(c.Bytes), c.GBPerSec)
	}
	return b.String() + " GB/s"
}
