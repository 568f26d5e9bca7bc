package model

import (
	"fmt"
	"maps"
	"math"
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

// operandModes are graphs that differ in which activations they have, and in which
// may be of 16 bits.
var operandModes = []struct {
	name string
	cfg  Config
	p    ParamOptions
	o    TrainOptions
	same bool // of what sums or attention read, nothing is of 16 bits
}{
	{"tied", tinyTied, ParamOptions{Grads: true}, TrainOptions{Batch: 2}, false},
	{"untied, smoothing, recompute", tinyUntied, ParamOptions{Grads: true}, TrainOptions{Batch: 3, Recompute: true, LabelSmoothing: 0.1, ZLoss: 1e-3}, false},
	{"loss chunks, document mask", odd, ParamOptions{Grads: true}, TrainOptions{Batch: 2, DocMask: true, LossChunkRows: 1}, false},
	{"adapter", tinyTied, ParamOptions{Grads: true, LoRA: loraOf(3, "all")}, TrainOptions{Batch: 2}, true},
	{"adapter on q, up and down, recompute", tinyUntied, ParamOptions{Grads: true, LoRA: loraOf(2, "q,up,down")}, TrainOptions{Batch: 2, Recompute: true}, false},
	{"adapter on k", tinyTied, ParamOptions{Grads: true, LoRA: loraOf(2, "k")}, TrainOptions{Batch: 2}, false},
	{"adapter on v", tinyTied, ParamOptions{Grads: true, LoRA: loraOf(2, "v")}, TrainOptions{Batch: 2}, false},
	{"adapter on o and gate", tinyUntied, ParamOptions{Grads: true, LoRA: loraOf(2, "o,gate")}, TrainOptions{Batch: 2}, false},
	{"evaluation", tinyUntied, ParamOptions{}, TrainOptions{Batch: 2}, false},
}

// operandRun is what a graph gives for one batch: losses are the means of an
// evaluation and of a micro-step.
type operandRun struct {
	losses, logits []float32
	grads          map[string][]float32
}

func runOperands(t *testing.T, g *Graph) (res operandRun) {
	t.Helper()
	tokens, targets := batchOf(g.cfg, g.opt.Batch, g.opt.Context, 3)
	var doc []int32
	if g.opt.DocMask {
		doc = docStarts(g.opt.Batch, g.opt.Context, 5)
	}
	count := float64(CountTargets(targets))
	mean := func() { res.losses = append(res.losses, float32(must[float64](t)(g.LossSum())/count)) }
	if err := g.Evaluate(tokens, targets, doc); err != nil {
		t.Fatal(err)
	}
	mean()
	res.logits = allLogits(t, g, tokens, doc)
	if g.p.trains() {
		zeroGrads(g.p.Trainable())
		if err := g.MicroStep(tokens, targets, doc, 1/float32(count)); err != nil {
			t.Fatal(err)
		}
		mean()
		res.grads = grads32(t, g.p.Trainable())
	}
	return res
}

// TestOperands compares three graphs: one whose products are exact; one whose products
// round their inputs; one whose activations are operand tensors, too. Where these hold
// only what products alone read, the last two are equal to the bit: what is rounded
// before it is stored has the bits of what is rounded as it is read. Elsewhere the last
// rounds at about twice as many places, by as much each time: its distance from the
// exact graph is larger, but not by far.
func TestOperands(t *testing.T) {
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
				exact := runOperands(t, wide)
				if err := b.RoundProducts(typ); err != nil {
					t.Fatal(err)
				}
				narrow := must[*Graph](t)(NewGraph(p.r, p, m.o))
				if x, y := wide.blocks[0].y1.Type(), narrow.blocks[0].y1.Type(); x != tensor.F32 || y != typ {
					t.Fatalf("y1 is %v and %v", x, y)
				}
				rounds, operands := runOperands(t, wide), runOperands(t, narrow)
				if m.same {
					sameRuns(t, rounds, operands)
				} else {
					nearRuns(t, typ, exact, rounds, operands)
				}
				if p.trains() {
					narrow.back.dxRead = narrow.back.dx // products round it themselves
					sameRuns(t, operands, runOperands(t, narrow))
				}
			})
		}
	}
}

// sameRuns wants bits to be equal.
func sameRuns(t *testing.T, a, b operandRun) {
	t.Helper()
	sameBits(t, "losses", a.losses, b.losses)
	sameBits(t, "logits", a.logits, b.logits)
	for name := range a.grads {
		sameBits(t, "d"+name, a.grads[name], b.grads[name])
		if !slices.ContainsFunc(a.grads[name], func(x float32) bool { return x != 0 }) {
			t.Errorf("d%s is zero everywhere, which proves nothing", name)
		}
	}
}

// nearRuns wants the noise of operands to be like that of rounds, and their gradients
// to point the same way.
func nearRuns(t *testing.T, typ tensor.DType, exact, rounds, operands operandRun) {
	t.Helper()
	unit := 0x1p-12 // the largest relative error of a rounding
	if typ == tensor.BF16 {
		unit = 0x1p-9
	}
	for i, want := range exact.losses {
		// Logits of about 1 are off by a few units, of either sign.
		if d := math.Abs(float64(operands.losses[i] - want)); !(d <= 2*unit) {
			t.Errorf("loss %d is off by %.2g, want at most %.2g", i, d, 2*unit)
		}
	}
	louder(t, "logits", exact.logits, rounds.logits, operands.logits)
	var a, b, c []float32
	for _, name := range slices.Sorted(maps.Keys(exact.grads)) {
		a, b, c = append(a, exact.grads[name]...), append(b, rounds.grads[name]...), append(c, operands.grads[name]...)
		if cos := cosine(exact.grads[name], operands.grads[name]); !(cos > 0.999) {
			t.Errorf("d%s: the cosine is %v", name, cos)
		}
	}
	if exact.grads != nil {
		louder(t, "gradients", a, b, c)
	}
}

