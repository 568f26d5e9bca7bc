package model

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// sumCase is a kind of model for which gradients begin differently.
type sumCase struct {
	name string
	cfg  Config
	p    ParamOptions
}

func sumCases() []sumCase {
	untied := odd
	untied.Tied = false
	all := ParamOptions{Grads: true}
	return []sumCase{
		{"tied", odd, all},
		{"untied", untied, all},
		{"float16 mirror", odd, ParamOptions{Grads: true, Mirror: true}},
		{"adapter", odd, ParamOptions{Grads: true, LoRA: loraOf(2, "all")}},
		{"adapter on q and down", untied, ParamOptions{Grads: true, LoRA: loraOf(3, "q,down")}},
	}
}

// spoilGrads fills every gradient with NaN.
func spoilGrads(p *Params) {
	for _, s := range p.Grads() {
		nan := make([]float32, s.T.Len())
		for i := range nan {
			nan[i] = float32(math.NaN())
		}
		op.WriteSlice(p.r, s.T, nan)
	}
}

// descend takes a step of plain gradient descent, W −= G/2.
func descend(t *testing.T, p *Params) {
	t.Helper()
	for i, s := range p.Grads() {
		w, g := read32(t, p.r, p.Weights()[i].T), read32(t, p.r, s.T)
		for j := range w {
			w[j] -= g[j] / 2
		}
		op.WriteSlice(p.r, p.Weights()[i].T, w)
	}
	p.stale = true
}

// descent takes three updates of three micro-steps with two graphs, one of which has
// two chunks of logits, and returns the gradients of each update and the last weights.
// begin makes the gradients ready for the first micro-step of an update.
func descent(t *testing.T, c sumCase, begin func(p *Params)) (all []map[string][]float32) {
	t.Helper()
	p := cpuParams(t, 2, c.cfg, c.p)
	if p.Adapter() != nil {
		fillAdapter(t, p)
	}
	large := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 3, LossChunkRows: 256}))
	small := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2, Context: 7}))
	p = p.Trainable()
	for update := range 3 {
		begin(p)
		for micro := range 3 {
			g := large
			if (update+micro)%2 == 1 {
				g = small
			}
			tokens, targets := batchOf(c.cfg, g.opt.Batch, g.opt.Context, uint32(3*update+micro))
			if err := g.MicroStep(tokens, targets, nil, 0.01); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, grads32(t, p))
		descend(t, p)
	}
	weights := map[string][]float32{}
	for _, s := range p.Weights() {
		weights[s.Name] = read32(t, p.r, s.T)
	}
	return append(all, weights)
}

// TestFirstMicroStepWrites: whatever is in the gradients when an update begins, here
// NaN, they come out as if they had been cleared and every micro-step had added to
// them, to the bit; and so do the weights.
func TestFirstMicroStepWrites(t *testing.T) {
	for _, c := range sumCases() {
		t.Run(c.name, func(t *testing.T) {
			want := descent(t, c, func(p *Params) { zeroGrads(p); p.summing = true })
			got := descent(t, c, func(p *Params) { p.DropGrads(); spoilGrads(p) })
			for i := range want {
				what := fmt.Sprintf("update %d: d", i)
				if i == 3 {
					what = "weights: "
				}
				if len(got[i]) != len(want[i]) || len(want[i]) == 0 {
					t.Fatalf("%s%d tensors, want %d", what, len(got[i]), len(want[i]))
				}
				for name, w := range want[i] {
					near(t, what+name, w, w, 0) // finite, and not all 0
					sameBits(t, what+name, got[i][name], w)
				}
			}
		})
	}
}

// TestGradsClearedFirst counts what the first micro-step clears: gains, and an embedding
// that no product covers. Later ones clear nothing, and no adapter needs it.
func TestGradsClearedFirst(t *testing.T) {
	for _, c := range sumCases() {
		cfg := c.cfg.WithDefaults()
		want := (2*cfg.Layers + 1) * alignUp(cfg.DModel, op.AlignElems)
		if !cfg.Tied {
			want += cfg.VocabSize * cfg.DModel
		}
		if c.p.LoRA.Ok() {
			want = 0
		}
		p := cpuParams(t, 1, c.cfg, c.p)
		g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 1, Context: 7}))
		tokens, targets := batchOf(c.cfg, 1, 7, 3)
		for i, want := range []int{want, 0, want} {
			if i == 2 {
				p.Trainable().DropGrads()
			}
			var profile op.Profile
			p.r.SetProfile(&profile)
			if err := g.MicroStep(tokens, targets, nil, 1); err != nil {
				t.Fatal(err)
			}
			got := int64(0)
			for _, row := range profile.Rows() {
				if row.Label == "zero" {
					got = row.Bytes
				}
			}
			if got != 4*int64(want) {
				t.Errorf("%s: micro-step %d clears %d bytes, want %d", c.name, i, got, 4*want)
			}
		}
	}
}

