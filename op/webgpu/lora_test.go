package webgpu

import (
	"math"
	"testing"

	"tezgah/gpu"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/ref"
)

// TestLoRA trains an adapter two micro-steps on the GPU and on the reference in
// float64, and compares its gradients, the logits with it, and those after
// merging. The ranks are a multiple of four, which the vectorised products and
// groups take, and an odd one.
func TestLoRA(t *testing.T) {
	b := open(t, gpu.Options{}, Options{})
	defer b.Close()
	for _, l := range []model.LoRA{{Rank: 4, Targets: "all"}, {Rank: 3, Alpha: 2, Targets: "q,v,o,down"}} {
		want := loraStep(t, ref.New[float64](), l)
		got := loraStep(t, b, l)
		for name, w := range want {
			top, sum := 0.0, 0.0
			for _, v := range w {
				top, sum = max(top, math.Abs(float64(v))), sum+math.Abs(float64(v))
			}
			if sum == 0 || len(got[name]) != len(w) {
				t.Fatalf("%v %s: %d values, want %d that are not all 0", l, name, len(got[name]), len(w))
			}
			for i, v := range got[name] {
				// A few hundred roundings of float32.
				if d := math.Abs(float64(v) - float64(w[i])); !(d <= 300*math.Exp2(-24)*top) {
					t.Fatalf("%v %s[%d]: got %v, want %v", l, name, i, v, w[i])
				}
			}
		}
	}
}

// loraStep returns the gradients of a small model's adapter and its logits
// before and after merging.
func loraStep(t *testing.T, b op.Backend, l model.LoRA) map[string][]float32 {
	t.Helper()
	const B, T = 2, 24
	cfg := model.Config{VocabSize: 50, Context: T, DModel: 32, Layers: 2, Heads: 4, KVHeads: 2, FFN: 48, Tied: true, InitStd: 0.2}
	ok := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	p, err := model.NewParams(op.NewRunner(b), cfg, model.ParamOptions{Grads: true, LoRA: l})
	ok(err)
	defer p.Close()
	ok(p.Init(3))
	a := p.Adapter()
	read := func(x op.Tensor) []float32 {
		v := make([]float32, x.Len())
		ok(op.ReadSlice(p.Runner(), v, x))
		return v
	}
	for _, s := range a.Weights() { // B is zero: give it something
		v := read(s.T)
		for i := range v {
			v[i] += float32(i%7-3) / 40
		}
		op.WriteSlice(p.Runner(), s.T, v)
	}
	a.Updated()
	g, err := model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: B, Context: T, Recompute: true})
	ok(err)
	defer g.Close()
	tokens, targets := make([]int32, B*T), make([]int32, B*T)
	for i := range tokens {
		tokens[i], targets[i] = int32(i*17%50), int32((i*29+3)%50)
	}
	for range 2 {
		ok(g.MicroStep(tokens, targets, nil, 1.0/(2*B*T)))
	}
	out := map[string][]float32{}
	for _, s := range a.Grads() {
		out["d"+s.Name] = read(s.T)
	}
	logits := func(name string) {
		ok(g.Logits(tokens, nil, func(_ int, part []float32) error {
			out[name] = append(out[name], part...)
			return nil
		}))
	}
	logits("logits")
	ok(p.Merge())
	logits("merged logits")
	return out
}
