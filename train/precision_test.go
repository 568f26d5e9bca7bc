package train

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/runlog"
	"tezgah/tensor"
)

// rounding is a backend that says that it has matrix units, and may find them slow.
type rounding struct {
	op.Backend
	to    tensor.DType
	types []tensor.DType
	slow  error  // what RoundProducts says of types
	news  string // see Notice
}

func (r *rounding) Notice() string { return r.news }

func (r *rounding) Rounding() []tensor.DType { return r.types }
func (r *rounding) Rounds() tensor.DType     { return r.to }

func (r *rounding) RoundProducts(t tensor.DType) error {
	if t != tensor.F32 && r.slow != nil {
		r.types = nil
		return r.slow
	}
	r.to = t
	return nil
}

// openRounding opens a backend whose products round to either type.
func openRounding() (op.Backend, error) { return ref.New[float32](), nil }

// TestPrecisionOfProducts trains with rounded products: the loss falls about as
// far as in float32, and is not the same.
func TestPrecisionOfProducts(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	exact := runAll(t, filepath.Join(dir, F32), cfg)
	for _, p := range []string{BF16, F16} {
		cfg.Precision = p
		tr, err := New(cfg, Options{Dir: filepath.Join(dir, p), Open: openRounding})
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.Run(context.Background())
		tr.Close()
		if err != nil {
			t.Fatal(err)
		}
		if d := res.Val.LossNats - exact.Val.LossNats; d == 0 || d > 0.05 || d < -0.05 {
			t.Errorf("%s: validation loss %v, in float32 %v", p, res.Val.LossNats, exact.Val.LossNats)
		}
	}
}

// TestPlanCountsOperands: the plan of a run whose products round is what the run
// allocates, and so is what a stand-in predicts. A device whose matrix units are not
// used counts in float32, and says why.
func TestPlanCountsOperands(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.Precision = BF16
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "run"), Open: openRounding})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	info, err := tr.Info()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(info.Plan.Rows, func(r model.PlanRow) bool { return r.Label == "bfloat16 mirror" && r.Bytes > 0 }) {
		t.Errorf("the plan has no row for the copy of the weights:\n%v", info.Plan)
	}
	now, _ := tr.backend.MemoryBytes()
	if info.Plan.Total() != now {
		t.Errorf("%d bytes are allocated, the plan says %d", now, info.Plan.Total())
	}
	predict := func(b op.Backend, precision string) (int64, []string) {
		d, err := NewStandIn(precision, b)
		if err != nil {
			t.Fatal(err)
		}
		if got := op.OperandType(b); got != tensor.F32 {
			t.Errorf("products round to %v after a look at %s", got, precision)
		}
		plan, notices, err := tr.cfg.PredictMemory(d)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Total(), notices
	}
	exact, none := predict(ref.New[float32](), F32)
	if got, notices := predict(ref.New[float32](), BF16); got != now || exact == now || len(notices)+len(none) > 0 {
		t.Errorf("%d bytes are allocated, predicted are %d and in float32 %d; notices %q, %q", now, got, exact, notices, none)
	}
	types := []tensor.DType{tensor.BF16}
	for why, b := range map[string]op.Backend{
		"they crawl": &rounding{Backend: ref.New[float32](), types: types, slow: errors.New("they crawl")},
		"f16":        &rounding{Backend: ref.New[float32](), types: []tensor.DType{tensor.F16}},
	} {
		if got, notices := predict(b, BF16); got != exact || len(notices) != 1 || !strings.Contains(notices[0], why) {
			t.Errorf("without units %d bytes are predicted, in float32 %d; notices %q, want one with %q", got, exact, notices, why)
		}
	}
}

// exactHalf is the reference on a device whose kernels cannot read float16, so that a run
// in F16 keeps no copy of its weights.
type exactHalf struct{ *ref.Backend[float32] }

func (exactHalf) Limits() op.Limits { return op.Limits{} }

// TestCopiesOfWeightsChangeNoBit: a run whose products read copies of the weights is the
// run whose products round them, to the bit, also after it was interrupted, with adapters
// and with 8-bit moments.
func TestCopiesOfWeightsChangeNoBit(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.Precision, cfg.MaxSteps, cfg.CheckpointEvery, cfg.EvalEvery = F16, 5, 2, 3
	cfg.Batch, cfg.Model.Context, cfg.Model.Layers, cfg.EvalTokens = 1, 16, 1, 64 // the reference is slow
	eight := cfg
	eight.Moments8 = true
	start := filepath.Join(dir, "start")
	runAll(t, start, cfg)
	adapters := cfg
	adapters.InitFrom, adapters.Model = start, model.Config{}
	adapters.LoRA = model.LoRA{Rank: 3, Targets: "q,v,down"}
	for name, cfg := range map[string]Config{"plain": cfg, "8-bit": eight, "adapters": adapters} {
		run := func(kind string, open OpenBackend, copies tensor.DType) string {
			out := filepath.Join(dir, name+kind)
			begin := func(o Options) (*Trainer, error) { return New(cfg, o) }
			for _, stop := range []int64{3, 0} { // resumed from step 2
				ctx, cancel := context.WithCancel(context.Background())
				tr, err := begin(Options{Dir: out, Open: open, Observer: Observer{Step: func(s runlog.Step, _ Pace) {
					if s.Step == stop {
						cancel()
					}
				}}})
				if err != nil {
					t.Fatal(err)
				}
				if got := tr.params.Options().Rounded; got != copies {
					t.Fatalf("%s: copies are %v, want %v", name, got, copies)
				}
				if _, err := tr.Run(ctx); err != nil && stop == 0 {
					t.Fatal(err)
				}
				tr.Close()
				cancel()
				begin = func(o Options) (*Trainer, error) { return Resume(o, nil) }
			}
			return out
		}
		with := run(" with", openRounding, tensor.F16)
		without := run(" without", func() (op.Backend, error) { return exactHalf{ref.New[float32]()}, nil }, tensor.F32)
		sameRun(t, with, without)
	}
}

