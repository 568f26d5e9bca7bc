package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
	"tezgah/train"
)

// unitsDevice is a device whose products can round, with kernels that need scratch
// memory, of which a rehearsal knows.
type unitsDevice struct {
	*ref.Backend[float32]
	slow  error // what RoundProducts says of types
	held  op.Buffer
	asked *int // how often a rehearsal was made of the open device
}

func (d *unitsDevice) MatMul(a op.MatMul) (err error) {
	if d.held == nil {
		if d.held, err = d.Alloc("scratch", tensor.I8, 777); err != nil {
			return err
		}
	}
	return d.Backend.MatMul(a)
}

func (d *unitsDevice) RoundProducts(t tensor.DType) error {
	if t != tensor.F32 && d.slow != nil {
		return d.slow
	}
	return d.Backend.RoundProducts(t)
}

func (d *unitsDevice) Rehearse() (op.Backend, error) {
	if d.asked != nil {
		*d.asked++
	}
	r := &unitsDevice{Backend: ref.New[float32]()}
	return r, r.RoundProducts(d.Rounds())
}

// TestPlanIsThatOfTheRun: the plan has the rows that training has for the same
// settings on the same device, in every precision, and knows when matrix units are
// there and not used. The device is opened once for each precision.
func TestPlanIsThatOfTheRun(t *testing.T) {
	for _, slow := range []error{nil, errors.New("they crawl")} {
		t.Run(fmt.Sprint("slow ", slow), func(t *testing.T) {
			opened, asked := 0, 0
			open := func() (op.Backend, error) {
				opened++
				return &unitsDevice{Backend: ref.New[float32](), slow: slow, asked: &asked}, nil
			}
			w := newWorkplace(t, func(o *Options) {
				o.OpenBackend = func(string) (op.Backend, string, error) {
					b, err := open()
					return b, "", err
				}
			})
			w.prepare()
			totals := map[string]int64{}
			for i, precision := range train.Precisions() {
				set := with(tiny("r"), "precision", precision)
				var p planView
				for range 3 {
					w.do("POST", "/api/runs/plan", set, &p)
				}
				if opened != i+1 {
					t.Errorf("the device was opened %d times for %d precisions", opened, i+1)
				}
				opened = i + 1
				if got, want := p.Memory, planOfRun(t, w, set, open); !slices.Equal(got, want) {
					t.Errorf("%s: the plan has %v, the run %v", precision, got, want)
				}
				opened = i + 1 // the run's does not count
				rounds := precision == train.BF16 || precision == train.F16
				if told := strings.Join(p.Notices, "; "); rounds && slow != nil != strings.Contains(told, "they crawl") || !rounds && told != "" {
					t.Errorf("%s: notices %q", precision, told)
				}
				if last := p.Memory[len(p.Memory)-1]; last != (memoryRow{"kernel scratch", 777}) {
					t.Errorf("%s: the last row is %v, want the kernels'", precision, last)
				}
				totals[precision] = p.Total
			}
			if other := totals[train.BF16] != totals[train.F32]; other != (slow == nil) {
				t.Errorf("totals %v with units that are slow: %v", totals, slow)
			}
			if asked == 0 {
				t.Error("no device was rehearsed")
			}
		})
	}
}

// planOfRun starts training with settings and returns its plan's rows.
func planOfRun(t *testing.T, w *workplace, settings any, open train.OpenBackend) (rows []memoryRow) {
	t.Helper()
	var set RunSettings
	b, err := json.Marshal(settings)
	if err == nil {
		err = json.Unmarshal(b, &set)
	}
	if err != nil {
		t.Fatal(err)
	}
	want, problems := w.s.settle(set)
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	tr, err := train.New(want.cfg, train.Options{Dir: filepath.Join(t.TempDir(), "run"), Open: open, Observer: train.Observer{
		Memory: func(p model.Plan, _ int64) {
			for _, r := range p.Rows {
				if r.Bytes > 0 {
					rows = append(rows, memoryRow{r.Label, r.Bytes})
				}
			}
		}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	return rows
}
