package bench

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// notebook is the reference backend, which can round to 16 bits. It writes down what
// products it is asked for, and says that its matrix units are ten times as fast.
type notebook struct {
	*ref.Backend[float32]
	products map[string]bool
}

func newNotebook() *notebook { return &notebook{ref.New[float32](), map[string]bool{}} }

func (*notebook) MeasurePeak() (op.Peak, error) {
	return op.Peak{FLOPS: 1e6, MatrixFLOPS: 1e7, BytesPerSec: 1e9}, nil
}

func (n *notebook) MatMul(a op.MatMul) error {
	m, cols, k := a.Sizes()
	n.products[fmt.Sprintf("%s M %d K %d N %d: %v·%v to %v, acc %v, residual %v",
		a.Label(), m, k, cols, a.A.Type(), a.B.Type(), a.C.Type(), a.Acc, a.Residual.Ok())] = true
	return n.Backend.MatMul(a)
}

// TestProductsAreTheModels: what is measured with rounding is what a training step
// does, down to the types and to what is added, and it is held against the units.
func TestProductsAreTheModels(t *testing.T) {
	for tied, rounds := range map[bool]tensor.DType{true: tensor.BF16, false: tensor.F16} {
		t.Run(fmt.Sprintf("tied %v %v", tied, rounds), func(t *testing.T) {
			// All sizes differ, and 512 rows are two chunks of the head.
			cfg := model.Config{VocabSize: 29, Context: 8, DModel: 12, Layers: 1, Heads: 3, KVHeads: 1, HeadDim: 6, FFN: 20, Tied: tied}.WithDefaults()
			opt := StepOptions{Batch: 64, Context: 8, Round: rounds, HeadRows: 256}
			training := newNotebook()
			s, err := newTrainingStep(op.NewRunner(training), cfg, opt)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			if err := s.run(); err != nil {
				t.Fatal(err)
			}
			measured := newNotebook()
			b, err := New(op.NewRunner(measured), Options{Each: time.Nanosecond})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.MatMuls(cfg, opt); err != nil {
				t.Fatal(err)
			}
			if len(measured.products) != 15 {
				t.Errorf("%d different products were measured, want 15", len(measured.products))
			}
			for p := range measured.products {
				if !training.products[p] {
					t.Errorf("%s was measured, and training does not do it", p)
				}
			}
			for _, r := range b.Report().Results {
				if want := r.GFLOPS * 1e9 / 1e7; r.Rounds != rounds.String() || math.Abs(r.Share-want) > 1e-9*want {
					t.Errorf("%+v, want rounding to %v and a share of %v", r, rounds, want)
				}
			}
			if now, _ := measured.MemoryBytes(); now != 0 || measured.Rounds() != tensor.F32 {
				t.Errorf("%d bytes and rounding to %v were left", now, measured.Rounds())
			}
		})
	}
}

// TestProductsNeedUnits: a backend without matrix units is an error, not a
// measurement of something else.
func TestProductsNeedUnits(t *testing.T) {
	backend, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	b := &Bencher{r: op.NewRunner(backend), peak: op.Peak{FLOPS: 1e9}}
	cfg := model.Config{VocabSize: 30, Context: 8, DModel: 8, Layers: 1, Heads: 1, FFN: 16}.WithDefaults()
	err = b.MatMuls(cfg, StepOptions{Batch: 1, Context: 8, Round: tensor.BF16})
	if err == nil || !strings.Contains(err.Error(), "no matrix units") {
		t.Errorf("error %v, want one that says that there are no matrix units", err)
	}
}

// TestProductCalls: short products on the units are measured many at a time.
func TestProductCalls(t *testing.T) {
	b := &Bencher{peak: op.Peak{FLOPS: 1e12, MatrixFLOPS: 1e14}}
	for _, c := range []struct {
		rounds tensor.DType
		flops  int64
		want   int
	}{{tensor.F32, 1, 1}, {tensor.BF16, 1e9, 64}, {tensor.BF16, 1e11, 5}, {tensor.F16, 1e13, 1}} {
		if got := b.productCalls(task{cost: op.Cost{FLOPs: c.flops}, rounds: c.rounds}); got != c.want {
			t.Errorf("%v, %d FLOPs: %d calls, want %d", c.rounds, c.flops, got, c.want)
		}
	}
}
