package model

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// loraOf is an adapter of rank r on the given targets, with a scale that is no
// power of two.
func loraOf(r int, targets string) LoRA {
	return LoRA{Rank: r, Alpha: 1.7 * float64(r), Targets: targets}
}

// fillAdapter gives A and B numbers of the size of a trained adapter's; B too,
// which Init leaves zero.
func fillAdapter(t testing.TB, p *Params) {
	t.Helper()
	for i, s := range p.Adapter().Weights() {
		w := make([]float32, s.T.Len())
		for j, x := range lcg(77+31*uint32(i), len(w)) {
			w[j] = (float32(x>>16) - 32768) / 65536
		}
		op.WriteSlice(p.r, s.T, w)
	}
	p.Adapter().Updated()
	if err := p.r.Err(); err != nil {
		t.Fatal(err)
	}
}

// adapter64 is a model with a filled adapter in float64.
func adapter64(t testing.TB, c Config, l LoRA) ref64 {
	m := newRef64(t, c, ParamOptions{Grads: true, LoRA: l})
	fillAdapter(t, m.p)
	return m
}

// TestLoRAGradients compares the gradients of A and B with central differences
// in float64: all targets together, and each alone, where the backward pass
// leaves out what nobody needs. See TestGradients for the bound.
func TestLoRAGradients(t *testing.T) {
	mask := TrainOptions{Batch: 2, Context: 9, DocMask: true, ZLoss: 0.01}
	recompute := mask
	recompute.Recompute = true
	cases := []struct {
		cfg  Config
		lora LoRA
		opt  TrainOptions
	}{
		{tinyTied, loraOf(1, "all"), mask}, {tinyTied, loraOf(3, "all"), recompute},
		{tinyUntied, loraOf(3, "all"), TrainOptions{Batch: 3, Context: 5, LabelSmoothing: 0.125}},
		{tinyUntied, LoRA{Rank: 4, Alpha: 4, Targets: "all"}, TrainOptions{Batch: 1, Recompute: true}}, // scale 1: no copies
	}
	for _, target := range []string{"q", "k", "v", "o", "gate", "up", "down", "ffn"} {
		cases = append(cases, struct {
			cfg  Config
			lora LoRA
			opt  TrainOptions
		}{tinyTied, loraOf(2, target), recompute})
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%v_recompute=%t_tied=%t", c.lora.WithDefaults(), c.opt.Recompute, c.cfg.Tied), func(t *testing.T) {
			checkLoRAGradients(t, c.cfg, c.lora, c.opt)
		})
	}
}

