package webgpu

import (
	"bytes"
	"testing"

	"tezgah/gpu"
	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// TestRoundedWeightsGiveTheSameBits trains on matrix units with copies of the weights in
// the type that products round to, which the optimizer writes, and without: losses and
// weights are equal to the last bit. Some matrices lie as products read them and some
// have to be padded.
func TestRoundedWeightsGiveTheSameBits(t *testing.T) {
	b := matrixBackend(t)
	defer b.Close()
	even := model.Config{VocabSize: 128, Context: 40, DModel: 64, Layers: 2, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 128, Tied: true}
	ragged := model.Config{VocabSize: 131, Context: 40, DModel: 48, Layers: 1, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 81}
	full := model.ParamOptions{Grads: true, Moments: true}
	for _, m := range []struct {
		name string
		cfg  model.Config
		p    model.ParamOptions
		o    model.TrainOptions
	}{
		{"tied", even, full, model.TrainOptions{Batch: 1}},
		{"untied, ragged, 8-bit moments, recompute", ragged, model.ParamOptions{Grads: true, Moments8: true}, model.TrainOptions{Batch: 2, Recompute: true}},
		{"adapter", even, model.ParamOptions{Grads: true, Moments: true, LoRA: model.LoRA{Rank: 3}}, model.TrainOptions{Batch: 1}},
	} {
		for _, typ := range b.Rounding() {
			t.Run(m.name+" "+typ.String(), func(t *testing.T) {
				want, wantLoss := trainRounded(t, b, m.cfg, m.p, m.o, typ)
				with := m.p
				with.Rounded = typ
				got, loss := trainRounded(t, b, m.cfg, with, m.o, typ)
				if loss[0] != wantLoss[0] || loss[2] != wantLoss[2] || !bytes.Equal(got, want) {
					t.Errorf("losses %v, without copies %v; weights equal: %v", loss, wantLoss, bytes.Equal(got, want))
				}
			})
		}
	}
}

// trainRounded takes three steps and returns what was trained, and the losses. Of what
// products have converted and is still held, nothing may be a float32 weight where there
// are copies, nor a copy that lies as it is read.
func trainRounded(t *testing.T, b *Backend, cfg model.Config, o model.ParamOptions, opt model.TrainOptions, typ tensor.DType) (weights []byte, losses [3]float64) {
	t.Helper()
	ok := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	ok(b.RoundProducts(typ))
	defer b.RoundProducts(tensor.F32)
	r := op.NewRunner(b)
	p, err := model.NewParams(r, cfg, o)
	ok(err)
	defer p.Close()
	ok(p.Init(7))
	g, err := model.NewGraph(r, p, opt)
	ok(err)
	defer g.Close()
	a, err := optim.New(r, p, optim.Defaults())
	ok(err)
	tokens, targets := make([]int32, g.Rows()), make([]int32, g.Rows())
	for i := range tokens {
		tokens[i], targets[i] = int32(i*13%cfg.VocabSize), int32((i*7+1)%cfg.VocabSize)
	}
	master, copies := p.Blocks()[0].W, p.Blocks()[0].W16
	for step := range losses {
		ok(g.Evaluate(tokens, targets, nil))
		converted := checkHeld(t, b, master, copies)
		ok(g.MicroStep(tokens, targets, nil, 1/float32(len(tokens))))
		if converted += checkHeld(t, b, master, copies); (converted == 0) != copies.Ok() {
			t.Errorf("%d float32 weights were converted, with copies: %v", converted, copies.Ok())
		}
		losses[step], err = g.LossSum()
		ok(err)
		_, err = a.Step(1e-2)
		ok(err)
	}
	if losses[2] == losses[0] {
		t.Fatalf("losses %v: nothing was learned", losses)
	}
	for _, s := range p.Trainable().Weights() {
		v := make([]float32, s.T.Len())
		ok(op.ReadSlice(r, v, s.T))
		weights = append(weights, gpu.Bytes(v)...)
	}
	return weights, losses
}

// checkHeld looks at the conversions that are held and counts those of float32 weights.
func checkHeld(t *testing.T, b *Backend, master, copies op.Tensor) (converted int) {
	t.Helper()
	for _, h := range b.matrix.converted.held {
		padded := h.outRows != h.rows || h.width != h.cols
		switch {
		case holds(master, h):
			converted++
		case copies.Ok() && holds(copies, h) && !h.turn && !padded:
			t.Errorf("a copy of %d×%d that lies as it is read was converted", h.rows, h.cols)
		}
	}
	return converted
}

// holds reports whether a conversion was made from a tensor's memory.
func holds(t op.Tensor, h conversion) bool {
	mem, offset, n := place(t)
	return h.from == mem && h.offset < offset+n && offset < h.to
}
