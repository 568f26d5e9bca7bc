package model

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

// newBlocks allocates the layers' activations: a set for each layer when a
// backward pass needs them, one shared set when it does not or computes them
// again.
func (g *Graph) newBlocks() {
	grads, frozen := g.p.trains(), g.p.adapter != nil
	shared := g.opt.Recompute || !grads
	g.mem.purpose = "activations"
	if g.narrowAttention() {
		g.qFlat = g.mem.f32("q_flat", g.opt.Batch, g.opt.Context, g.cfg.Heads, g.cfg.HeadDim)
		g.kFlat = g.mem.f32("k_flat", g.opt.Batch, g.opt.Context, g.cfg.KVHeads, g.cfg.HeadDim)
	}
	x := g.residual("x.0")
	var acts activations
	for l := range g.cfg.Layers {
		if l == 0 || !shared {
			acts = g.newActivations(suffixOf(l, shared))
		}
		b := block{w: collect(l, g.p.weight, g.p.factor), activations: acts, low: g.p.collectLow(l, &acts.u)}
		b.x, b.out = x, x // evaluation needs no layer's input afterwards
		if grads {
			b.out = g.residual(fmt.Sprintf("x.%d", l+1))
			b.dw = collect(l, g.p.grad, g.p.grad)
			b.below = l > 0
			b.attnDX = !frozen || l > 0
			b.ffnDX = b.attnDX || b.low.attention()
			b.attnGain, b.ffnGain = g.p.master(layerName(l, "attn_norm")), g.p.master(layerName(l, "ffn_norm"))
		}
		x = b.out
		b.qkv = []op.MatMul{
			{A: b.y1, B: b.w.wq, C: rowsOf(b.qFlat)},
			{A: b.y1, B: b.w.wk, C: rowsOf(b.kFlat)},
			{A: b.y1, B: b.w.wv, C: rowsOf(b.v)},
		}
		b.gateUp = []op.MatMul{{A: b.y2, B: b.w.wGate, C: b.gate}, {A: b.y2, B: b.w.wUp, C: b.up}}
		g.blocks = append(g.blocks, b)
	}
}

// linkGroups prepares the grouped products of the backward pass, which need
// the scratch tensors.
func (g *Graph) linkGroups() {
	s := &g.back
	for l := range g.blocks {
		b := &g.blocks[l]
		b.dqkv = []op.MatMul{
			{A: b.y1, TransA: true, B: rowsOf(s.dqBack), C: b.dw.wq},
			{A: b.y1, TransA: true, B: rowsOf(s.dkBack), C: b.dw.wk},
			{A: b.y1, TransA: true, B: rowsOf(s.dv), C: b.dw.wv},
		}
		_, dup := s.gluGrads(b)
		b.dgateDup = []op.MatMul{
			{A: b.y2, TransA: true, B: s.dgate, C: b.dw.wGate},
			{A: b.y2, TransA: true, B: dup, C: b.dw.wUp},
		}
	}
}

// linkSums prepares the gradients of the norms' outputs, which need the scratch
// tensors too. Frozen weights have them as well.
func (g *Graph) linkSums() {
	s := &g.back
	for l := range g.blocks {
		b := &g.blocks[l]
		dy := wanted(s.dy, b.attnDX)
		b.dy1 = op.MatMulSum{
			{A: rowsOf(s.dqBack), B: b.w.wq, TransB: true, C: dy},
			{A: rowsOf(s.dkBack), B: b.w.wk, TransB: true, C: dy},
			{A: rowsOf(s.dv), B: b.w.wv, TransB: true, C: dy},
		}
		dy = wanted(s.dy, b.ffnDX)
		_, dup := s.gluGrads(b)
		b.dy2 = op.MatMulSum{
			{A: s.dgate, B: b.w.wGate, TransB: true, C: dy},
			{A: dup, B: b.w.wUp, TransB: true, C: dy},
		}
	}
}

// wanted is t, or absent when nobody needs it.
func wanted(t op.Tensor, need bool) op.Tensor {
	if !need {
		return op.Tensor{}
	}
	return t
}

func suffixOf(l int, shared bool) string {
	if shared {
		return ""
	}
	return fmt.Sprintf(".%d", l)
}

func (g *Graph) residual(label string) op.Tensor { return g.mem.f32(label, g.Rows(), g.cfg.DModel) }

// newActivations allocates everything between a layer's input and its output.
func (g *Graph) newActivations(suffix string) activations {
	c := g.cfg
	B, T, N := g.opt.Batch, g.opt.Context, g.Rows()
	f32 := func(label string, dims ...int) op.Tensor { return g.mem.f32(label+suffix, dims...) }
	operand := func(label string, dims ...int) op.Tensor { return g.mem.operand(label+suffix, dims...) }
	narrow := g.narrowAttention()
	attention := func(label string, heads int) op.Tensor {
		return g.mem.operandIf(narrow, label+suffix, B, T, heads, c.HeadDim)
	}
	gated := func(label string) op.Tensor {
		return g.mem.operandIf(!g.p.adapts("w_gate", "w_up"), label+suffix, N, c.FFN)
	}
	a := activations{
		y1:   operand("y1", N, c.DModel),
		rms1: f32("rms_inv1", N),
		q:    attention("q", c.Heads),
		k:    attention("k", c.KVHeads),
		v:    attention("v", c.KVHeads),
		attn: attention("attn", c.Heads),
		lse:  f32("lse", B, c.Heads, T),
		xMid: f32("x_mid", N, c.DModel),
		y2:   operand("y2", N, c.DModel),
		rms2: f32("rms_inv2", N),
		gate: gated("gate"),
		up:   gated("up"),
		glu:  operand("glu", N, c.FFN),
		u:    g.p.newLowActs(func(label string, rank int) op.Tensor { return f32(label, N, rank) }),
	}
	if a.qFlat, a.kFlat = a.q, a.k; narrow {
		a.qFlat, a.kFlat = g.qFlat, g.kFlat
	}
	return a
}

// narrowAttention reports whether what attention reads and writes are operands of 16
// bits. With an adapter on v something is added to v, with one on o to the gradient of
// the output: these stay float32, and attention's other tensors with them, because its
// kernels are made for one type.
func (g *Graph) narrowAttention() bool {
	return g.mem.operands != tensor.F32 && !g.p.adapts("wv", "wo")
}