func checkLoRAGradients(t *testing.T, cfg Config, l LoRA, opt TrainOptions) {
	m := adapter64(t, cfg, l)
	g, a := m.graph(t, opt), m.p.Adapter()
	tokens, targets := batchOf(g.cfg, opt.Batch, g.opt.Context, 5)
	var starts []int32
	if opt.DocMask {
		starts = docStarts(opt.Batch, g.opt.Context, 4)
	}
	const scale, h = 0.5, 1e-5
	loss := func() float64 {
		a.Updated()
		if err := g.MicroStep(tokens, targets, starts, scale); err != nil {
			t.Fatal(err)
		}
		return m.takeLoss(g) * scale
	}
	loss()
	grads := map[string][]float64{}
	for _, s := range a.Grads() {
		grads[s.Name] = append([]float64(nil), m.data(s.T)...)
	}
	if len(grads) != len(l.Params(cfg)) || len(m.p.Grads()) != 0 {
		t.Fatalf("%d gradients of %d parameters, and %d of frozen ones", len(grads), len(l.Params(cfg)), len(m.p.Grads()))
	}
	for _, s := range a.Weights() {
		w := m.data(s.T)
		var got, want []float64
		for i := 0; i < len(w); i += 1 + len(w)/9 {
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

// TestLoRABegin: an adapter as Init draws it changes nothing, to the bit, in
// logits, losses and decoding; a filled one does.
func TestLoRABegin(t *testing.T) {
	for _, cfg := range []Config{odd, tinyUntied} {
		base := cpuParams(t, 2, cfg, ParamOptions{})
		p := cpuParams(t, 2, cfg, ParamOptions{LoRA: loraOf(3, "all")})
		if err := p.Adapter().Init(9); err != nil {
			t.Fatal(err)
		}
		tokens, _ := batchOf(cfg, 2, 7, 3)
		opt := TrainOptions{Batch: 2, Context: 7}
		logits := func(p *Params) []float32 {
			g := must[*Graph](t)(NewGraph(p.r, p, opt))
			defer g.Close()
			return allLogits(t, g, tokens, nil)
		}
		last := func(p *Params) []float32 {
			d := must[*Decoder](t)(NewDecoder(p.r, p, 2, 0))
			defer d.Close()
			return append([]float32(nil), must[[]float32](t)(d.Prefill(tokens))...)
		}
		want := logits(base)
		sameBits(t, "logits", logits(p), want)
		sameBits(t, "decoder", last(p), last(base))
		fillAdapter(t, p)
		got := logits(p)
		diff := 0.0
		for i := range got {
			diff = max(diff, math.Abs(float64(got[i]-want[i])))
		}
		if diff < 0.1 {
			t.Errorf("a filled adapter changes logits by %v at most: the other tests prove little", diff)
		}
		// The decoder follows the adapter too.
		V := cfg.VocabSize
		for b, got := range [][]float32{last(p)[:V], last(p)[V:]} {
			near(t, "decoder", got, row(logits(p), b, 6, 7, V), bound32)
		}
	}
}

// TestLoRAMerge: the merged model computes what the model with its adapter did,
// also when a model without adapter takes its weights.
func TestLoRAMerge(t *testing.T) {
	for _, mirror := range []bool{false, true} {
		p := cpuParams(t, 2, odd, ParamOptions{LoRA: loraOf(5, "q,v,o,up,down"), Mirror: mirror})
		fillAdapter(t, p)
		tokens, targets := batchOf(odd, 1, 40, 3)
		opt := TrainOptions{Batch: 1, Context: 40}
		g := must[*Graph](t)(NewGraph(p.r, p, opt))
		want := allLogits(t, g, tokens, nil)
		before := weights32(t, p)
		if err := p.Merge(); err != nil {
			t.Fatal(err)
		}
		bound := bound32
		if mirror {
			bound = 3e-3 // the sum is rounded to float16, which W alone was before
		}
		near(t, "merged logits", allLogits(t, g, tokens, nil), want, bound)
		if err := g.Evaluate(tokens, targets, nil); err != nil {
			t.Fatal(err)
		}
		after := weights32(t, p)
		plain := cpuParams(t, 1, odd, ParamOptions{Mirror: mirror})
		for _, s := range plain.Weights() {
			op.WriteSlice(plain.r, s.T, after[s.Name])
		}
		plain.stale = true
		near(t, "plain logits", allLogits(t, must[*Graph](t)(NewGraph(plain.r, plain, opt)), tokens, nil), want, bound)
		for name := range before {
			_, matrix, _ := strings.Cut(strings.TrimPrefix(name, "layers."), ".")
			target := slices.Contains([]string{"wq", "wv", "wo", "w_up", "w_down"}, matrix)
			if changed := fmt.Sprint(before[name]) != fmt.Sprint(after[name]); changed != target {
				t.Errorf("merging changed %s: %t, want %t", name, changed, target)
			}
		}
		// Again there is nothing to add.
		if err := p.Merge(); err != nil {
			t.Fatal(err)
		}
		for name, w := range weights32(t, p) {
			sameBits(t, "merged twice: "+name, w, after[name])
		}
	}
	plain := cpuParams(t, 1, tinyTied, ParamOptions{})
	if err := plain.Merge(); err != nil || plain.Trainable() != plain || plain.Adapter() != nil {
		t.Errorf("a model without adapter: %v", err)
	}
}

// weights32 reads all weights by name.
func weights32(t *testing.T, p *Params) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	for _, s := range p.Weights() {
		all[s.Name] = read32(t, p.r, s.T)
	}
	return all
}

// TestLoRABackends compares the CPU's gradients with float64's, on buffers full
// of NaN; and one set of bits for any number of threads and for recomputation.
func TestLoRABackends(t *testing.T) {
	l := loraOf(8, "all")
	opt := TrainOptions{Batch: 3}
	m := adapter64(t, odd, l)
	g := m.graph(t, opt)
	tokens, targets := batchOf(odd, 3, odd.Context, 3)
	if err := g.MicroStep(tokens, targets, nil, 1/float32(CountTargets(targets))); err != nil {
		t.Fatal(err)
	}
	want := map[string][]float64{}
	for _, s := range m.p.Adapter().Grads() {
		want[s.Name] = append([]float64(nil), m.data(s.T)...)
	}
	run := func(threads int, opt TrainOptions) (float64, map[string][]float32) {
		b := must[*cpu.Backend](t)(cpu.New(cpu.Options{Threads: threads}))
		defer b.Close()
		p := must[*Params](t)(NewParams(op.NewRunner(junk{b}), odd, ParamOptions{Grads: true, LoRA: l}))
		fill(t, p)
		fillAdapter(t, p)
		loss, _ := step(t, p, opt)
		return loss, grads32(t, p.Adapter())
	}
	l1, g1 := run(2, opt)
	for name := range want {
		near(t, "d"+name, g1[name], want[name], 300*math.Exp2(-24))
	}
	l2, g2 := run(1, opt)
	sameStep(t, "threads", l1, l2, g1, g2)
	opt.Recompute = true
	l2, g2 = run(2, opt)
	sameStep(t, "recompute", l1, l2, g1, g2)
}

// TestLoRAWork counts the work of a micro-step: no gradient of a frozen weight
// is computed, neither as a product nor for embedding and gains.
func TestLoRAWork(t *testing.T) {
	const N = 2 * 7
	l := loraOf(3, "q,down")
	p := cpuParams(t, 1, tinyTied, ParamOptions{Grads: true, LoRA: l})
	g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2, Context: 7}))
	tokens, targets := batchOf(tinyTied, 2, 7, 3)
	var profile op.Profile
	p.r.SetProfile(&profile)
	if err := g.MicroStep(tokens, targets, nil, 1); err != nil {
		t.Fatal(err)
	}
	adapter := int64(0)
	for _, info := range l.Params(tinyTied) {
		adapter += int64(info.Len())
	}
	seen := false
	for _, row := range profile.Rows() {
		switch row.Label {
		case "embedding_backward":
			t.Error("the embedding's gradient was computed")
		case "matmul_at": // db and da
			seen = true
			if row.FLOPs != 2*N*adapter || row.Calls != 2*2*int(tinyTied.Layers) {
				t.Errorf("weight gradients: %d calls with %d FLOPs, want 8 with %d", row.Calls, row.FLOPs, 2*N*adapter)
			}
		}
	}
	if !seen {
		t.Error("no gradient was computed")
	}
	// 4 for the frozen matrices and the head, 6 for the adapter and attention.
	c := tinyTied.WithDefaults()
	frozen := int64(c.NumParams() - (2*c.Layers+1)*c.DModel) // tok_emb is the head
	want := 4*frozen + 6*adapter + 6*int64(c.Layers*c.Heads*c.HeadDim*7)
	if got := p.FLOPsPerToken(7); got != want || int64(p.Adapter().NumParams()) != adapter {
		t.Errorf("%d FLOPs a token, want %d", got, want)
	}
	if plain := cpuParams(t, 1, tinyTied, ParamOptions{}); plain.FLOPsPerToken(7) != c.FLOPsPerToken(7) || plain.NumParams() != c.NumParams() {
		t.Error("without an adapter the counts differ from the configuration's")
	}
}

