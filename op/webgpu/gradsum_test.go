package webgpu

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"testing"

	"tezgah/gpu"
	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// TestFirstMicroStepWrites trains a small model in every precision that the device has,
// with gradients full of NaN before each update: the first micro-step writes them, the
// second adds, and so does the second chunk of the head's rows. The weights must have
// the bits of a run in which every micro-step adds to gradients that were cleared.
func TestFirstMicroStepWrites(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("a browser compiles a model's kernels for half a minute, and the calls are the same on Vulkan")
	}
	b := open(t, gpu.Options{}, Options{})
	defer b.Close()
	defer b.RoundProducts(tensor.F32)
	for _, input := range append([]tensor.DType{tensor.F32}, b.Rounding()...) {
		if err := b.RoundProducts(input); err != nil {
			t.Fatal(err)
		}
		copies := model.RoundedOn(b.Limits(), input)
		for _, c := range []struct {
			tied bool
			o    model.ParamOptions
		}{
			{true, model.ParamOptions{Grads: true, Moments: true, Rounded: copies}},
			{false, model.ParamOptions{Grads: true, Moments8: true, Rounded: copies}},
			{false, model.ParamOptions{Grads: true, Moments: true, Mirror: copies == tensor.F32 && b.Limits().F16, LoRA: model.LoRA{Rank: 3, Targets: "q,up,down"}}},
		} {
			t.Run(fmt.Sprintf("%v tied=%t adapter=%t", input, c.tied, c.o.LoRA.Ok()), func(t *testing.T) {
				zero, nan := float32(0), float32(math.NaN())
				want := gradSumBits(t, b, c.tied, c.o, &zero, true)
				if got := gradSumBits(t, b, c.tied, c.o, &nan, false); !bytes.Equal(got, want) {
					t.Error("with NaN in the gradients before each update the weights differ")
				}
				if got := gradSumBits(t, b, c.tied, c.o, nil, false); !bytes.Equal(got, want) {
					t.Error("with the last update's gradients before each update the weights differ")
				}
			})
		}
	}
}

// gradSumBits takes three updates of two micro-steps and returns the weights. Before each
// all gradients are filled, unless with is nil. With adds the first micro-step, too, adds
// to them.
func gradSumBits(t *testing.T, b *Backend, tied bool, o model.ParamOptions, with *float32, adds bool) []byte {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	const B, T = 9, 32
	cfg := model.Config{VocabSize: 60, Context: T, DModel: 32, Layers: 1, Heads: 4, KVHeads: 2, FFN: 48, Tied: tied}
	r := op.NewRunner(b)
	p, err := model.NewParams(r, cfg, o)
	ok(err)
	defer p.Close()
	ok(p.Init(5))
	g, err := model.NewGraph(r, p, model.TrainOptions{Batch: B, LossChunkRows: 256})
	ok(err)
	defer g.Close()
	a, err := optim.New(r, p, optim.Defaults())
	ok(err)
	p = p.Trainable()
	tokens, targets := make([]int32, B*T), make([]int32, B*T)
	micro := func(seed int) {
		for i := range tokens {
			tokens[i], targets[i] = int32((seed*7+i*5)%59), int32((seed*7+i*5+1)%60)
		}
		ok(g.MicroStep(tokens, targets, nil, 1.0/(2*B*T)))
	}
	for update := range 3 {
		if adds {
			micro(0) // begins a sum
		}
		for _, s := range p.Grads() {
			if with != nil {
				v := make([]float32, s.T.Len())
				for i := range v {
					v[i] = *with
				}
				op.WriteSlice(r, s.T, v)
			}
		}
		micro(update)
		micro(update + 10)
		s, err := a.Step(1e-2)
		if ok(err); s.NonFinite > 0 || !(s.Norm > 0) {
			t.Fatalf("update %d: %+v", update, s)
		}
	}
	var out bytes.Buffer
	for _, s := range append(p.Weights(), p.Moments()...) {
		ok(p.ReadTo(&out, s))
	}
	return out.Bytes()
}
