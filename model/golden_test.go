package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/optim"
)

// golden is one file of testdata, written by testdata/gen/golden.py, which
// says what the values are and how the weights are made.
type golden struct {
	Config         model.Config
	Batch          int
	LabelSmoothing float64 `json:"label_smoothing"`
	ZLoss          float64 `json:"z_loss"`
	DocMask        bool    `json:"doc_mask"`
	AdamW          struct {
		LR, Beta1, Beta2, Eps, Clip float64
		WeightDecay                 float64 `json:"weight_decay"`
	}
	Tokens, Targets []int32
	DocStart        []int32 `json:"doc_start"`
	Float64         goldenValues
	Float32         goldenValues
}

type goldenValues struct {
	Logits      []float64
	LossSum     float64 `json:"loss_sum"`
	Counted     int
	Grads       map[string][]float64
	AdamWLosses []float64 `json:"adamw_losses"`
	AdamWNorms  []float64 `json:"adamw_norms"`
}

var goldenCases = []string{"tied_gqa", "untied_smooth", "gelu_docmask", "untied_gelu"}

func loadGolden(t *testing.T, name string) *golden {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatalf("%v; write it with: python3 model/testdata/gen/golden.py model/testdata", err)
	}
	g := new(golden)
	if err := json.Unmarshal(data, g); err != nil {
		t.Fatal(err)
	}
	if !g.DocMask {
		g.DocStart = nil
	}
	return g
}

// run is a golden case on one backend.
type run struct {
	*golden
	r    *op.Runner
	p    *model.Params
	g    *model.Graph
	read func(op.Tensor) []float64 // elements as exactly as the backend has them
}