// TestInputGradientsAreSums counts the sums of a micro-step: one for a layer's
// queries, keys and values and one for its gate and up, but where an adapter's part
// stands between their products or nothing below is trained.
func TestInputGradientsAreSums(t *testing.T) {
	c := tinyTied.WithDefaults()
	for targets, want := range map[string]int{"none": 2 * c.Layers, "q,down": c.Layers, "up,o": c.Layers - 1, "all": 0, "down": 2 * (c.Layers - 1)} {
		o := ParamOptions{Grads: true}
		if targets != "none" {
			o.LoRA = loraOf(3, targets)
		}
		p := cpuParams(t, 1, tinyTied, o)
		g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2, Context: 7}))
		tokens, to := batchOf(tinyTied, 2, 7, 3)
		var profile op.Profile
		p.r.SetProfile(&profile)
		if err := g.MicroStep(tokens, to, nil, 1); err != nil {
			t.Fatal(err)
		}
		sums := 0
		for _, row := range profile.Rows() {
			if row.Label == (op.MatMulSum{}).Label() {
				sums = row.Calls
			}
		}
		if sums != want {
			t.Errorf("adapters on %s: %d sums, want %d", targets, sums, want)
		}
	}
}

// TestLoRAMemory: what is predicted is allocated, and it is far less than full
// training needs.
func TestLoRAMemory(t *testing.T) {
	for _, o := range []ParamOptions{{Grads: true, Moments: true, LoRA: loraOf(3, "all")},
		{Grads: true, Moments8: true, Mirror: true, LoRA: LoRA{Rank: 4, Alpha: 4, Targets: "q"}}, {LoRA: loraOf(1, "ffn")}} {
		for _, opt := range []TrainOptions{{Batch: 3}, {Batch: 3, Recompute: true}} {
			b := ref.New[float32]()
			lim := op.Limits{F16: true, MaxBufferBytes: 1 << 20, MaxBindingBytes: 400 << 10}
			r := op.NewRunner(limited{b, lim})
			plan := must[Plan](t)(PredictMemory(odd, o, opt, lim, tensor.F32))
			p := must[*Params](t)(NewParams(r, odd, o))
			g := must[*Graph](t)(NewGraph(r, p, opt))
			if now, _ := b.MemoryBytes(); now != plan.Total() || !strings.Contains(plan.String(), "adapter") {
				t.Errorf("%+v: %d bytes allocated, predicted %d\n%v", o, now, plan.Total(), plan)
			}
			g.Close()
			dplan := must[Plan](t)(PredictDecoder(odd, o, 2, 50, lim))
			d := must[*Decoder](t)(NewDecoder(r, p, 2, 50))
			if now, _ := b.MemoryBytes(); now != dplan.Total() {
				t.Errorf("decoder: %d bytes allocated, predicted %d\n%v", now, dplan.Total(), dplan)
			}
			d.Close()
			p.Close()
			if now, _ := b.MemoryBytes(); now != 0 {
				t.Errorf("%d bytes are left after Close", now)
			}
		}
	}
	small := must[Config](t)(Preset("small"))
	full := must[Plan](t)(PredictMemory(small, ParamOptions{Grads: true, Moments: true}, TrainOptions{Batch: 1}, op.Limits{}, tensor.F32))
	lora := must[Plan](t)(PredictMemory(small, ParamOptions{Grads: true, Moments: true, LoRA: LoRA{Rank: 16}}, TrainOptions{Batch: 1}, op.Limits{}, tensor.F32))
	if saved := full.Total() - lora.Total(); saved < 10*int64(small.NumParams()) {
		t.Errorf("full training needs %s, LoRA %s\n%v", FormatBytes(full.Total()), FormatBytes(lora.Total()), lora)
	}
}

