package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/runlog"
	"tezgah/runlog/tbtest"
)

// eventsMatch compares the event files of a run, read as TensorBoard does,
// with its log: every value of every step, once and in order.
func eventsMatch(t *testing.T, dir string) {
	t.Helper()
	want := map[string][]tbtest.Point{}
	for rec, err := range runlog.Read(filepath.Join(dir, runlog.FileName)) {
		if err != nil {
			t.Fatal(err)
		}
		s := rec.Step
		if s == nil {
			continue
		}
		values := map[string]float64{"loss/train": s.Loss, "lr": s.LR, "grad/norm": s.GradNorm, "grad/clip": s.Clip,
			"grad/nonfinite": float64(s.NonFinite), "tokens": float64(s.Tokens), "tok_per_s": s.TokPerSec}
		if s.LossScale > 0 {
			values["loss_scale"] = s.LossScale
		}
		if s.ValLoss != nil {
			values["loss/val"] = *s.ValLoss
		}
		for tag, v := range values {
			want[tag] = append(want[tag], tbtest.Point{Step: s.Step, Value: float32(v)})
		}
	}
	got := tbtest.Scalars(t, dir)
	if len(got) != len(want) {
		t.Fatalf("%s: event files have %d tags, the log %d", dir, len(got), len(want))
	}
	for tag, points := range want {
		if len(got[tag]) != len(points) {
			t.Fatalf("%s: %s has %d values, the log %d steps", dir, tag, len(got[tag]), len(points))
		}
		for i, p := range points {
			if g := got[tag][i]; g.Step != p.Step || math.Float32bits(g.Value) != math.Float32bits(p.Value) {
				t.Fatalf("%s: value %d of %s is %+v, the log has %+v", dir, i, tag, g, p)
			}
		}
	}
}

// runPart trains until step stop and cancels there; 0 runs to the end.
func runPart(t *testing.T, open func(Options) (*Trainer, error), dir string, stop int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tr, err := open(Options{Dir: dir, Open: openCPU, Observer: Observer{Step: func(s runlog.Step, _ Pace) {
		if s.Step == stop {
			cancel()
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if _, err := tr.Run(ctx); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
}

// TestEventsOfResumedRuns resumes twice, takes an unsaved tail again, and
// switches the event files off and on in between.
func TestEventsOfResumedRuns(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.MaxSteps = 20
	for _, start := range []bool{true, false} {
		run := filepath.Join(dir, map[bool]string{true: "with", false: "without"}[start])
		begin := func(o Options) (*Trainer, error) {
			c := cfg
			c.NoTensorBoard = !start
			return New(c, o)
		}
		resume := func(tensorBoard bool) func(Options) (*Trainer, error) {
			return func(o Options) (*Trainer, error) {
				return Resume(o, func(c *Config) { c.NoTensorBoard = !tensorBoard })
			}
		}
		runPart(t, begin, run, 8)
		if got := runlog.HasTensorBoard(run); got != start {
			t.Fatalf("event files there: %v, want %v", got, start)
		}
		runPart(t, resume(start), run, 12)
		removeNewest(t, run) // the run goes on from a checkpoint before the logged end
		runPart(t, resume(false), run, 14)
		runPart(t, resume(true), run, 17)
		eventsMatch(t, run)
		runPart(t, resume(true), run, 0)
		runPart(t, resume(true), run, 0) // a finished run, once more
		eventsMatch(t, run)
		if n := len(losses(t, run)); n != 20 {
			t.Errorf("%d steps logged, want 20", n)
		}
	}
}

// removeNewest deletes the newest checkpoint, as if the process had died
// before it was written.
func removeNewest(t *testing.T, run string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(run, "step-*.llm"))
	if err != nil || len(files) < 2 {
		t.Fatalf("checkpoints %v, %v", files, err)
	}
	if err := os.Remove(files[len(files)-1]); err != nil {
		t.Fatal(err)
	}
}

// TestLastStepIsMeasured: the last step's record carries the validation loss
// that the result reports, also when the time decides which step is the last.
func TestLastStepIsMeasured(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.EvalEvery = -1
	cfg.MaxTime = 1 // a nanosecond: one step
	run := filepath.Join(dir, "run")
	res := runAll(t, run, cfg)
	if res.Reason != "time" || res.Steps != 1 {
		t.Errorf("ended by %q after %d steps", res.Reason, res.Steps)
	}
	evals := 0
	for rec, err := range runlog.Read(filepath.Join(run, runlog.FileName)) {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Step != nil && (rec.Step.ValLoss == nil || *rec.Step.ValLoss != res.Val.LossNats) {
			t.Errorf("the last step's validation loss is %v, want %v", rec.Step.ValLoss, res.Val.LossNats)
		}
		if rec.Event != nil && rec.Event.Type == runlog.KindEval {
			evals++
		}
	}
	if evals != 1 {
		t.Errorf("%d evaluations, want 1", evals)
	}
}

// TestEventFilesFail: event files that cannot be written end with a notice and
// do not stop the run.
func TestEventFilesFail(t *testing.T) {
	dir := t.TempDir()
	var notices []string
	tr, err := New(tinyConfig(writeData(t, dir, 1)), Options{Dir: filepath.Join(dir, "run"), Open: openCPU,
		Observer: Observer{Notice: func(s string) { notices = append(notices, s) }}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	tr.tb.Close()
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "TensorBoard") {
		t.Errorf("notices %q", notices)
	}
}
