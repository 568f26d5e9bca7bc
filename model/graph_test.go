package model

import (
	"errors"
	"math"
	"strings"
	"testing"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/ref"
)

// odd has no size that a kernel could like, and more rows than a loss chunk.
var odd = Config{VocabSize: 307, Context: 131, DModel: 40, Layers: 2, Heads: 5, KVHeads: 1, HeadDim: 8, FFN: 77, Tied: true}

// step runs one micro-step on the CPU backend and returns loss and gradients.
func step(t *testing.T, p *Params, o TrainOptions) (float64, map[string][]float32) {
	t.Helper()
	g := must[*Graph](t)(NewGraph(p.r, p, o))
	defer g.Close()
	tokens, targets := batchOf(g.cfg, o.Batch, g.opt.Context, 3)
	zeroGrads(p.Trainable())
	if err := g.MicroStep(tokens, targets, nil, 1/float32(CountTargets(targets))); err != nil {
		t.Fatal(err)
	}
	return must[float64](t)(g.LossSum()), grads32(t, p)
}

func sameStep(t *testing.T, what string, la, lb float64, a, b map[string][]float32) {
	t.Helper()
	if la != lb || !(la > 0) {
		t.Errorf("%s: losses %v and %v, want the same", what, la, lb)
	}
	for name := range a {
		sameBits(t, what+": d"+name, a[name], b[name])
	}
}

// TestRecompute gives the same bits as keeping everything.
func TestRecompute(t *testing.T) {
	for _, cfg := range []Config{odd, tinyUntied} {
		p := cpuParams(t, 2, cfg, ParamOptions{Grads: true})
		l1, g1 := step(t, p, TrainOptions{Batch: 3})
		l2, g2 := step(t, p, TrainOptions{Batch: 3, Recompute: true})
		sameStep(t, "recompute", l1, l2, g1, g2)
	}
}

// TestThreads gives the same bits on any number of threads.
func TestThreads(t *testing.T) {
	l1, g1 := step(t, cpuParams(t, 1, odd, ParamOptions{Grads: true}), TrainOptions{Batch: 3})
	for _, n := range []int{2, 5} {
		l2, g2 := step(t, cpuParams(t, n, odd, ParamOptions{Grads: true}), TrainOptions{Batch: 3})
		sameStep(t, "threads", l1, l2, g1, g2)
	}
}

// TestLossChunks compares one chunk with two: 393 rows in chunks of 256.
func TestLossChunks(t *testing.T) {
	small := Config{VocabSize: 41, Context: 131, DModel: 10, Layers: 1, Heads: 1, FFN: 13}
	tied := small
	tied.Tied = true
	for _, cfg := range []Config{small, tied} {
		run := func(chunk int) (float64, map[string][]float64, int) {
			m := newRef64(t, cfg, ParamOptions{Grads: true})
			g := m.graph(t, TrainOptions{Batch: 3, LossChunkRows: chunk})
			tokens, targets := batchOf(cfg, 3, cfg.Context, 3)
			if err := g.MicroStep(tokens, targets, nil, 0.01); err != nil {
				t.Fatal(err)
			}
			return m.takeLoss(g), m.grads(), g.head.logits.Dims[0]
		}
		l1, g1, r1 := run(0)
		l2, g2, r2 := run(1)
		if r1 != 393 || r2 != 256 {
			t.Fatalf("chunks of %d and %d rows, want 393 and 256", r1, r2)
		}
		if math.Abs(l1-l2) > 1e-12*l1 {
			t.Errorf("losses %v and %v", l1, l2)
		}
		for name := range g1 {
			near(t, "d"+name, g2[name], g1[name], 1e-11)
		}
	}
}