// TestLoRAInit: A is uniform in ±1/√in, B zero, and both depend on seed and
// name alone.
func TestLoRAInit(t *testing.T) {
	draw := func(targets string, seed uint64) map[string][]float32 {
		p := cpuParams(t, 1, odd, ParamOptions{LoRA: loraOf(7, targets)})
		if err := p.Init(seed); err != nil {
			t.Fatal(err)
		}
		return weights32(t, p.Adapter())
	}
	all, some, other := draw("all", 1), draw("v", 1), draw("all", 2)
	if len(all) != 2*7*odd.Layers || len(some) != 2*odd.Layers {
		t.Fatalf("%d and %d parameters", len(all), len(some))
	}
	for name, w := range all {
		if strings.HasSuffix(name, loraB) {
			for _, v := range w {
				if v != 0 {
					t.Fatalf("%s holds %v", name, v)
				}
			}
			continue
		}
		in := float64(len(w) / 7)
		var sum, squares, top float64
		for _, v := range w {
			sum, squares, top = sum+float64(v), squares+float64(v)*float64(v), max(top, math.Abs(float64(v)))
		}
		n, bound := float64(len(w)), 1/math.Sqrt(in)
		// Mean 0 and variance bound²/3, within five standard errors.
		if math.Abs(sum/n) > 5*bound/math.Sqrt(3*n) || math.Abs(squares/n/(bound*bound)-1.0/3) > 5*math.Sqrt(4.0/45/n) ||
			top > bound || top < 0.9*bound {
			t.Errorf("%s: mean %v, mean square %v, largest %v, bound %v", name, sum/n, squares/n, top, bound)
		}
		if fmt.Sprint(w) == fmt.Sprint(other[name]) {
			t.Errorf("%s does not depend on the seed", name)
		}
		if mine, ok := some[name]; ok {
			sameBits(t, name+" with other targets", mine, w)
		}
	}
}