// louder wants operands to be further from exact than rounds are, but not much: twice
// as many errors, which are independent, add to √2 times as much.
func louder(t *testing.T, what string, exact, rounds, operands []float32) {
	t.Helper()
	x, y := noise(exact, rounds), noise(exact, operands)
	if !(y <= 2.5*x) || x == 0 {
		t.Errorf("%s: the noise of operand tensors is %.3g, that of products that round %.3g", what, y, x)
	}
}

// noise is the distance of b from a, relative to a.
func noise(a, b []float32) float64 {
	var diff, size float64
	for i, x := range a {
		d := float64(x) - float64(b[i])
		diff, size = diff+d*d, size+float64(x)*float64(x)
	}
	return math.Sqrt(diff / size)
}

func cosine(a, b []float32) float64 {
	var dot, x, y float64
	for i := range a {
		u, v := float64(a[i]), float64(b[i])
		dot, x, y = dot+u*v, x+u*u, y+v*v
	}
	return dot / math.Sqrt(x*y)
}

// TestOperandTypes says what is of 16 bits with which adapter: not what something is
// added to, nor what must be of one type with that.
func TestOperandTypes(t *testing.T) {
	for _, x := range []struct{ targets, wide string }{
		{"", ""},
		{"q,k", ""},
		{"v", "q k v attn dattn dv"},
		{"o", "q k v attn dattn dv"},
		{"gate", "gate up"},
		{"up", "gate up"},
		{"down", "dglu"},
		{"all", "q k v attn dattn dv gate up dglu"},
	} {
		b := ref.New[float32]()
		b.RoundProducts(tensor.BF16)
		o := ParamOptions{Grads: true}
		if x.targets != "" {
			o.LoRA = loraOf(2, x.targets)
		}
		p := must[*Params](t)(NewParams(op.NewRunner(b), tinyTied, o))
		g := must[*Graph](t)(NewGraph(p.r, p, TrainOptions{Batch: 1}))
		a, s := g.blocks[0].activations, g.back
		for name, got := range map[string]op.Tensor{"q": a.q, "k": a.k, "v": a.v, "attn": a.attn, "gate": a.gate, "up": a.up, "dattn": s.dattn, "dv": s.dv,
			"dglu": s.dglu, "y1": a.y1, "y2": a.y2, "glu": a.glu, "dx as products read it": s.dxRead, "dq": s.dqBack, "dk": s.dkBack, "dgate": s.dgate, "dup": s.dup, "dlogits": g.head.dlogits} {
			want := tensor.BF16
			if slices.Contains(strings.Fields(x.wide), name) {
				want = tensor.F32
			}
			if got.Type() != want {
				t.Errorf("adapter on %q: %s is %v, want %v", x.targets, name, got.Type(), want)
			}
		}
		for name, got := range map[string]op.Tensor{"q": a.qFlat, "k": a.kFlat, "x": a.x, "x_mid": a.xMid, "dy": s.dy, "dx": s.dx, "logits": g.head.logits} {
			if got.Type() != tensor.F32 {
				t.Errorf("adapter on %q: %s, a sum, is %v", x.targets, name, got.Type())
			}
		}
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
	// A layer keeps y1, y2 (C each), q, attn, k, v, gate, up and glu (F each) at half;
	// q and k before they are rotated, scratch and loss need more.
	saved, rows := total(tensor.F32)-total(tensor.BF16), int64(8*small.Context)
	width := 2*small.DModel + 2*(small.Heads+small.KVHeads)*small.HeadDim + 3*small.FFN
	if most := 2 * rows * int64(small.Layers*width); saved < most*9/10 || saved > most {
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

// TestDecoderWhileProductsRound: a decoder's tensors are float32 in any case, and its
// logits are those of exact products but for what rounding does.
func TestDecoderWhileProductsRound(t *testing.T) {
	b := ref.New[float32]()
	p := must[*Params](t)(NewParams(op.NewRunner(b), tinyTied, ParamOptions{LoRA: loraOf(2, "all")}))
	fill(t, p)
	fillAdapter(t, p)
	d := must[*Decoder](t)(NewDecoder(p.r, p, 2, 0))
	prompt := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	decode := func() (logits []float32) {
		d.Reset()
		for _, tokens := range [][]int32{prompt, {7, 0}} {
			logits = append(logits, must[[]float32](t)(d.Prefill(tokens))...)
		}
		return logits
	}
	exact := decode()
	for typ, unit := range map[tensor.DType]float64{tensor.BF16: 0x1p-9, tensor.F16: 0x1p-12} {
		b.RoundProducts(typ)
		// Every product rounds twice, and adapters as large as these add large numbers of
		// either sign.
		if x := noise(exact, decode()); !(x > 0 && x < 32*unit) {
			t.Errorf("%v: logits are off by %.2g of their size, want some, but less than %.2g", typ, x, 32*unit)
		}
	}
}
