package webgpu

import (
	"bytes"
	"math"
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

// TestMirrorHasTheBitsOfAConversion compares what AdamW writes beside weights, with either
// kind of moments, and what Cast makes of them, with what products would convert them to:
// every kind of value but those beyond float16's range, which a mirror keeps finite. It
// needs no matrix units.
func TestMirrorHasTheBitsOfAConversion(t *testing.T) {
	b := open(t, gpu.Options{}, Options{})
	defer b.Close()
	const n = 1024
	w := make([]float32, n)
	rng := tensor.NewRNG(3, 4)
	rng.Normal(w, 0, 1)
	for i, x := range []float32{float32(math.NaN()), math.Float32frombits(0xffc12345), math.Float32frombits(0x7f800001), 0x1p-24, 0x1.8p-24, 0x1.000002p-25, 0x1p-15,
		0x1.ffep-15, 1 + 1.0/256, 1 + 3.0/256, 1 + 1.0/2048, 1 + 3.0/2048, 65504, -65519.996, float32(math.Copysign(0, -1)), 0} {
		w[7*i], w[500+9*i] = x, x
	}
	r := op.NewRunner(b)
	alloc := func(label string, typ tensor.DType, n int) op.Tensor {
		buf, err := b.Alloc(label, typ, n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Free(buf) })
		return op.Of(buf, 0, n)
	}
	f32 := func(label string, n int) op.Tensor { return alloc(label, tensor.F32, n) }
	stats := f32("stats", 4)
	op.WriteSlice(r, stats, []float32{1, 1, 0, 0})
	hyper := op.AdamHyper{Beta1: 0.9, Beta2: 0.95, Beta1Pow: 0.9, Beta2Pow: 0.95, Eps: 1e-8} // LR 0: weights stay
	for _, typ := range []tensor.DType{tensor.BF16, tensor.F16} {
		if typ == tensor.F16 && !b.Limits().F16 {
			continue
		}
		weights, g := f32("w", n), f32("g", n)
		op.WriteSlice(r, weights, w)
		b.matrix.rounding = typ
		o, err := b.operandOf(factor{t: weights.Reshape(16, 64), rows: 16, cols: 64})
		b.matrix.rounding = tensor.F32
		if err != nil {
			t.Fatal(err)
		}
		want := make([]byte, 2*n)
		if err := b.dev.Download(o.mem, o.offset, want); err != nil {
			t.Fatal(err)
		}
		mirror := alloc("w16", typ, n)
		for form, write := range map[string]func(){
			"adamw": func() {
				r.AdamW(op.AdamW{W: weights, G: g, M: f32("m", n), V: f32("v", n), W16: mirror, Stats: stats, AdamHyper: hyper})
			},
			"adamw8": func() {
				r.AdamW8(op.AdamW8{W: weights, G: g, M: alloc("m", tensor.I8, n), V: alloc("v", tensor.I8, n), MScale: f32("m_scale", n/op.MomentBlock),
					VScale: f32("v_scale", n/op.MomentBlock), W16: mirror, Stats: stats, AdamHyper: hyper})
			},
			"cast": func() { r.Cast(op.Cast{Dst: mirror, Src: weights}) },
		} {
			r.Zero(mirror)
			write()
			got := make([]byte, 2*n)
			if err := r.Read(got, mirror); err != nil {
				t.Fatal(err)
			}
			for i, x := range w {
				same := bytes.Equal(got[2*i:2*i+2], want[2*i:2*i+2])
				if !same && !(x != x && isNaN16(typ, got[2*i:]) && isNaN16(typ, want[2*i:])) {
					t.Errorf("%v by %s: %v became %x, a product converts it to %x", typ, form, x, got[2*i:2*i+2], want[2*i:2*i+2])
				}
			}
		}
	}
}

// isNaN16 reports whether the first 16-bit float of b is NaN: arithmetic may change its
// payload.
func isNaN16(typ tensor.DType, b []byte) bool {
	bits, inf := uint16(b[0])|uint16(b[1])<<8, uint16(0x7f80)
	if typ == tensor.F16 {
		inf = 0x7c00
	}
	return bits&0x7fff > inf
}