// TestLoRANoAllocation: neither a step nor a token allocates.
func TestLoRANoAllocation(t *testing.T) {
	p := cpuParams(t, 1, odd, ParamOptions{Grads: true, LoRA: loraOf(3, "all")})
	fillAdapter(t, p)
	g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2}))
	d := must[*Decoder](t)(NewDecoder(p.r, p, 1, 16))
	tokens, targets := batchOf(odd, 2, odd.Context, 3)
	for range 16 {
		must[[]float32](t)(d.Step(tokens[:1]))
	}
	if n := testing.AllocsPerRun(5, func() {
		p.Adapter().Updated()
		if err := g.MicroStep(tokens, targets, nil, 0.01); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Step(tokens[:1]); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a step allocates %v times, want 0", n)
	}
}

// TestLoRAConfig: one way to write each adapter, and errors by name.
func TestLoRAConfig(t *testing.T) {
	for in, want := range map[string]string{
		"r=16,alpha=32,targets=q,v":        "r=16,alpha=32,targets=q,v",
		"r=8":                              "r=8,alpha=16,targets=q,k,v,o,gate,up,down",
		"rank=2, alpha=0.5 ,targets=v, q":  "r=2,alpha=0.5,targets=q,v",
		"targets=down,attn,q,r=1":          "r=1,alpha=2,targets=q,k,v,o,down",
		"r=3,targets=all":                  "r=3,alpha=6,targets=q,k,v,o,gate,up,down",
		"r=3,targets=":                     "r=3,alpha=6,targets=q,k,v,o,gate,up,down",
		"":                                 "",
		"r=4,targets=ffn,targets=o":        "r=4,alpha=8,targets=o,gate,up,down",
		"r=16,alpha=1e-3,targets=gate,up,": "r=16,alpha=0.001,targets=gate,up",
	} {
		l, err := ParseLoRA(in)
		if err != nil || l.String() != want || l != l.WithDefaults() {
			t.Errorf("%q became %q (%v), want %q", in, l, err, want)
		}
		if again, err := ParseLoRA(l.String()); err != nil || again != l {
			t.Errorf("%q became %+v (%v), want %+v", l, again, err, l)
		}
		if err := l.Validate(odd); err != nil {
			t.Error(err)
		}
		var back LoRA
		if err := json.Unmarshal(must[[]byte](t)(json.Marshal(l)), &back); err != nil || back != l {
			t.Errorf("JSON made %+v of %+v (%v)", back, l, err)
		}
	}
	for in, want := range map[string]string{
		"alpha=3": "rank is missing", "16": "name=value", "r=x": "a number", "r=4,beta=2": "r, alpha or targets",
		"r=0": "below 1", "r=-3": "below 1", "r=1,alpha=y": "a number",
	} {
		if _, err := ParseLoRA(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %q", in, err, want)
		}
	}
	for want, l := range map[string]LoRA{
		"rank is 41, want 1 to d_model 40": {Rank: 41}, "rank is -1": {Rank: -1}, "rank is 0": {Targets: "q"},
		"alpha is -1": {Rank: 1, Alpha: -1}, "alpha is NaN": {Rank: 1, Alpha: math.NaN()}, "alpha is +Inf": {Rank: 1, Alpha: math.Inf(1)},
		`unknown target "gat": want some of all, attn, ffn, q, k, v, o, gate, up, down; did you mean "gate"?`: {Rank: 1, Targets: "q,gat"},
	} {
		for _, err := range []error{l.Validate(odd), func() error {
			_, err := NewParams(op.NewRunner(ref.New[float32]()), odd, ParamOptions{LoRA: l})
			return err
		}()} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got error %v, want one with %q", l, err, want)
			}
		}
	}
}

