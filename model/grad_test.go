package model

import (
	"fmt"
	"math"
	"testing"
)

// TestGradients compares every kind of gradient of whole models with central
// differences in float64. The error of a difference is about h²·|f”'|/6 +
// 2^-52·|f|/h: with h = 1e-5 and losses near 100, 1e-10 and 2e-9, against
// gradients of 1e-2 and above.
func TestGradients(t *testing.T) {
	cases := []struct {
		name string
		cfg  Config
		opt  TrainOptions
	}{
		{"tied", tinyTied, TrainOptions{Batch: 2, Context: 7}},
		{"tied_recompute_docmask", tinyTied, TrainOptions{Batch: 2, Context: 9, Recompute: true, DocMask: true, ZLoss: 0.01}},
		{"untied_gelu_smooth", tinyUntied, TrainOptions{Batch: 3, Context: 5, LabelSmoothing: 0.125, ZLoss: 0.02}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { checkGradients(t, c.cfg, c.opt) })
	}
}

func checkGradients(t *testing.T, cfg Config, opt TrainOptions) {
	m := newRef64(t, cfg, ParamOptions{Grads: true})
	g := m.graph(t, opt)
	tokens, targets := batchOf(g.cfg, opt.Batch, g.opt.Context, 5)
	var starts []int32
	if opt.DocMask {
		starts = docStarts(opt.Batch, g.opt.Context, 4)
	}
	const scale = 0.5
	loss := func() float64 {
		if err := g.MicroStep(tokens, targets, starts, scale); err != nil {
			t.Fatal(err)
		}
		return m.takeLoss(g) * scale
	}
	loss()
	grads := m.grads()
	const h = 1e-5
	for _, s := range m.p.Weights() {
		w := m.data(s.T)
		var got, want []float64
		for i := 0; i < len(w); i += 1 + len(w)/11 { // a dozen elements of each tensor
			old := w[i]
			w[i] = old + h
			up := loss()
			w[i] = old - h
			down := loss()
			w[i] = old
			want = append(want, (up-down)/(2*h))
			got = append(got, grads[s.Name][i])
		}
		near(t, "d"+s.Name, got, want, 1e-6)
	}
}

// TestAccumulation splits a batch into micro-steps: the sum of their gradients
// is that of the whole batch when the scale is 1/(targets of the whole step).
func TestAccumulation(t *testing.T) {
	for _, cfg := range []Config{tinyTied, tinyUntied} {
		const B, T = 4, 6
		tokens, targets := batchOf(cfg, B, T, 9)
		scale := 1 / float32(CountTargets(targets))
		run := func(b int) (map[string][]float64, float64) {
			m := newRef64(t, cfg, ParamOptions{Grads: true})
			g := m.graph(t, TrainOptions{Batch: b, Context: T, LabelSmoothing: 0.1})
			for lo := 0; lo < B*T; lo += b * T {
				if err := g.MicroStep(tokens[lo:lo+b*T], targets[lo:lo+b*T], nil, scale); err != nil {
					t.Fatal(err)
				}
			}
			return m.grads(), m.takeLoss(g)
		}
		want, wantLoss := run(B)
		for _, b := range []int{1, 2} {
			got, gotLoss := run(b)
			if math.Abs(gotLoss-wantLoss) > 1e-12*wantLoss {
				t.Errorf("batch %d: loss %v, want %v", b, gotLoss, wantLoss)
			}
			for name := range want {
				near(t, fmt.Sprintf("batch %d: d%s", b, name), got[name], want[name], 1e-12)
			}
		}
	}
}

// TestDocMask packs documents into rows and compares with each document alone:
// RoPE depends on distances only, so positions need not begin anew.
func TestDocMask(t *testing.T) {
	const B, T, period = 2, 8, 3
	tokens, targets := batchOf(tinyTied, B, T, 21)
	starts := docStarts(B, T, period)
	m := newRef64(t, tinyTied, ParamOptions{Grads: true})
	g := m.graph(t, TrainOptions{Batch: B, Context: T, DocMask: true})
	if err := g.MicroStep(tokens, targets, starts, 1); err != nil {
		t.Fatal(err)
	}
	packed, packedLoss := m.grads(), m.takeLoss(g)

	m.clearGrads()
	alone := 0.0
	for lo := 0; lo < B*T; {
		hi := lo + 1
		for hi < B*T && hi%T != 0 && starts[hi] == starts[lo] {
			hi++
		}
		d := m.graph(t, TrainOptions{Batch: 1, Context: hi - lo})
		if err := d.MicroStep(tokens[lo:hi], targets[lo:hi], nil, 1); err != nil {
			t.Fatal(err)
		}
		alone += m.takeLoss(d)
		lo = hi
	}
	if math.Abs(packedLoss-alone) > 1e-6*alone { // the float32 RoPE table differs by position
		t.Errorf("loss of packed documents %v, of each alone %v", packedLoss, alone)
	}
	for name, want := range m.grads() {
		near(t, "d"+name, packed[name], want, 1e-6)
	}
	// The mask must matter, or this test proves nothing.
	open := newRef64(t, tinyTied, ParamOptions{Grads: true})
	og := open.graph(t, TrainOptions{Batch: B, Context: T})
	if err := og.MicroStep(tokens, targets, nil, 1); err != nil {
		t.Fatal(err)
	}
	if l := open.takeLoss(og); math.Abs(l-alone) < 1e-3*alone {
		t.Errorf("loss without the mask is %v, with it %v: want a clear difference", l, alone)
	}
}
