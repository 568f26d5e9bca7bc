package bench

import (
	"fmt"
	"math"

	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// weightShape is one weight of a model and the products that training makes with
// it: y = x·W, dx = dy·Wᵀ and dW = xᵀ·dy.
type weightShape struct {
	name string
	m    int // rows of x
	k, n int // columns of x and of y
	// turned: the weight lies as (n, k), as the embedding that is also the output
	// matrix does.
	turned bool
	// While products round, x, dy and what the model keeps of the weights have 16 bits
	// (op.Rounder; package model decides it), and here whether results do.
	y16, dx16 bool
	residual  bool // y is added to the residual stream
	dxAdds    bool // dx is added to that of another weight
}

// weightShapes are the distinct weights of a model when a step has rows rows and the
// head headRows of them at a time.
func weightShapes(cfg model.Config, rows, headRows int) []weightShape {
	c := cfg.WithDefaults()
	return []weightShape{
		{name: "wq", m: rows, k: c.DModel, n: c.Heads * c.HeadDim},
		{name: "wk", m: rows, k: c.DModel, n: c.KVHeads * c.HeadDim, dxAdds: true},
		{name: "w_gate", m: rows, k: c.DModel, n: c.FFN, y16: true},
		{name: "w_down", m: rows, k: c.FFN, n: c.DModel, dx16: true, residual: true},
		{name: "lm_head", m: headRows, k: c.DModel, n: c.VocabSize, turned: cfg.Tied},
	}
}

// MatMuls measures the products of every distinct weight shape of a model as a
// step of this form makes them: their inputs have 16 bits where opt.Round says so
// and the model's have, and the head takes as many rows at once as the model does.
// An error where the device cannot round to opt.Round.
func (b *Bencher) MatMuls(cfg model.Config, opt StepOptions) error {
	if err := round(b.r.Backend(), opt.Round); err != nil {
		return err
	}
	defer round(b.r.Backend(), tensor.F32) // which every backend does
	headRows := model.HeadRows(cfg, opt.graph(), b.r.Backend().Limits())
	for _, s := range weightShapes(cfg, opt.Batch*opt.Context, headRows) {
		if err := b.products(s, opt.Round); err != nil {
			return err
		}
	}
	return nil
}

// products measures the three products of one weight.
func (b *Bencher) products(s weightShape, rounds tensor.DType) error {
	list, free, err := b.prepare(s, rounds)
	defer free()
	if err != nil {
		return err
	}
	for _, a := range list {
		m, n, k := a.Sizes()
		t := task{name: fmt.Sprintf("%s %s M %d K %d N %d", a.Label(), s.name, m, k, n), rounds: rounds, run: func() { b.r.MatMul(a) }}
		t.cost.FLOPs = 2 * int64(m) * int64(k) * int64(n)
		t.calls = b.productCalls(t)
		if err := b.measure(t); err != nil {
			return err
		}
	}
	return nil
}

// productCalls is how many products a measurement waits for at once. In float32 it
// is one. On matrix units a product may be shorter than the wait, and what has to be
// turned is turned once after a wait: five milliseconds of work then.
func (b *Bencher) productCalls(t task) int {
	const work, most = 5e-3, 64
	if t.rounds == tensor.F32 {
		return 1
	}
	return int(min(most, math.Ceil(work*productPeak(b.peak, t.rounds)/float64(t.cost.FLOPs))))
}

// prepare allocates the tensors of a weight's products. In float32 each product
// writes its result; while products round they are what the model runs in the first
// micro-step of an update, so that some add to what is there.
func (b *Bencher) prepare(s weightShape, rounds tensor.DType) (list []op.MatMul, free func(), err error) {
	var buffers []op.Buffer
	free = func() {
		for _, buf := range buffers {
			b.r.Backend().Free(buf)
		}
	}
	tensorOf := func(typ tensor.DType, label string, dims ...int) op.Tensor {
		var t op.Tensor
		if err == nil {
			if t, err = b.randomOf(typ, label, uint64(len(buffers)), dims...); t.Ok() {
				buffers = append(buffers, t.Buf)
			}
		}
		return t
	}
	wRows, wCols := s.k, s.n
	if s.turned {
		wRows, wCols = s.n, s.k
	}
	result := map[bool]tensor.DType{true: rounds, false: tensor.F32}
	weights := model.RoundedOn(b.r.Backend().Limits(), rounds)
	x, w, dw := tensorOf(rounds, "x", s.m, s.k), tensorOf(weights, "w", wRows, wCols), tensorOf(tensor.F32, "dw", wRows, wCols)
	y, dy, dx := tensorOf(result[s.y16], "y", s.m, s.n), tensorOf(rounds, "dy", s.m, s.n), tensorOf(result[s.dx16], "dx", s.m, s.k)
	adds := rounds != tensor.F32
	forward := op.MatMul{A: x, B: w, C: y, TransB: s.turned}
	input := op.MatMul{A: dy, B: w, C: dx, TransB: !s.turned, Acc: s.dxAdds && adds}
	weight := op.MatMul{A: x, B: dy, C: dw, TransA: true}
	if s.turned {
		weight.A, weight.B = dy, x
	}
	if s.residual && adds {
		forward.Residual = tensorOf(tensor.F32, "residual", s.m, s.n)
	}
	return []op.MatMul{forward, input, weight}, free, err
}
