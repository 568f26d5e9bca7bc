package train

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// hungry is a backend whose products need scratch memory, of which a rehearsal
// knows.
type hungry struct {
	op.Backend
	scratch int // bytes, from the first product on
	free    int64
	held    op.Buffer
	broken  error // what Rehearse says
}

func (h *hungry) Limits() op.Limits {
	l := h.Backend.Limits()
	l.FreeBytes = h.free
	return l
}

func (h *hungry) MatMul(a op.MatMul) (err error) {
	if h.held == nil {
		if h.held, err = h.Backend.Alloc("scratch", tensor.I8, h.scratch); err != nil {
			return err
		}
	}
	return h.Backend.MatMul(a)
}

func (h *hungry) Rehearse() (op.Backend, error) {
	if h.broken != nil {
		return nil, h.broken
	}
	b, err := openCPU()
	return &hungry{Backend: b, scratch: h.scratch}, err
}

func openHungry(scratch int, free int64) OpenBackend {
	return func() (op.Backend, error) {
		b, err := openCPU()
		return &hungry{Backend: b, scratch: scratch, free: free}, err
	}
}

// TestPlanCountsKernelScratch: the plan has a row for what kernels need, a run that
// fits only without it is refused, and one that just fits is not.
func TestPlanCountsKernelScratch(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	const scratch = 123456
	var plan model.Plan
	seen := Observer{Memory: func(p model.Plan, _ int64) { plan = p }}
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "a"), Open: openHungry(scratch, 0), Observer: seen})
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	if last := plan.Rows[len(plan.Rows)-1]; last.Label != scratchLabel || last.Bytes != scratch {
		t.Fatalf("the last row is %+v, want %d bytes of %s", last, scratch, scratchLabel)
	}
	_, err = New(cfg, Options{Dir: filepath.Join(dir, "b"), Open: openHungry(scratch, plan.Total()-1), Observer: seen})
	if err == nil || !strings.Contains(err.Error(), "--batch") {
		t.Errorf("a run that fits only without scratch memory: %v", err)
	}
	tr, err = New(cfg, Options{Dir: filepath.Join(dir, "c"), Open: openHungry(scratch, plan.Total()), Observer: seen})
	if err != nil {
		t.Fatalf("a run that just fits: %v", err)
	}
	tr.Close()
}

// TestStandInPlansLikeTheRun: a stand-in, whose device is closed, gives the rows that
// the run itself gives.
func TestStandInPlansLikeTheRun(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	b, err := openHungry(4321, 0)()
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewStandIn(F32, b)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	var want model.Plan
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "run"), Open: openHungry(4321, 0), Observer: Observer{Memory: func(p model.Plan, _ int64) { want = p }}})
	if err != nil {
		t.Fatal(err)
	}
	cfg = tr.cfg // with the vocabulary of the data
	tr.Close()
	for range 2 { // it serves more than one plan
		got, notices, err := cfg.PredictMemory(d)
		if err != nil || len(notices) > 0 || !slices.Equal(got.Rows, want.Rows) || want.Rows[len(want.Rows)-1].Label != scratchLabel {
			t.Errorf("the stand-in plans %v (%q, %v), the run %v", got.Rows, notices, err, want.Rows)
		}
	}
}

// TestStandInWithoutRehearsal: what a rehearsal that fails would have told is a line.
func TestStandInWithoutRehearsal(t *testing.T) {
	b, err := openHungry(1, 0)()
	if err != nil {
		t.Fatal(err)
	}
	b.(*hungry).broken = errors.New("no such stage")
	d, err := NewStandIn(F32, b)
	if err != nil {
		t.Fatal(err)
	}
	cfg := tinyConfig(writeData(t, t.TempDir(), 1))
	cfg.Model.VocabSize = 300
	if _, notices, err := cfg.PredictMemory(d); err != nil || len(notices) != 1 || !strings.Contains(notices[0], "no such stage") {
		t.Errorf("notices %q, error %v", notices, err)
	}
}

// TestPlanWithoutRehearsal: a rehearsal that fails costs a row and a line, not the
// run.
func TestPlanWithoutRehearsal(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	var notices []string
	tr, err := New(cfg, Options{Dir: filepath.Join(dir, "run"),
		Open: func() (op.Backend, error) {
			b, err := openHungry(1, 0)()
			b.(*hungry).broken = errors.New("no such stage")
			return b, err
		},
		Observer: Observer{
			Memory: func(p model.Plan, _ int64) {
				for _, r := range p.Rows {
					if r.Label == scratchLabel {
						t.Errorf("the plan has %+v", r)
					}
				}
			},
			Notice: func(s string) { notices = append(notices, s) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	if len(notices) != 1 || !strings.Contains(notices[0], "no such stage") {
		t.Errorf("the user was told %q", notices)
	}
}

// TestAutoModelLeavesRoomForScratch: a preset that fits only without what its
// kernels need is not chosen.
func TestAutoModelLeavesRoomForScratch(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	cfg.Model, cfg.Batch, cfg.Context = model.Config{}, 1, 8
	pick := func(scratch int, free int64) (string, error) {
		b, err := openHungry(scratch, free)()
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		m, err := AutoModel(cfg, b)
		for _, name := range model.Presets() {
			if p, _ := model.Preset(name); p.DModel == m.DModel && p.Layers == m.Layers {
				return name, err
			}
		}
		return "", err
	}
	micro, _ := model.Preset("micro")
	micro.VocabSize = 300
	micro.Context = 8
	plan, err := model.PredictMemory(micro, model.ParamOptions{Grads: true, Moments: true}, model.TrainOptions{Batch: 1, Context: 8}, op.Limits{}, tensor.F32)
	if err != nil {
		t.Fatal(err)
	}
	const scratch = 1 << 20
	for want, free := range map[string]int64{"micro": plan.Total() + scratch, "nano": plan.Total() + scratch - 1} {
		if got, err := pick(scratch, free); got != want || err != nil {
			t.Errorf("%d bytes free: got %q, %v, want %s", free, got, err, want)
		}
	}
	if _, err := pick(1<<30, plan.Total()); err == nil || !strings.Contains(err.Error(), "nano needs 1.0 GiB") {
		t.Errorf("nothing fits: got %v", err)
	}
}