// TestAgainstReference compares the CPU backend with float64, on buffers full
// of NaN. The bound is a few hundred roundings of float32, for sums of up to
// 393 terms through two layers.
func TestAgainstReference(t *testing.T) {
	for _, opt := range []TrainOptions{{Batch: 3}, {Batch: 3, Recompute: true, LabelSmoothing: 0.1, ZLoss: 1e-3}} {
		m := newRef64(t, odd, ParamOptions{Grads: true})
		g := m.graph(t, opt)
		tokens, targets := batchOf(odd, 3, odd.Context, 3)
		scale := 1 / float32(CountTargets(targets))
		if err := g.MicroStep(tokens, targets, nil, scale); err != nil {
			t.Fatal(err)
		}
		want, wantLoss := m.grads(), m.takeLoss(g)

		b := must[*cpu.Backend](t)(cpu.New(cpu.Options{Threads: 2}))
		defer b.Close()
		p := must[*Params](t)(NewParams(op.NewRunner(junk{b}), odd, ParamOptions{Grads: true}))
		fill(t, p)
		loss, got := step(t, p, opt)
		if math.Abs(loss-wantLoss) > 2e-6*wantLoss {
			t.Errorf("loss %v, want %v", loss, wantLoss)
		}
		for name := range want {
			near(t, "d"+name, got[name], want[name], 300*math.Exp2(-24))
		}
	}
}

