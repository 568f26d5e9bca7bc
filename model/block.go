package model

import "tezgah/op"

// block is one layer: its parameters, its activations, the groups of matrix
// products that share their left operand, and the sums of products.
type block struct {
	w  blockParams // as forward and dX products read them
	dw blockParams // gradients; absent where the weights are frozen
	activations
	low               blockLow  // trained parts of frozen weights
	attnGain, ffnGain op.Tensor // (C) float32, for the norms' backward pass

	// Whether anything below needs the gradient of the sublayer's input.
	attnDX, ffnDX bool
	// Whether products of a layer below read that of the layer's input.
	below bool

	qkv      []op.MatMul // q, k, v = y1·{wq, wk, wv}
	gateUp   []op.MatMul // gate, up = y2·{w_gate, w_up}
	dqkv     []op.MatMul // {dwq, dwk, dwv} = y1ᵀ·{dq, dk, dv}; see Graph.weightGrads
	dgateDup []op.MatMul // {dw_gate, dw_up} = y2ᵀ·{dgate, dup}

	dy1 op.MatMulSum // dq·wqᵀ + dk·wkᵀ + dv·wvᵀ; C is absent without attnDX
	dy2 op.MatMulSum // dgate·w_gateᵀ + dup·w_upᵀ; C is absent without ffnDX
}

// blockParams are one layer's parameters, or their gradients.
type blockParams struct {
	attnNorm, ffnNorm op.Tensor // (C)
	wq                op.Tensor // (C, H·D)
	wk, wv            op.Tensor // (C, KVH·D)
	wo                op.Tensor // (H·D, C)
	wGate, wUp        op.Tensor // (C, F)
	wDown             op.Tensor // (F, C)
}

// collect gathers layer l's tensors: gains with one of weight and grad, matrices with
// one of weight, factor and grad.
func collect(l int, gain, matrix func(name string) op.Tensor) blockParams {
	v := func(name string) op.Tensor { return matrix(layerName(l, name)) }
	return blockParams{
		attnNorm: gain(layerName(l, "attn_norm")), ffnNorm: gain(layerName(l, "ffn_norm")),
		wq: v("wq"), wk: v("wk"), wv: v("wv"), wo: v("wo"),
		wGate: v("w_gate"), wUp: v("w_up"), wDown: v("w_down"),
	}
}

// activations are what a layer computes. Everything but out is kept for its
// backward pass; with Recompute only x is, and the rest is shared by all
// layers.
type activations struct {
	x    op.Tensor // (N, C) the residual stream as the layer finds it
	y1   op.Tensor // (N, C) operand, attn_norm(x); kept for dwq, dwk, dwv
	rms1 op.Tensor // (N)
	q    op.Tensor // (B, T, H, D) rotated; with k, v and attn operands, see Graph.narrowAttention
	k, v op.Tensor // (B, T, KVH, D), k rotated
	attn op.Tensor // (B, T, H, D)
	lse  op.Tensor // (B, H, T)
	xMid op.Tensor // (N, C) x + attn·wo
	y2   op.Tensor // (N, C) operand, ffn_norm(xMid); kept for dw_gate, dw_up
	rms2 op.Tensor // (N)
	gate op.Tensor // (N, F) operand, as up, but where something is added to one of them
	up   op.Tensor // (N, F)
	glu  op.Tensor // (N, F) operand, act(gate)·up; kept for dw_down, see scratch.gluGrads
	out  op.Tensor // (N, C) xMid + glu·w_down, the next layer's x
	u    lowActs   // of the trained parts of frozen weights

	// What the products give before it is rotated; q and k themselves in float32, else
	// memory that all layers share.
	qFlat op.Tensor // (B, T, H, D)
	kFlat op.Tensor // (B, T, KVH, D)
}

// rowsOf views a (B, T, heads, D) tensor as (N, heads·D), as the products see it.
func rowsOf(t op.Tensor) op.Tensor { return t.Reshape(t.Dims[0]*t.Dims[1], t.Dims[2]*t.Dims[3]) }

// attentionForward computes xMid = x + attention(norm(x))·wo.
func (g *Graph) attentionForward(b *block) {
	r := g.r
	r.RMSNorm(op.RMSNorm{X: b.x, W: b.w.attnNorm, Y: b.y1, RMSInv: b.rms1, Eps: g.eps})
	turn := op.RoPE{X: b.qFlat, Out: b.q, X2: b.kFlat, Out2: b.k, Table: g.rope} // perhaps in place
	if b.low.q == nil && b.low.k == nil {
		r.MatMulGroupRoPE(b.qkv, turn)
	} else {
		r.MatMulGroup(b.qkv)
		b.low.q.forward(r, b.y1, rowsOf(b.qFlat))
		b.low.k.forward(r, b.y1, rowsOf(b.kFlat))
		r.RoPE(turn)
	}
	b.low.v.forward(r, b.y1, rowsOf(b.v))
	r.Attention(op.Attention{Q: b.q, K: b.k, V: b.v, Out: b.attn, LSE: b.lse, DocStart: g.docStart, Scale: g.scale})
	r.MatMul(op.MatMul{A: rowsOf(b.attn), B: b.w.wo, C: b.xMid, Residual: b.x})
	b.low.o.forward(r, rowsOf(b.attn), b.xMid)
}

