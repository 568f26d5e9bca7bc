package optim_test

import (
	"math"
	"strings"
	"testing"

	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/optim"
)

// aText is learned by heart below: 4 sequences of 32 characters.
const aText = "the shuttle carries the weft from one side of the warp to the other, and the reed " +
	"beats it close; so row by row, cloth grows on a loom."

// gentle is a learning rate at which rounding does not grow from step to step,
// so that two ways of computing the same run can be compared.
const gentle = 1e-3

// textBatch numbers the characters of aText and cuts it into B rows of T.
func textBatch(t testing.TB, B, T int) (tokens, targets []int32) {
	t.Helper()
	ids := map[rune]int32{}
	var text []int32
	for _, r := range aText {
		if _, ok := ids[r]; !ok {
			ids[r] = int32(len(ids))
		}
		text = append(text, ids[r])
	}
	if len(text) <= B*T || len(ids) > tiny.VocabSize {
		t.Fatalf("the text has %d characters, %d different", len(text), len(ids))
	}
	return text[:B*T], text[1 : B*T+1]
}

// train runs steps optimizer steps on one batch, with a peak learning rate of
// lr, and returns each one's mean loss.
func train(t testing.TB, b op.Backend, o model.ParamOptions, lr float64, steps int) (losses []float64, p *model.Params) {
	t.Helper()
	const B, T = 4, 32
	tokens, targets := textBatch(t, B, T)
	p = newParams(t, b, o)
	g, err := model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: B, Context: T})
	check(t, err)
	a := newAdamW(t, p, optim.Defaults())
	s := optim.Schedule{Kind: "cosine", LR: lr, MinLR: lr / 10, Warmup: steps / 10, Total: steps}
	check(t, s.Validate())
	for i := range steps {
		check(t, g.MicroStep(tokens, targets, nil, 1.0/(B*T)))
		sum, err := g.LossSum()
		check(t, err)
		losses = append(losses, sum/(B*T))
		st, err := a.Step(s.At(i))
		check(t, err)
		if st.Skipped {
			t.Fatalf("step %d was skipped: %+v", i, st)
		}
	}
	return losses, p
}

// TestOverfit: 300 steps learn a text by heart, from ln V to almost nothing,
// and the decoder then recites it.
func TestOverfit(t *testing.T) {
	losses, p := train(t, cpuBackend(t, 2), moments, 1e-2, 300)
	if first := losses[0]; math.Abs(first-math.Log(float64(tiny.VocabSize))) > 0.1 {
		t.Errorf("first loss %v, want about ln V = %v", first, math.Log(float64(tiny.VocabSize)))
	}
	if last := losses[299]; !(last < 0.02) {
		t.Errorf("loss after 300 steps %v, want below 0.02", last)
	}
	tokens, targets := textBatch(t, 4, 32)
	d, err := model.NewDecoder(p.Runner(), p, 1, 0)
	check(t, err)
	logits, err := d.Prefill(tokens[:6])
	check(t, err)
	for i := 5; i < 31; i++ {
		best := int32(0)
		for id, l := range logits {
			if l > logits[best] {
				best = int32(id)
			}
		}
		if best != targets[i] {
			t.Fatalf("position %d: the most likely token is %d, the text has %d", i, best, targets[i])
		}
		logits, err = d.Step([]int32{best})
		check(t, err)
	}
}

// TestMoments8 trains with 8-bit moments: the losses stay within 0.1 % of those
// with float32 moments (4e-5 was measured).
func TestMoments8(t *testing.T) {
	want, _ := train(t, cpuBackend(t, 2), moments, gentle, 60)
	got, _ := train(t, cpuBackend(t, 2), moments8, gentle, 60)
	closeTo(t, "8-bit moments", got, want, 1e-3)
}

// closeTo compares losses step by step. The run must have learned something.
func closeTo(t *testing.T, what string, got, want []float64, bound float64) {
	t.Helper()
	if last := len(want) - 1; !(want[last] < 0.8*want[0]) {
		t.Fatalf("loss went from %v to %v: want a clear fall", want[0], want[last])
	}
	for i := range got {
		if math.Abs(got[i]-want[i]) > bound*want[i] {
			t.Fatalf("step %d: loss %v with %s, want %v within %v", i, got[i], what, want[i], bound*want[i])
		}
	}
}

// TestMixedPrecision trains with a float16 mirror, which the optimizer keeps
// fresh: the losses stay within 0.1 % of float32's (3e-5 was measured).
func TestMixedPrecision(t *testing.T) {
	want, _ := train(t, cpuBackend(t, 2), moments, gentle, 60)
	o := moments
	o.Mirror = true
	got, p := train(t, cpuBackend(t, 2), o, gentle, 60)
	closeTo(t, "the mirror", got, want, 1e-3)
	before := mirrorOf(t, p)
	p.RefreshMirror()
	if string(before) != string(mirrorOf(t, p)) {
		t.Error("the optimizer did not keep the mirror fresh")
	}
}

func mirrorOf(t *testing.T, p *model.Params) []byte {
	t.Helper()
	var all []byte
	for _, b := range p.Blocks() {
		raw := make([]byte, 2*b.W16.Len())
		check(t, p.Runner().Read(raw, b.W16))
		all = append(all, raw...)
	}
	return all
}

// TestTrainingBits: the same run gives the same bits again, on any number of
// threads.
func TestTrainingBits(t *testing.T) {
	for _, o := range []model.ParamOptions{moments, moments8} {
		_, one := train(t, cpuBackend(t, 1), o, gentle, 8)
		want := everything(t, one)
		for _, n := range []int{1, 3} {
			_, p := train(t, cpuBackend(t, n), o, gentle, 8)
			compare(t, everything(t, p), want)
		}
	}
}

// TestStepAllocations: an optimizer step in steady state allocates nothing.
func TestStepAllocations(t *testing.T) {
	for _, o := range []model.ParamOptions{moments, moments8} {
		p := newParams(t, cpuBackend(t, 1), o)
		a := newAdamW(t, p, optim.Defaults())
		if n := testing.AllocsPerRun(20, func() {
			if _, err := a.Step(1e-3); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("a step allocates %v times, want 0", n)
		}
	}
}

// TestArenasTrain: cutting the mega-buffers does not change what is learned,
// but for the order of the sum in the gradient's norm (8e-8 was measured).
func TestArenasTrain(t *testing.T) {
	want, _ := train(t, cpuBackend(t, 1), moments, gentle, 60)
	small := limited{cpuBackend(t, 1), op.Limits{MaxBindingBytes: 64 << 10}}
	got, p := train(t, small, moments, gentle, 60)
	if n := len(p.Blocks()); n < 3 {
		t.Fatalf("%d blocks, want several", n)
	}
	closeTo(t, "arenas", got, want, 2e-6)
}

type limited struct {
	*cpu.Backend
	lim op.Limits
}

func (l limited) Limits() op.Limits { return l.lim }

func TestErrorText(t *testing.T) {
	e := &optim.NonFiniteError{InRow: 2}
	for _, n := range []string{"a", "b", "c", "d", "e", "f"} {
		e.Culprits = append(e.Culprits, optim.Culprit{Name: n, Count: 1})
	}
	if s := e.Error(); !strings.Contains(s, "a (1), b (1), c (1), and 3 more tensors") || !strings.Contains(s, "lower the learning rate") {
		t.Error(s)
	}
}
