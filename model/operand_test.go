package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// rounding is the reference with buffers of 16 bits full of NaN.
type rounding struct{ *ref.Backend[float32] }

func (r rounding) Alloc(label string, t tensor.DType, n int) (op.Buffer, error) {
	b, err := r.Backend.Alloc(label, t, n)
	if err != nil || t.Size() != 2 {
		return b, err
	}
	return b, r.Write(op.Of(b, 0, n), slices.Repeat([]byte{0xff}, 2*n))
}

// operandModes are graphs that differ in which activations they have.
var operandModes = []struct {
	name string
	cfg  Config
	p    ParamOptions
	o    TrainOptions
}{
	{"tied", tinyTied, ParamOptions{Grads: true}, TrainOptions{Batch: 2}},
	{"untied, smoothing, recompute", tinyUntied, ParamOptions{Grads: true}, TrainOptions{Batch: 3, Recompute: true, LabelSmoothing: 0.1, ZLoss: 1e-3}},
	{"loss chunks, document mask", odd, ParamOptions{Grads: true}, TrainOptions{Batch: 2, DocMask: true, LossChunkRows: 1}},
	{"adapter", tinyTied, ParamOptions{Grads: true, LoRA: loraOf(3, "all")}, TrainOptions{Batch: 2}},
	{"adapter on some, recompute", tinyUntied, ParamOptions{Grads: true, LoRA: loraOf(2, "q,up,down")}, TrainOptions{Batch: 2, Recompute: true}},
	{"evaluation", tinyUntied, ParamOptions{}, TrainOptions{Batch: 2}},
}

// TestOperandsChangeNothing holds a graph with operand tensors of 16 bits against the
// same graph in float32, with products that round their inputs in both: what is
// rounded before it is stored has the bits of what is rounded as it is read, so loss,
// logits and gradients are equal to the bit.
func TestOperandsChangeNothing(t *testing.T) {
	for _, m := range operandModes {
		for _, typ := range []tensor.DType{tensor.BF16, tensor.F16} {
			t.Run(fmt.Sprintf("%s %v", m.name, typ), func(t *testing.T) {
				b := rounding{ref.New[float32]()}
				p := must[*Params](t)(NewParams(op.NewRunner(b), m.cfg, m.p))
				fill(t, p)
				if p.Adapter() != nil {
					fillAdapter(t, p)
				}
				wide := must[*Graph](t)(NewGraph(p.r, p, m.o))
				if err := b.RoundProducts(typ); err != nil {
					t.Fatal(err)
				}
				narrow := must[*Graph](t)(NewGraph(p.r, p, m.o))
				if wide.blocks[0].y1.Type() != tensor.F32 || narrow.blocks[0].y1.Type() != typ {
					t.Fatalf("y1 is %v and %v", wide.blocks[0].y1.Type(), narrow.blocks[0].y1.Type())
				}
				sameGraphs(t, wide, narrow)
			})
		}
	}
}

// sameGraphs runs both graphs on one batch.
func sameGraphs(t *testing.T, a, b *Graph) {
	t.Helper()
	tokens, targets := batchOf(a.cfg, a.opt.Batch, a.opt.Context, 3)
	var doc []int32
	if a.opt.DocMask {
		doc = docStarts(a.opt.Batch, a.opt.Context, 5)
	}
	var losses [2][]float32
	var grads [2]map[string][]float32
	for i, g := range []*Graph{a, b} {
		if err := g.Evaluate(tokens, targets, doc); err != nil {
			t.Fatal(err)
		}
		losses[i] = append(losses[i], float32(must[float64](t)(g.LossSum())))
		if !g.p.trains() {
			continue
		}
		zeroGrads(g.p.Trainable())
		if err := g.MicroStep(tokens, targets, doc, 1/float32(CountTargets(targets))); err != nil {
			t.Fatal(err)
		}
		losses[i] = append(losses[i], float32(must[float64](t)(g.LossSum())))
		grads[i] = grads32(t, g.p.Trainable())
	}
	sameBits(t, "losses", losses[0], losses[1])
	sameBits(t, "logits", allLogits(t, a, tokens, doc), allLogits(t, b, tokens, doc))
	moved := a.p.trains()
	for name := range grads[0] {
		sameBits(t, "d"+name, grads[0][name], grads[1][name])
		moved = moved && slices.ContainsFunc(grads[0][name], func(x float32) bool { return x != 0 })
	}
	if a.p.trains() && (!moved || len(grads[0]) == 0) {
		t.Error("a gradient is zero everywhere, which proves nothing")
	}
}

// TestOperandMemory: what is predicted for operand tensors is allocated, to the byte,
// and is less than in float32 where layers keep their activations.
func TestOperandMemory(t *testing.T) {
	for _, m := range operandModes {
		b := ref.New[float32]()
		b.RoundProducts(tensor.BF16)
		lim := op.Limits{}
		plan := must[Plan](t)(PredictMemory(m.cfg, m.p, m.o, lim, tensor.BF16))
		p := must[*Params](t)(NewParams(op.NewRunner(b), m.cfg, m.p))
		must[*Graph](t)(NewGraph(p.r, p, m.o))
		if now, _ := b.MemoryBytes(); now != plan.Total() {
			t.Errorf("%s: %d bytes allocated, predicted %d\n%v", m.name, now, plan.Total(), plan)
		}
		exact := must[Plan](t)(PredictMemory(m.cfg, m.p, m.o, lim, tensor.F32))
		if plan.Total() == exact.Total() || m.name == "evaluation" && plan.Total() > exact.Total() {
			t.Errorf("%s: %d bytes, in float32 %d", m.name, plan.Total(), exact.Total())
		}
	}
	small := must[Config](t)(Preset("small"))
	total := func(typ tensor.DType) int64 {
		return must[Plan](t)(PredictMemory(small, ParamOptions{Grads: true, Moments: true}, TrainOptions{Batch: 8}, op.Limits{}, typ)).Total()
	}
	// A layer keeps y1, y2 (C each) and glu (F) at half; scratch and loss need more.
	saved, rows := total(tensor.F32)-total(tensor.BF16), int64(8*small.Context)
	if most := 2 * rows * int64(small.Layers*(2*small.DModel+small.FFN)); saved < most*6/10 || saved > most {
		t.Errorf("operand tensors save %d bytes, want a good part of %d", saved, most)
	}
}

// TestOperandsNeedTheirRounding: a graph with operand tensors of 16 bits does not run
// when products no longer round to them, and says why.
func TestOperandsNeedTheirRounding(t *testing.T) {
	b := ref.New[float32]()
	b.RoundProducts(tensor.BF16)
	p := must[*Params](t)(NewParams(op.NewRunner(b), tinyTied, ParamOptions{}))
	fill(t, p)
	g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2}))
	tokens, targets := batchOf(tinyTied, 2, tinyTied.Context, 3)
	for _, now := range []tensor.DType{tensor.F32, tensor.F16} {
		b.RoundProducts(now)
		err := g.Evaluate(tokens, targets, nil)
		if err == nil || !strings.Contains(err.Error(), "is BF16") || !strings.Contains(err.Error(), "RoundProducts") {
			t.Errorf("evaluation while products round to %v: %v", now, err)
		}
		p.r.Reset()
	}
	b.RoundProducts(tensor.BF16)
	if err := g.Evaluate(tokens, targets, nil); err != nil {
		t.Error(err)
	}
}