// newRun builds the case with the weights of golden.py.
func newRun(t *testing.T, c *golden, b op.Backend, opt model.ParamOptions, read func(op.Tensor) []float64) *run {
	t.Helper()
	r := op.NewRunner(b)
	p, err := model.NewParams(r, c.Config, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range p.Weights() {
		base := float32(0)
		if !p.Infos()[i].Decay {
			base = 1
		}
		w := make([]float32, s.T.Len())
		x := uint32(1000 + 7919*i)
		for j := range w {
			x = x*1664525 + 1013904223
			w[j] = base + (float32(x>>16)-32768)/131072
		}
		op.WriteSlice(r, s.T, w)
	}
	g, err := model.NewGraph(r, p, model.TrainOptions{Batch: c.Batch, LabelSmoothing: c.LabelSmoothing, ZLoss: c.ZLoss, DocMask: c.DocMask})
	if err != nil {
		t.Fatal(err)
	}
	return &run{c, r, p, g, read}
}

func onRef64(t *testing.T, c *golden) *run {
	b := ref.New[float64]()
	return newRun(t, c, b, model.ParamOptions{Grads: true, Moments: true}, func(x op.Tensor) []float64 {
		return b.Data(x.Buf)[x.Off : x.Off+x.Len()]
	})
}

func onCPU(t *testing.T, c *golden, level string) *run {
	b, err := cpu.New(cpu.Options{Threads: 2, Level: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	r := op.NewRunner(b)
	return newRun(t, c, b, model.ParamOptions{Grads: true, Moments: true}, func(x op.Tensor) []float64 {
		v := make([]float32, x.Len())
		if err := op.ReadSlice(r, v, x); err != nil {
			t.Fatal(err)
		}
		wide := make([]float64, len(v))
		for i := range v {
			wide[i] = float64(v[i])
		}
		return wide
	})
}

// takeLoss returns and clears the loss sum, unrounded.
func (r *run) takeLoss() float64 {
	v := r.read(r.g.LossSumTensor())[0]
	r.r.Zero(r.g.LossSumTensor())
	return v
}

// microStep adds the batch's gradients and returns its summed loss.
func (r *run) microStep(t *testing.T) float64 {
	t.Helper()
	if err := r.g.MicroStep(r.Tokens, r.Targets, r.DocStart, 1/float32(model.CountTargets(r.Targets))); err != nil {
		t.Fatal(err)
	}
	return r.takeLoss()
}

// within compares got with want, elementwise, and returns the largest error.
func within(t *testing.T, what string, got, want []float64, bound func(i int) float64) {
	t.Helper()
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%s: got %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(got[i] - want[i]); !(d <= bound(i)) {
			t.Fatalf("%s[%d]: got %v, want %v, error %.3g, bound %.3g", what, i, got[i], want[i], d, bound(i))
		}
	}
}

// TestGoldenFloat64 compares logits, loss and every gradient with PyTorch's in
// float64. Both sides take the same float32 constants, so all that differs is
// the order of sums: a thousand roundings of 2^-53 at the scale of the tensor.
func TestGoldenFloat64(t *testing.T) {
	for _, name := range goldenCases {
		t.Run(name, func(t *testing.T) {
			c := loadGolden(t, name)
			checkGolden(t, onRef64(t, c), c.Float64, func(what string, want []float64) float64 {
				return 1000 * math.Exp2(-53) * largest(want)
			})
		})
	}
}

// TestGoldenFloat32 compares the fast CPU backend, at every level this machine
// has, with the same float64 values. The bound comes from PyTorch: it may be eight times as far from
// float64 as PyTorch's own float32 is at its worst element of that tensor, or
// eight roundings where PyTorch happens to be exact.
func TestGoldenFloat32(t *testing.T) {
	for _, name := range goldenCases {
		c := loadGolden(t, name)
		torch32 := map[string][]float64{"logits": c.Float32.Logits, "loss": {c.Float32.LossSum}}
		for n, g := range c.Float32.Grads {
			torch32["d"+n] = g
		}
		bound := func(what string, want []float64) float64 {
			worst := math.Exp2(-24) * largest(want)
			for i, v := range torch32[what] {
				worst = max(worst, math.Abs(v-want[i]))
			}
			return 8 * worst
		}
		for _, level := range cpu.Levels() {
			t.Run(name+"/"+level, func(t *testing.T) { checkGolden(t, onCPU(t, c, level), c.Float64, bound) })
		}
	}
}

func largest(x []float64) float64 {
	top := 0.0
	for _, v := range x {
		top = max(top, math.Abs(v))
	}
	return top
}

func checkGolden(t *testing.T, r *run, want goldenValues, bound func(what string, want []float64) float64) {
	check := func(what string, got, want []float64) {
		t.Helper()
		b := bound(what, want)
		within(t, what, got, want, func(int) float64 { return b })
	}
	if n := model.CountTargets(r.Targets); n != want.Counted {
		t.Fatalf("%d counted targets, want %d", n, want.Counted)
	}
	if err := r.g.Evaluate(r.Tokens, r.Targets, r.DocStart); err != nil {
		t.Fatal(err)
	}
	check("logits", r.read(r.g.LogitsChunk()), want.Logits)
	r.takeLoss()
	check("loss", []float64{r.microStep(t)}, []float64{want.LossSum})
	grads := r.p.Grads()
	if len(grads) != len(want.Grads) {
		t.Fatalf("%d gradients, want %d", len(grads), len(want.Grads))
	}
	for _, s := range grads {
		check("d"+s.Name, r.read(s.T), want.Grads[s.Name])
	}
}

// TestGoldenAdamW follows ten AdamW steps. Hyperparameters are float32 on both
// sides but for βᵗ, which op.AdamHyper holds in float32: its rounding changes
// 1/(1−βᵗ) by at most 2^-24/(1−β₂) ≈ 1.2e-6, so each step by that fraction, and
// the loss by that fraction of what it has moved; twice that is allowed. In
// float32, PyTorch's own distance from float64 is the measure again.
func TestGoldenAdamW(t *testing.T) {
	for _, name := range goldenCases {
		c := loadGolden(t, name)
		t.Run(name+"/float64", func(t *testing.T) {
			losses, norms := trainGolden(t, onRef64(t, c))
			start := c.Float64.AdamWLosses[0]
			within(t, "loss", losses, c.Float64.AdamWLosses, func(i int) float64 {
				return 2.4e-6*math.Abs(c.Float64.AdamWLosses[i]-start) + 1e-12
			})
			within(t, "norm", norms, c.Float64.AdamWNorms, func(i int) float64 { return 1e-5 * c.Float64.AdamWNorms[i] })
		})
		worst := 1e-6
		for i, v := range c.Float32.AdamWLosses {
			worst = max(worst, math.Abs(v-c.Float64.AdamWLosses[i]))
		}
		for _, level := range cpu.Levels() {
			t.Run(name+"/"+level, func(t *testing.T) {
				losses, _ := trainGolden(t, onCPU(t, c, level))
				within(t, "loss", losses, c.Float64.AdamWLosses, func(int) float64 { return 8 * worst })
			})
		}
	}
}

// trainGolden returns the mean losses before each of ten steps and after the
// last, and the gradient norms.
func trainGolden(t *testing.T, r *run) (losses, norms []float64) {
	h := r.AdamW
	o, err := optim.New(r.r, r.p, optim.Config{Beta1: h.Beta1, Beta2: h.Beta2, Eps: h.Eps, WeightDecay: h.WeightDecay, Clip: h.Clip})
	if err != nil {
		t.Fatal(err)
	}
	n := float64(model.CountTargets(r.Targets))
	clipped := 0
	for i := range 11 {
		losses = append(losses, r.microStep(t)/n)
		if i == 10 {
			break
		}
		s, err := o.Step(h.LR)
		if err != nil {
			t.Fatal(err)
		}
		if s.Clip < 1 {
			clipped++
		}
		norms = append(norms, float64(s.Norm))
	}
	if last := losses[10]; !(last < losses[0]-0.05) {
		t.Fatalf("loss went from %v to %v: ten steps should lower it clearly", losses[0], last)
	}
	if clipped == 0 {
		t.Fatal("no step was clipped: the case does not test clipping")
	}
	return losses, norms
}