// TestLossScaleResumes: overflows halve the scale, and a run that was interrupted
// goes on with the scale that it had, to the bit.
func TestLossScaleResumes(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.Precision, cfg.Accum = F16, 1
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	run := func(ctx context.Context, tr *Trainer, err error) error {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		_, err = tr.Run(ctx)
		return err
	}
	var notices []string
	opt := Options{Dir: whole, Open: openRounding, Observer: Observer{Notice: func(s string) { notices = append(notices, s) }}}
	tr, err := New(cfg, opt)
	if err == nil {
		tr.state.LossScale.Scale = 1 << 40 // far too high: the first steps overflow
	}
	if err := run(context.Background(), tr, err); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(notices, "\n"), "loss scale halved") {
		t.Errorf("no overflow was told: %q", notices)
	}

	ctx, cancel := context.WithCancel(context.Background())
	tr, err = New(cfg, Options{Dir: parts, Open: openRounding, Observer: Observer{Step: func(s runlog.Step, _ Pace) {
		if s.Step == 9 {
			cancel()
		}
	}}})
	if err == nil {
		tr.state.LossScale.Scale = 1 << 40
	}
	if err := run(ctx, tr, err); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled run returned %v", err)
	}
	tr, err = Resume(Options{Dir: parts, Open: openRounding}, nil)
	if err := run(context.Background(), tr, err); err != nil {
		t.Fatal(err)
	}
	sameRun(t, whole, parts)
	scales := map[string][]float64{}
	for _, d := range []string{whole, parts} {
		for rec, err := range runlog.Read(filepath.Join(d, runlog.FileName)) {
			if err != nil {
				t.Fatal(err)
			}
			if rec.Step != nil {
				scales[d] = append(scales[d], rec.Step.LossScale)
			}
		}
	}
	a, b := scales[whole], scales[parts]
	if len(a) != int(cfg.MaxSteps) || len(b) != len(a) || a[0] >= 1<<40 || a[len(a)-1] <= 1 {
		t.Fatalf("scales %v and %v", a, b)
	}
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("step %d: scale %v after resuming, %v without", i+1, b[i], a[i])
		}
	}
}

// TestPrecisionThatADeviceLacks goes on in float32 and says so.
func TestPrecisionThatADeviceLacks(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	whole, lacking := filepath.Join(dir, "f32"), filepath.Join(dir, "f16")
	runAll(t, whole, cfg)
	cfg.Precision = F16
	var notices []string
	tr, err := New(cfg, Options{Dir: lacking, Open: openCPU, Observer: Observer{Notice: func(s string) { notices = append(notices, s) }}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(notices) == 0 || !strings.Contains(notices[0], "no matrix units") {
		t.Errorf("the user was told %q", notices)
	}
	a, b := weights(t, whole), weights(t, lacking)
	for name := range a {
		if string(a[name]) != string(b[name]) {
			t.Errorf("%s differs from the run in float32", name)
		}
	}
	if _, _, err := checkpoint.Latest(lacking); err != nil {
		t.Error(err)
	}
}

// TestMatrixUnitsThatAreSlow: a device that finds its matrix units slower than
// float32 when they are asked for trains in float32, with its own words, and what it
// says later is passed on once.
func TestMatrixUnitsThatAreSlow(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	whole, slow := filepath.Join(dir, "f32"), filepath.Join(dir, "slow")
	runAll(t, whole, cfg)
	cfg.Precision = BF16
	var b *rounding
	open := func() (op.Backend, error) {
		inner, err := openCPU()
		b = &rounding{Backend: inner, types: []tensor.DType{tensor.BF16}, slow: errors.New("3 ms on the units, 2 ms in float32"), news: "NOTE: told by open"}
		return b, err
	}
	var notices []string
	tr, err := New(cfg, Options{Dir: slow, Open: open, Observer: Observer{
		Notice: func(s string) { notices = append(notices, s) },
		Step: func(s runlog.Step, _ Pace) {
			if s.Step == 2 {
				b.news += "\nNOTE: a tile is left out\nNOTE: another"
			}
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if _, err := tr.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	want := []string{"3 ms on the units, 2 ms in float32: training goes on in f32", "a tile is left out", "another"}
	if !slices.Equal(notices, want) {
		t.Errorf("the user was told %q, want %q", notices, want)
	}
	a, c := weights(t, whole), weights(t, slow)
	for name := range a {
		if string(a[name]) != string(c[name]) {
			t.Errorf("%s differs from the run in float32", name)
		}
	}
}

// TestRoundingAsksTheDevice: a type counts only where the device takes it, and the
// device is left in float32.
func TestRoundingAsksTheDevice(t *testing.T) {
	inner, err := openCPU()
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	types := []tensor.DType{tensor.BF16, tensor.F16}
	good := &rounding{Backend: inner, types: types}
	if got := Rounding(BF16, good); got != tensor.BF16 || good.to != tensor.F32 {
		t.Errorf("got %v, and the device rounds to %v", got, good.to)
	}
	if got := Rounding(BF16, &rounding{Backend: inner, types: types, slow: errors.New("slow")}); got != tensor.F32 {
		t.Errorf("slow units: got %v", got)
	}
	for _, p := range []string{F32, Mixed} {
		if got := Rounding(p, good); got != tensor.F32 {
			t.Errorf("%s: got %v", p, got)
		}
	}
	if got := Rounding(F16, inner); got != tensor.F32 {
		t.Errorf("a device without units: got %v", got)
	}
}
