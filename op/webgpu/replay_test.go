package webgpu

import (
	"bytes"
	"runtime"
	"testing"

	"tezgah/gpu"
	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// TestStepsGiveTheSameBits trains a small model with different text and learning
// rates each step. While kernels are timed every step is recorded; without it
// steps are submitted again. Weights must come out alike to the last bit, also
// when both take turns, and for each type that products may round to.
func TestStepsGiveTheSameBits(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("a browser records every step")
	}
	b := open(t, gpu.Options{}, Options{})
	defer b.Close()
	if ok, err := b.StartTiming(); err != nil || !ok {
		t.Skip("no timestamps: nothing to compare with")
	}
	if _, err := b.StopTiming(); err != nil {
		t.Fatal(err)
	}
	for _, input := range append([]tensor.DType{tensor.F32}, b.Rounding()...) {
		if err := b.RoundProducts(input); err != nil {
			t.Fatal(err)
		}
		o := model.ParamOptions{Grads: true, Moments: true, Rounded: model.RoundedOn(b.Limits(), input)}
		o.Mirror = input == tensor.F32 && b.Limits().F16
		recorded := trainBits(t, b, o, func(int) bool { return true })
		again := trainBits(t, b, o, func(int) bool { return false })
		turns := trainBits(t, b, o, func(step int) bool { return step%3 == 1 })
		if !bytes.Equal(recorded, again) || !bytes.Equal(recorded, turns) {
			t.Errorf("%v: submitted again %v, in turns %v; want the bits of recorded steps", input, bytes.Equal(recorded, again), bytes.Equal(recorded, turns))
		}
	}
}

// trainBits takes eight steps of two micro-steps and returns the weights; timed
// says in which steps kernels are timed.
func trainBits(t *testing.T, b *Backend, o model.ParamOptions, timed func(step int) bool) []byte {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	const T = 33
	cfg := model.Config{VocabSize: 60, Context: T, DModel: 32, Layers: 2, Heads: 4, KVHeads: 2, FFN: 48, Tied: true}
	r := op.NewRunner(b)
	p, err := model.NewParams(r, cfg, o)
	ok(err)
	defer p.Close()
	ok(p.Init(5))
	g, err := model.NewGraph(r, p, model.TrainOptions{Batch: 1})
	ok(err)
	defer g.Close()
	a, err := optim.New(r, p, optim.Defaults())
	ok(err)
	tokens, targets := make([]int32, T), make([]int32, T)
	for step := range 8 {
		if timed(step) {
			_, err := b.StartTiming()
			ok(err)
		}
		for micro := range 2 {
			for i := range tokens {
				tokens[i], targets[i] = int32((step*7+micro+i*5)%60), int32((step*7+micro+i*5+1)%60)
			}
			ok(g.MicroStep(tokens, targets, nil, 1.0/(2*T)))
		}
		sum, err := g.LossSum()
		if ok(err); !(sum > 1 && sum < 2*T*6) {
			t.Fatalf("step %d: the losses of %d rows add up to %g", step, 2*T, sum)
		}
		_, err = a.Step(1e-2 / float64(step+1))
		ok(err)
		if timed(step) {
			times, err := b.StopTiming()
			ok(err)
			if len(times) < 50 {
				t.Fatalf("%d kernels were timed in a step", len(times))
			}
		}
	}
	var out bytes.Buffer
	for _, s := range p.Weights() {
		v := make([]float32, s.T.Len())
		ok(op.ReadSlice(r, v, s.T))
		out.Write(gpu.Bytes(v))
	}
	return out.Bytes()
}