// TestGradsRounded: products that round write the gradients too, from operand tensors.
func TestGradsRounded(t *testing.T) {
	for _, m := range operandModes {
		if !m.p.Grads {
			continue
		}
		for _, typ := range []tensor.DType{tensor.BF16, tensor.F16} {
			b := rounding{ref.New[float32]()}
			if err := b.RoundProducts(typ); err != nil {
				t.Fatal(err)
			}
			m.p.Rounded = typ
			p := must[*Params](t)(NewParams(op.NewRunner(b), m.cfg, m.p))
			fill(t, p)
			if p.Adapter() != nil {
				fillAdapter(t, p)
			}
			g := must[*Graph](t)(NewGraph(p.r, p, m.o))
			p.Trainable().summing = true
			want := runOperands(t, g) // adds to zeros
			p.Trainable().DropGrads()
			spoilGrads(p.Trainable())
			var doc []int32
			if m.o.DocMask {
				doc = docStarts(g.opt.Batch, g.opt.Context, 5)
			}
			tokens, targets := batchOf(g.cfg, g.opt.Batch, g.opt.Context, 3)
			if err := g.MicroStep(tokens, targets, doc, 1/float32(CountTargets(targets))); err != nil {
				t.Fatal(err)
			}
			for name, got := range grads32(t, p.Trainable()) {
				sameBits(t, fmt.Sprintf("%s %v: d%s", m.name, typ, name), got, want.grads[name])
			}
		}
	}
}

// failing is a backend whose norms' backward passes fail when left is 0.
type failing struct {
	op.Backend
	left *int
}

func (f failing) RMSNormBackward(a op.RMSNormBackward) error {
	if *f.left--; *f.left == -1 {
		return errors.New("lost (test)")
	}
	return f.Backend.RMSNormBackward(a)
}

// TestGradsAfterErrors: a micro-step that fails on the way drops the gradients, so that
// after Reset a new update begins with whichever comes next; a batch that is refused
// touches nothing.
func TestGradsAfterErrors(t *testing.T) {
	b := must[*cpu.Backend](t)(cpu.New(cpu.Options{Threads: 1}))
	defer b.Close()
	left := -1
	for _, cfg := range []Config{tinyTied, tinyUntied} {
		p := must[*Params](t)(NewParams(op.NewRunner(failing{b, &left}), cfg, ParamOptions{Grads: true}))
		fill(t, p)
		g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2, Context: 7}))
		tokens, targets := batchOf(cfg, 2, 7, 3)
		micro := func() error { return g.MicroStep(tokens, targets, nil, 0.1) }
		check := func(err error) {
			if err != nil {
				t.Helper()
				t.Fatal(err)
			}
		}
		check(micro())
		one := grads32(t, p)
		check(micro())
		two := grads32(t, p)
		near(t, "dfinal_norm", one["final_norm"], one["final_norm"], 0) // there is something to compare
		p.DropGrads()
		for calls := range 4 {
			check(micro()) // the first of an update whose second fails
			left = calls
			if err := micro(); err == nil {
				t.Fatalf("call %d did not fail", calls)
			}
			left = -1
			p.r.Reset()
			check(micro())
			for name, got := range grads32(t, p) {
				sameBits(t, fmt.Sprintf("after a failure at call %d: d%s", calls, name), got, one[name])
			}
			if err := g.MicroStep(tokens, targets[1:], nil, 0.1); err == nil {
				t.Fatal("a batch that is too short was taken")
			}
			check(micro())
			for name, got := range grads32(t, p) {
				sameBits(t, "after a refused batch: d"+name, got, two[name])
			}
			p.DropGrads()
		}
	}
}
