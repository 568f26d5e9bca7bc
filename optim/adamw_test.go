package optim_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/optim"
	"tezgah/tensor"
)

var tiny = model.Config{VocabSize: 61, Context: 32, DModel: 32, Layers: 2, Heads: 4, KVHeads: 2, FFN: 64, Tied: true}

var (
	moments  = model.ParamOptions{Grads: true, Moments: true}
	moments8 = model.ParamOptions{Grads: true, Moments8: true}
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func cpuBackend(t testing.TB, threads int) *cpu.Backend {
	t.Helper()
	b, err := cpu.New(cpu.Options{Threads: threads})
	check(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// newParams makes tiny on a backend, with weights from a seed.
func newParams(t testing.TB, b op.Backend, o model.ParamOptions) *model.Params {
	t.Helper()
	p, err := model.NewParams(op.NewRunner(b), tiny, o)
	check(t, err)
	check(t, p.Init(1))
	return p
}

func newAdamW(t testing.TB, p *model.Params, c optim.Config) *optim.AdamW {
	t.Helper()
	a, err := optim.New(p.Runner(), p, c)
	check(t, err)
	return a
}

// find returns the state of that name.
func find(t testing.TB, list []model.State, name string) op.Tensor {
	t.Helper()
	for _, s := range list {
		if s.Name == name {
			return s.T
		}
	}
	t.Fatalf("no state %q", name)
	return op.Tensor{}
}

func read(t testing.TB, p *model.Params, x op.Tensor) []float32 {
	t.Helper()
	v := make([]float32, x.Len())
	check(t, op.ReadSlice(p.Runner(), v, x))
	return v
}

// fillGrads writes a fixed pattern of gradients.
func fillGrads(t testing.TB, p *model.Params, seed uint64, std float64) {
	t.Helper()
	for i, s := range p.Grads() {
		g := make([]float32, s.T.Len())
		tensor.NewRNG(seed, uint64(i)).Normal(g, 0, std)
		op.WriteSlice(p.Runner(), s.T, g)
	}
	check(t, p.Runner().Err())
}

// everything reads all weights and moments.
func everything(t testing.TB, p *model.Params) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, s := range append(p.Weights(), p.Moments()...) {
		var b strings.Builder
		check(t, p.ReadTo(&b, s))
		all[s.Name] = []byte(b.String())
	}
	return all
}

// TestStep compares three updates with the formula in float64, written out
// here: norm, clipping, decay of matrices and not of gains, bias correction. 1e-5
// allows for βᵗ in float32 (see op.AdamHyper) and for float32 arithmetic, at the
// scale of the update.
func TestStep(t *testing.T) {
	const lr, clip, wd = 0.01, 0.5, 0.1
	for _, b := range []op.Backend{ref.New[float64](), cpuBackend(t, 2)} {
		p := newParams(t, b, moments)
		a := newAdamW(t, p, optim.Config{Clip: clip, WeightDecay: wd})
		names := []string{"tok_emb", "layers.1.wk", "layers.0.attn_norm", "final_norm"}
		w, m, v := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
		for _, n := range names {
			for _, x := range read(t, p, find(t, p.Weights(), n)) {
				w[n] = append(w[n], float64(x))
			}
			m[n], v[n] = make([]float64, len(w[n])), make([]float64, len(w[n]))
		}
		for step := 1; step <= 3; step++ {
			fillGrads(t, p, uint64(step), 0.003*float64(step)) // clipped from the second step on
			sq := 0.0
			grads := map[string][]float32{}
			for _, s := range p.Grads() {
				grads[s.Name] = read(t, p, s.T)
				for _, g := range grads[s.Name] {
					sq += float64(g) * float64(g)
				}
			}
			factor := min(1, clip/math.Sqrt(sq))
			if (factor == 1) != (step == 1) {
				t.Fatalf("step %d: clip factor %v; want only the first unclipped", step, factor)
			}
			s, err := a.Step(lr)
			check(t, err)
			if math.Abs(float64(s.Norm)-math.Sqrt(sq)) > 1e-5*math.Sqrt(sq) || math.Abs(float64(s.Clip)-factor) > 1e-5 {
				t.Errorf("step %d: norm %v and clip %v, want %v and %v", step, s.Norm, s.Clip, math.Sqrt(sq), factor)
			}
			for _, n := range names {
				decay := wd
				if strings.HasSuffix(n, "norm") {
					decay = 0
				}
				got := read(t, p, find(t, p.Weights(), n))
				for i := range got {
					g := float64(grads[n][i]) * factor
					m[n][i] = 0.9*m[n][i] + 0.1*g
					v[n][i] = 0.95*v[n][i] + 0.05*g*g
					mh, vh := m[n][i]/(1-math.Pow(0.9, float64(step))), v[n][i]/(1-math.Pow(0.95, float64(step)))
					w[n][i] -= lr * (mh/(math.Sqrt(vh)+1e-8) + decay*w[n][i])
					if d := math.Abs(float64(got[i]) - w[n][i]); d > 1e-5*lr+math.Exp2(-23)*math.Abs(w[n][i])*float64(step) {
						t.Fatalf("%s: step %d: %s[%d] is %v, want %v", b.Name(), step, n, i, got[i], w[n][i])
					}
				}
			}
		}
		if a.StepCount() != 3 {
			t.Errorf("%d updates, want 3", a.StepCount())
		}
	}
}

// TestSkip: a step with non-finite gradients changes nothing, names the tensors,
// does not count as an update, and leaves no trace in the step after it.
func TestSkip(t *testing.T) {
	for _, o := range []model.ParamOptions{moments, moments8} {
		b := cpuBackend(t, 2)
		p, twin := newParams(t, b, o), newParams(t, b, o)
		a, twinA := newAdamW(t, p, optim.Defaults()), newAdamW(t, twin, optim.Defaults())
		both := func(seed uint64) {
			fillGrads(t, p, seed, 0.1)
			fillGrads(t, twin, seed, 0.1)
		}
		both(1)
		_, err := a.Step(0.01)
		check(t, err)
		_, err = twinA.Step(0.01)
		check(t, err)

		fillGrads(t, p, 2, 0.1)
		poison(t, p, "layers.1.w_up", 3, float32(math.NaN()))
		poison(t, p, "layers.1.w_up", 700, float32(math.Inf(-1)))
		poison(t, p, "final_norm", 0, float32(math.Inf(1)))
		s, err := a.Step(0.01)
		check(t, err)
		want := []optim.Culprit{{Name: "layers.1.w_up", Count: 2}, {Name: "final_norm", Count: 1}}
		if !s.Skipped || s.NonFinite != 3 || fmt.Sprint(s.Culprits) != fmt.Sprint(want) || a.StepCount() != 1 {
			t.Errorf("got %+v after %d updates, want a skipped step with %v after 1", s, a.StepCount(), want)
		}
		compare(t, everything(t, p), everything(t, twin))

		both(3)
		s1, err := a.Step(0.01)
		check(t, err)
		s2, err := twinA.Step(0.01)
		check(t, err)
		if s1.Norm != s2.Norm || s1.Skipped {
			t.Errorf("the step after: %+v and %+v", s1, s2)
		}
		compare(t, everything(t, p), everything(t, twin))
	}
}

// poison sets one gradient.
func poison(t testing.TB, p *model.Params, name string, i int, v float32) {
	t.Helper()
	x := find(t, p.Grads(), name)
	g := read(t, p, x)
	g[i] = v
	op.WriteSlice(p.Runner(), x, g)
}

func compare(t *testing.T, a, b map[string][]byte) {
	t.Helper()
	if len(a) != len(b) || len(a) == 0 {
		t.Fatalf("%d and %d tensors", len(a), len(b))
	}
	for name := range a {
		if string(a[name]) != string(b[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestZero: the policy zero replaces the bad elements and updates.
func TestZero(t *testing.T) {
	b := cpuBackend(t, 2)
	p, twin := newParams(t, b, moments), newParams(t, b, moments)
	a := newAdamW(t, p, optim.Config{NonFinite: "zero", Clip: 1})
	twinA := newAdamW(t, twin, optim.Config{Clip: 1})
	fillGrads(t, p, 4, 0.1)
	fillGrads(t, twin, 4, 0.1)
	poison(t, p, "tok_emb", 5, float32(math.NaN()))
	poison(t, twin, "tok_emb", 5, 0)
	s, err := a.Step(0.01)
	check(t, err)
	if s.Skipped || s.NonFinite != 1 || a.StepCount() != 1 {
		t.Errorf("got %+v after %d updates", s, a.StepCount())
	}
	_, err = twinA.Step(0.01)
	check(t, err)
	compare(t, everything(t, p), everything(t, twin))
}

// TestStop: "stop" ends at once, "skip" after K in a row, with an error that
// names the tensor; a good step in between begins the count anew.
func TestStop(t *testing.T) {
	bad := func(p *model.Params) { poison(t, p, "layers.0.wq", 0, float32(math.NaN())) }
	p := newParams(t, cpuBackend(t, 1), moments)
	bad(p)
	_, err := newAdamW(t, p, optim.Config{NonFinite: "stop"}).Step(0.1)
	var e *optim.NonFiniteError
	if !errors.As(err, &e) || e.InRow != 1 || !strings.Contains(err.Error(), "layers.0.wq (1)") {
		t.Errorf("stop: got error %v", err)
	}
	for _, policy := range []string{"skip", "zero"} {
		a := newAdamW(t, p, optim.Config{NonFinite: policy, MaxNonFinite: 3})
		for i := range 7 {
			fillGrads(t, p, uint64(i), 0.1)
			if i != 3 { // two bad steps more than the good one allows
				bad(p)
			}
			_, err := a.Step(0.1)
			if wantErr := i == 2 || i == 6; errors.As(err, &e) != wantErr {
				t.Errorf("%s: step %d: error %v, want one: %v", policy, i, err, wantErr)
			}
		}
	}
}

// TestResume: moments and the step count carry over to a new optimizer.
func TestResume(t *testing.T) {
	b := cpuBackend(t, 1)
	p, twin := newParams(t, b, moments8), newParams(t, b, moments8)
	a, twinA := newAdamW(t, p, optim.Defaults()), newAdamW(t, twin, optim.Defaults())
	for i := range 4 {
		if i == 2 {
			count := a.StepCount()
			a = newAdamW(t, p, optim.Defaults())
			a.SetStepCount(count)
		}
		for _, x := range []*model.Params{p, twin} {
			fillGrads(t, x, uint64(i), 0.1)
		}
		_, err := a.Step(0.01)
		check(t, err)
		_, err = twinA.Step(0.01)
		check(t, err)
	}
	compare(t, everything(t, p), everything(t, twin))
}

func TestBadConfig(t *testing.T) {
	p := newParams(t, ref.New[float32](), moments)
	for want, c := range map[string]optim.Config{
		"beta1 is 1":          {Beta1: 1},
		"beta2 is -0.5":       {Beta2: -0.5},
		"eps is NaN":          {Eps: math.NaN()},
		"weight_decay is -1":  {WeightDecay: -1},
		"clip is +Inf":        {Clip: math.Inf(1)},
		`nonfinite is "halt"`: {NonFinite: "halt"},
		"max_nonfinite is -1": {MaxNonFinite: -1},
	} {
		if _, err := optim.New(p.Runner(), p, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
	if _, err := newAdamW(t, p, optim.Defaults()).Step(math.NaN()); err == nil {
		t.Error("a learning rate of NaN was accepted")
	}
	bare := newParams(t, ref.New[float32](), model.ParamOptions{Grads: true})
	if _, err := optim.New(bare.Runner(), bare, optim.Defaults()); err == nil || !strings.Contains(err.Error(), "without moments") {
		t.Errorf("got error %v, want one about moments", err)
	}
}
