package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tezgah/op"
	"tezgah/op/optest"
)

func newSelftest() *cobra.Command {
	var f selftestFlags
	cmd := &cobra.Command{
		Use:   "selftest",
		Short: "Check every operation of this device against the float64 reference",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context()) },
	}
	f.deviceFlags.register(cmd)
	cmd.Flags().BoolVar(&f.large, "large", false, "large cases too")
	cmd.Flags().BoolVar(&f.verbose, "verbose", false, "a line for every case")
	cmd.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return cmd
}

type selftestFlags struct {
	deviceFlags
	large, verbose, json bool
}

// selftestRow sums up the cases of one operation.
type selftestRow struct {
	Op      string   `json:"op"`
	Passed  int      `json:"passed"`
	Failed  int      `json:"failed"`
	Skipped int      `json:"skipped"`
	Worst   float64  `json:"worst_share_of_bound"` // largest error/bound of the cases that passed
	Seconds float64  `json:"seconds"`
	Errors  []string `json:"errors,omitempty"`
}

func (f *selftestFlags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return err
	}
	r, err := f.runner()
	if err != nil {
		return err
	}
	defer r.Backend().Close()
	begin := time.Now()
	rows, err := f.cases(ctx, r)
	if err != nil {
		return err
	}
	failed := 0
	for _, row := range rows {
		failed += row.Failed
	}
	device := r.Backend().Device()
	if f.json {
		err = printJSON(map[string]any{"device": device, "failed": failed, "ops": rows, "seconds": time.Since(begin).Seconds()})
	} else {
		printSelftest(device, rows, time.Since(begin))
	}
	if failed > 0 {
		return fmt.Errorf("%d cases failed on %s: its driver computes wrong results; update it, or use --device cpu", failed, device)
	}
	return err
}

// cases runs the suite and groups the results by operation, in order.
func (f *selftestFlags) cases(ctx context.Context, r *op.Runner) ([]*selftestRow, error) {
	status := newStatusLine(f.json)
	defer status.clear()
	var rows []*selftestRow
	byOp := map[string]*selftestRow{}
	all := optest.Cases()
	for i, c := range all {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.Large && !f.large {
			continue
		}
		status.set("%d/%d %s", i+1, len(all), c.Name)
		row := byOp[c.Op]
		if row == nil {
			row = &selftestRow{Op: c.Op}
			byOp[c.Op] = row
			rows = append(rows, row)
		}
		begin := time.Now()
		res := c.Run(r)
		row.Seconds += time.Since(begin).Seconds()
		row.add(c, res)
		if f.verbose {
			status.print("%-60s %s", c.Name, verdict(res))
		}
	}
	if len(rows) == 0 {
		return nil, errors.New("selftest: there are no cases")
	}
	return rows, nil
}

func (s *selftestRow) add(c optest.Case, res optest.Result) {
	switch {
	case res.Skip != "":
		s.Skipped++
	case res.OK():
		s.Passed++
		if res.Bound > 0 {
			s.Worst = max(s.Worst, res.MaxErr/res.Bound)
		}
	default:
		s.Failed++
		s.Errors = append(s.Errors, c.Name+": "+res.String())
	}
}

func verdict(res optest.Result) string {
	switch {
	case res.Skip != "":
		return "skipped: " + res.Skip
	case res.OK():
		return fmt.Sprintf("ok, error %.2g of %.2g", res.MaxErr, res.Bound)
	}
	return "FAILED: " + res.String()
}

func printSelftest(device string, rows []*selftestRow, took time.Duration) {
	fmt.Printf("%s\n\n%-24s %7s %7s %8s %12s %8s\n", device, "operation", "passed", "failed", "skipped", "error/bound", "seconds")
	for _, r := range rows {
		fmt.Printf("%-24s %7d %7d %8d %12.3f %8.2f\n", r.Op, r.Passed, r.Failed, r.Skipped, r.Worst, r.Seconds)
	}
	for _, r := range rows {
		for _, e := range r.Errors {
			fmt.Println("FAILED " + e)
		}
	}
	fmt.Printf("\n%s\n", shortTime(took))
}