// FuzzParseLoRA: any text is refused or read as something that is written and
// read again the same.
func FuzzParseLoRA(f *testing.F) {
	for _, s := range []string{"r=16,alpha=32,targets=q,v", "r=1", "targets=,,", "r==", "alpha=NaN,r=2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := ParseLoRA(s)
		if err != nil || l.Validate(odd) != nil {
			return
		}
		if again, err := ParseLoRA(l.String()); err != nil || again != l {
			t.Errorf("%q became %+v, and its text %q became %+v (%v)", s, l, l, again, err)
		}
	})
}

// TestLoRAStates: an adapter's tensors have names of their own, and its files
// fill it again.
func TestLoRAStates(t *testing.T) {
	o := ParamOptions{Grads: true, Moments8: true, LoRA: loraOf(3, "q,down")}
	p := cpuParams(t, 1, tinyTied, o)
	fillAdapter(t, p)
	a := p.Adapter()
	states := append(a.Weights(), a.Moments()...)
	if len(states) != 5*len(a.Infos()) || len(p.Moments()) != 0 || len(p.Weights()) != len(tinyTied.Params()) {
		t.Fatalf("%d states of %d parameters, %d moments of frozen weights", len(states), len(a.Infos()), len(p.Moments()))
	}
	if n := states[0].Name; n != "layers.0.wq.lora_a" || fmt.Sprint(states[0].Shape) != "[16 3]" || fmt.Sprint(states[1].Shape) != "[3 24]" {
		t.Errorf("the first states are %s %v and %v", n, states[0].Shape, states[1].Shape)
	}
	var file strings.Builder
	for _, s := range states {
		if err := a.ReadTo(&file, s); err != nil {
			t.Fatal(err)
		}
	}
	q := cpuParams(t, 1, tinyTied, o)
	in := strings.NewReader(file.String())
	for _, s := range append(q.Adapter().Weights(), q.Adapter().Moments()...) {
		if err := q.Adapter().WriteFrom(in, s); err != nil {
			t.Fatal(err)
		}
	}
	tokens, _ := batchOf(tinyTied, 1, 9, 3)
	opt := TrainOptions{Batch: 1}
	sameBits(t, "logits", allLogits(t, must[*Graph](t)(NewGraph(q.r, q, opt)), tokens, nil),
		allLogits(t, must[*Graph](t)(NewGraph(p.r, p, opt)), tokens, nil))
	if typ := a.Moments()[0].DType; typ != tensor.I8 {
		t.Errorf("moments are %v", typ)
	}
}