// attentionBackward undoes attentionForward, its last line first. It finds the
// gradient of xMid in dx and leaves the gradient of x there; dxRead goes with dx.
func (g *Graph) attentionBackward(b *block) {
	r, s := g.r, &g.back
	attn, dattn := rowsOf(b.attn), rowsOf(s.dattn)
	// xMid = x + attn·wo; the gradient of x begins as dx itself.
	g.weightGrad(attn, s.dxRead, b.dw.wo, g.adds)                   // dwo = attnᵀ·dx
	g.linearBackward(b.w.wo, b.low.o, attn, s.dxRead, dattn, false) // dattn = dx·woᵀ
	// attn = attention(q, k, v); dq, dk and dv are written. q and k were rotated: their
	// gradients are rotated back.
	r.AttentionBackwardRoPE(op.AttentionBackward{Q: b.q, K: b.k, V: b.v, Out: b.attn, LSE: b.lse, DocStart: g.docStart,
		DOut: s.dattn, Delta: s.delta, DQ: s.dq, DK: s.dk, DV: s.dv, Scale: g.scale},
		op.RoPE{X: s.dq, Out: s.dqBack, X2: s.dk, Out2: s.dkBack, Table: g.rope, Inverse: true})
	// q, k, v = y1·{wq, wk, wv}
	g.weightGrads(b.dqkv)                                     // dwq, dwk, dwv
	g.linearsBackward(b.dy1, b.y1, b.low.q, b.low.k, b.low.v) // dy = dq·wqᵀ + dk·wkᵀ + dv·wvᵀ
	if b.attnDX {
		r.RMSNormBackward(op.RMSNormBackward{X: b.x, W: b.attnGain, DY: s.dy, RMSInv: b.rms1, // y1 = norm(x)
			DX: s.dx, DXCopy: wanted(s.dxRead, b.below), AddDX: true, DW: b.dw.attnNorm}) // dx +=, dattn_norm +=
	}
}

// weightGrad writes a weight's gradient, dw = xᵀ·dy, or adds it with add, unless it is
// frozen.
func (g *Graph) weightGrad(x, dy, dw op.Tensor, add bool) {
	if dw.Ok() {
		g.r.MatMul(op.MatMul{A: x, TransA: true, B: dy, C: dw, Acc: add})
	}
}

// weightGrads is weightGrad for several weights of one input, added where this
// micro-step adds; the group is empty where they are frozen.
func (g *Graph) weightGrads(group []op.MatMul) {
	for i := range group {
		group[i].Acc = g.adds
	}
	if len(group) > 0 {
		g.r.MatMulGroup(group)
	}
}

// ffnForward computes out = xMid + (act(y·w_gate)·(y·w_up))·w_down with
// y = norm(xMid).
func (g *Graph) ffnForward(b *block) {
	g.ffnInner(b)
	g.r.MatMul(op.MatMul{A: b.glu, B: b.w.wDown, C: b.out, Residual: b.xMid})
	b.low.down.expand(g.r, b.out)
}

// ffnInner is ffnForward without the last product, which the backward pass
// does not need when it computes a layer again.
func (g *Graph) ffnInner(b *block) {
	g.r.RMSNorm(op.RMSNorm{X: b.xMid, W: b.w.ffnNorm, Y: b.y2, RMSInv: b.rms2, Eps: g.eps})
	b.low.gateUp(g.r, op.GateUp{X: b.y2, WGate: b.w.wGate, WUp: b.w.wUp, Gate: b.gate, Up: b.up, Out: b.glu, Act: g.act}, b.gateUp)
	b.low.down.project(g.r, b.glu)
}

// ffnBackward undoes ffnForward, its last line first. It finds the gradient of
// out in dx and leaves the gradient of xMid there; dxRead goes with dx.
func (g *Graph) ffnBackward(b *block) {
	r, s := g.r, &g.back
	// out = xMid + glu·w_down; the gradient of xMid begins as dx itself.
	g.weightGrad(b.glu, s.dxRead, b.dw.wDown, g.adds)                     // dw_down = gluᵀ·dx
	dglu, dup := s.gluGrads(b)                                            // glu itself, perhaps
	g.linearBackward(b.w.wDown, b.low.down, b.glu, s.dxRead, dglu, false) // dglu = dx·w_downᵀ
	// glu = act(gate)·up; dgate and dup are written, dup perhaps over dglu.
	r.GLUBackward(op.GLUBackward{Gate: b.gate, Up: b.up, DOut: dglu, DGate: s.dgate, DUp: dup, Act: g.act})
	// gate, up = y2·{w_gate, w_up}
	g.weightGrads(b.dgateDup)                            // dw_gate, dw_up
	g.linearsBackward(b.dy2, b.y2, b.low.gate, b.low.up) // dy = dgate·w_gateᵀ + dup·w_upᵀ
	if b.ffnDX {
		r.RMSNormBackward(op.RMSNormBackward{X: b.xMid, W: b.ffnGain, DY: s.dy, RMSInv: b.rms2, // y2 = norm(xMid)
			DX: s.dx, DXCopy: s.dxRead, AddDX: true, DW: b.dw.ffnNorm}) // dx +=, dffn_norm +=
	}
}