// TestEvaluate: plain cross-entropy whatever the training loss is, the same
// from a graph without gradients, and nothing added to the gradients.
func TestEvaluate(t *testing.T) {
	tokens, targets := batchOf(odd, 2, odd.Context, 8)
	p := cpuParams(t, 2, odd, ParamOptions{Grads: true})
	trainer := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2, LabelSmoothing: 0.2, ZLoss: 0.1}))
	plain := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 2}))
	bare := cpuParams(t, 2, odd, ParamOptions{})
	evaluator := must[*Graph](t)(NewGraph(bare.r, bare, TrainOptions{Batch: 2}))

	if err := plain.MicroStep(tokens, targets, nil, 1); err != nil {
		t.Fatal(err)
	}
	want := must[float64](t)(plain.LossSum())
	zeroGrads(p)
	for name, g := range map[string]*Graph{"trainer": trainer, "evaluator": evaluator} {
		for range 2 {
			if err := g.Evaluate(tokens, targets, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := must[float64](t)(g.LossSum()); math.Abs(got-2*want) > 1e-6*want {
			t.Errorf("%s: two evaluations sum to %v, want %v", name, got, 2*want)
		}
		if got := must[float64](t)(g.LossSum()); got != 0 {
			t.Errorf("%s: loss sum is %v after it was taken, want 0", name, got)
		}
	}
	for name, g := range grads32(t, p) {
		for i, v := range g {
			if v != 0 {
				t.Fatalf("evaluation left d%s[%d] = %v", name, i, v)
			}
		}
	}
	err := evaluator.MicroStep(tokens, targets, nil, 1)
	if err == nil || !strings.Contains(err.Error(), "without gradients") {
		t.Errorf("micro-step without gradients: %v", err)
	}
}

// TestMirror compares the model that reads a float16 mirror with a float32
// model whose weights were rounded to float16: the same function, the same
// derivative but for the norms' gains, which the backward pass reads in
// float32.
func TestMirror(t *testing.T) {
	b := ref.New[float64]()
	p := must[*Params](t)(NewParams(op.NewRunner(b), tinyTied, ParamOptions{Grads: true, Mirror: true}))
	fill(t, p)
	mirrored := ref64{b, p}
	rounded := newRef64(t, tinyTied, ParamOptions{Grads: true})
	tokens, targets := batchOf(tinyTied, 2, 9, 4)
	g1, g2 := mirrored.graph(t, TrainOptions{Batch: 2}), rounded.graph(t, TrainOptions{Batch: 2})
	if err := g1.MicroStep(tokens, targets, nil, 1); err != nil { // refreshes the mirror
		t.Fatal(err)
	}
	differs := false
	for i, a := range p.arenas {
		w, w16 := b.Data(a.w), b.Data(a.w16)
		copy(rounded.b.Data(rounded.p.arenas[i].w), w16)
		for j := range w {
			differs = differs || w[j] != w16[j]
		}
	}
	if !differs {
		t.Fatal("the weights are float16 numbers already: the test proves nothing")
	}
	if err := g2.MicroStep(tokens, targets, nil, 1); err != nil {
		t.Fatal(err)
	}
	if l1, l2 := mirrored.takeLoss(g1), rounded.takeLoss(g2); math.Abs(l1-l2) > 1e-12*l2 {
		t.Errorf("loss with the mirror %v, with rounded weights %v", l1, l2)
	}
	for name, want := range rounded.grads() {
		near(t, "d"+name, mirrored.grads()[name], want, 2e-3) // gains differ by 2^-11
	}
}

// TestNoAllocation: a step in steady state allocates nothing. One thread,
// because a thread's scratch grows when it first gets a piece of work.
func TestNoAllocation(t *testing.T) {
	for _, opt := range []TrainOptions{{Batch: 2}, {Batch: 2, Recompute: true}} {
		p := cpuParams(t, 1, odd, ParamOptions{Grads: true})
		g := must[*Graph](t)(NewGraph(p.r, p, opt))
		tokens, targets := batchOf(odd, 2, odd.Context, 3)
		n := testing.AllocsPerRun(5, func() {
			if err := g.MicroStep(tokens, targets, nil, 0.01); err != nil {
				t.Fatal(err)
			}
			if err := g.Evaluate(tokens, targets, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := g.LossSum(); err != nil {
				t.Fatal(err)
			}
		})
		if n > 0 {
			t.Errorf("a step allocates %v times, want 0", n)
		}
	}
}

// TestBadBatch: every wrong batch is an error that says what is wrong, and the
// graph still works afterwards.
func TestBadBatch(t *testing.T) {
	m := newRef64(t, tinyTied, ParamOptions{Grads: true})
	g := m.graph(t, TrainOptions{Batch: 2, Context: 4, DocMask: true})
	tokens, targets, starts := make([]int32, 8), make([]int32, 8), make([]int32, 8)
	set := func(s []int32, i int, v int32) []int32 {
		c := append([]int32(nil), s...)
		c[i] = v
		return c
	}
	nan := float32(math.NaN())
	for _, c := range []struct {
		want             string
		tokens, tgt, doc []int32
		scale            float32
	}{
		{"got 7 tokens", tokens[:7], targets, starts, 1},
		{"got 0 targets", tokens, nil, starts, 1},
		{"token 3 is 23", set(tokens, 3, 23), targets, starts, 1},
		{"token 3 is -1", set(tokens, 3, -1), targets, starts, 1},
		{"target 5 is 23", tokens, set(targets, 5, 23), starts, 1},
		{"target 5 is -2", tokens, set(targets, 5, -2), starts, 1},
		{"got 0 document starts", tokens, targets, nil, 1},
		{"row 1, position 0 is 1", tokens, targets, set(starts, 4, 1), 1},
		{"row 0, position 2 is 0", tokens, targets, set(starts, 1, 1), 1},
		{"scale is 0", tokens, targets, starts, 0},
		{"scale is NaN", tokens, targets, starts, nan},
	} {
		err := g.MicroStep(c.tokens, c.tgt, c.doc, c.scale)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want one with %q", err, c.want)
		}
	}
	if err := g.MicroStep(tokens, targets, starts, 1); err != nil {
		t.Fatal(err)
	}
	if l := m.takeLoss(g); !(l > 0) {
		t.Errorf("loss %v after bad batches", l)
	}
	for _, o := range []TrainOptions{{}, {Batch: -1}, {Batch: 1, LabelSmoothing: 1}, {Batch: 1, ZLoss: -1},
		{Batch: 1, LossChunkRows: -1}, {Batch: 1, Context: -3}} {
		if _, err := NewGraph(m.p.r, m.p, o); err == nil {
			t.Errorf("NewGraph(%+v) succeeded", o)
		}
	}
}

// TestLogits: those of every position are the decoder's, however the rows are
// cut into chunks, with a document mask too; and their log-probabilities are
// the losses of Evaluate.
func TestLogits(t *testing.T) {
	for _, c := range []struct {
		cfg    Config
		opt    TrainOptions
		params ParamOptions
	}{
		{odd, TrainOptions{Batch: 3, LossChunkRows: 1}, ParamOptions{}}, // 393 rows in chunks of 256 and 137
		{tinyUntied, TrainOptions{Batch: 2}, ParamOptions{Grads: true}},
		{tinyTied, TrainOptions{Batch: 2, DocMask: true, Recompute: true}, ParamOptions{Grads: true, Mirror: true}},
	} {
		p := cpuParams(t, 2, c.cfg, c.params)
		g := must[*Graph](t)(NewGraph(p.r, p, c.opt))
		B, T, V := c.opt.Batch, c.cfg.Context, c.cfg.VocabSize
		tokens, targets := batchOf(c.cfg, B, T, 31)
		var starts []int32
		if c.opt.DocMask {
			starts = docStarts(B, T, 4)
		}
		got := allLogits(t, g, tokens, starts)
		if !c.opt.DocMask {
			d := must[*Decoder](t)(NewDecoder(p.r, p, B, 0))
			for pos := range T {
				step := must[[]float32](t)(d.Step(columns(tokens, B, pos, pos+1)))
				for b := range B {
					near(t, "logits", row(got, b, pos, T, V), step[b*V:(b+1)*V], bound32)
				}
			}
		}
		if err := g.Evaluate(tokens, targets, starts); err != nil {
			t.Fatal(err)
		}
		losses := make([]float32, B*T)
		if err := g.RowLosses(losses); err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for i, loss := range losses {
			sum += float64(loss)
			want := rowLoss(got[i*V:(i+1)*V], targets[i])
			if math.Abs(float64(loss)-want) > 1e-5 || (targets[i] == IgnoreIndex) != (loss == 0) {
				t.Errorf("row %d, target %d: loss %v, want %v", i, targets[i], loss, want)
			}
		}
		if total := must[float64](t)(g.LossSum()); !(total > 0) || math.Abs(total-sum) > 1e-5*sum {
			t.Errorf("rows sum to %v, Evaluate summed %v", sum, total)
		}
	}
}

// allLogits gathers what Logits hands out, (N, V).
func allLogits(t *testing.T, g *Graph, tokens, starts []int32) []float32 {
	t.Helper()
	var all []float32
	if err := g.Logits(tokens, starts, func(first int, logits []float32) error {
		if first*g.cfg.VocabSize != len(all) {
			t.Fatalf("a chunk begins at row %d after %d numbers", first, len(all))
		}
		all = append(all, logits...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// rowLoss is the cross-entropy of one row in float64, 0 for an ignored target.
func rowLoss(logits []float32, target int32) float64 {
	if target == IgnoreIndex {
		return 0
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	return math.Log(sum) - float64(logits[target])
}

// TestLogitsErrors: wrong sizes are named, and an error of the callback ends
// the pass.
func TestLogitsErrors(t *testing.T) {
	p := cpuParams(t, 1, odd, ParamOptions{})
	g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 3, LossChunkRows: 1}))
	tokens, _ := batchOf(odd, 3, odd.Context, 1)
	calls := 0
	stop := errors.New("enough")
	if err := g.Logits(tokens, nil, func(int, []float32) error { calls++; return stop }); err != stop || calls != 1 {
		t.Errorf("got error %v after %d calls, want the callback's after 1", err, calls)
	}
	if err := g.Logits(tokens[:5], nil, nil); err == nil || !strings.Contains(err.Error(), "got 5 tokens, want 393") {
		t.Errorf("got error %v", err)
	}
	if err := g.RowLosses(make([]float32, 5)); err == nil || !strings.Contains(err.Error(), "room for 5, want 393") {
		t.Errorf("got error %v", err)
	}
	allLogits(t, g, tokens, nil) // the graph still works
}
