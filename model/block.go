package model

import "tezgah/op"

// block is one layer: its parameters, its activations, and the groups of
// matrix products that share their left operand.
type block struct {
	w  blockParams // as forward and dX products read them
	dw blockParams // gradients
	activations
	attnGain, ffnGain op.Tensor // (C) float32, for the norms' backward pass

	qkv      []op.MatMul // q, k, v = y1·{wq, wk, wv}
	dqkv     []op.MatMul // {dwq, dwk, dwv} += y1ᵀ·{dq, dk, dv}
	dgateDup []op.MatMul // {dw_gate, dw_up} += y2ᵀ·{dgate, dup}
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

// collect gathers layer l's tensors with view, one of weight and grad.
func collect(l int, view func(name string) op.Tensor) blockParams {
	v := func(name string) op.Tensor { return view(layerName(l, name)) }
	return blockParams{
		attnNorm: v("attn_norm"), ffnNorm: v("ffn_norm"),
		wq: v("wq"), wk: v("wk"), wv: v("wv"), wo: v("wo"),
		wGate: v("w_gate"), wUp: v("w_up"), wDown: v("w_down"),
	}
}

// activations are what a layer computes. Everything but out is kept for its
// backward pass; with Recompute only x is, and the rest is shared by all
// layers.
type activations struct {
	x    op.Tensor // (N, C) the residual stream as the layer finds it
	y1   op.Tensor // (N, C) attn_norm(x); kept for dwq, dwk, dwv
	rms1 op.Tensor // (N)
	q    op.Tensor // (B, T, H, D) rotated
	k, v op.Tensor // (B, T, KVH, D), k rotated
	attn op.Tensor // (B, T, H, D)
	lse  op.Tensor // (B, H, T)
	xMid op.Tensor // (N, C) x + attn·wo
	y2   op.Tensor // (N, C) ffn_norm(xMid); kept for dw_gate, dw_up
	rms2 op.Tensor // (N)
	gate op.Tensor // (N, F)
	up   op.Tensor // (N, F)
	glu  op.Tensor // (N, F) act(gate)·up; the backward pass turns it into dup
	out  op.Tensor // (N, C) xMid + glu·w_down, the next layer's x
}

// rowsOf views a (B, T, heads, D) tensor as (N, heads·D), as the products see it.
func rowsOf(t op.Tensor) op.Tensor { return t.Reshape(t.Dims[0]*t.Dims[1], t.Dims[2]*t.Dims[3]) }

// attentionForward computes xMid = x + attention(norm(x))·wo.
func (g *Graph) attentionForward(b *block) {
	r := g.r
	r.RMSNorm(op.RMSNorm{X: b.x, W: b.w.attnNorm, Y: b.y1, RMSInv: b.rms1, Eps: g.eps})
	r.MatMulGroup(b.qkv)
	r.RoPE(op.RoPE{X: b.q, Table: g.rope})
	r.RoPE(op.RoPE{X: b.k, Table: g.rope})
	r.Attention(op.Attention{Q: b.q, K: b.k, V: b.v, Out: b.attn, LSE: b.lse, DocStart: g.docStart, Scale: g.scale})
	r.MatMul(op.MatMul{A: rowsOf(b.attn), B: b.w.wo, C: b.xMid, Residual: b.x})
}

// attentionBackward undoes attentionForward, its last line first. It finds the
// gradient of xMid in dx and leaves the gradient of x there.
func (g *Graph) attentionBackward(b *block) {
	r, s := g.r, &g.back
	dattn, dq, dk, dv := rowsOf(s.dattn), rowsOf(s.dq), rowsOf(s.dk), rowsOf(s.dv)
	// xMid = x + attn·wo; the gradient of x begins as dx itself.
	r.MatMul(op.MatMul{A: rowsOf(b.attn), TransA: true, B: s.dx, C: b.dw.wo, Acc: true}) // dwo += attnᵀ·dx
	r.MatMul(op.MatMul{A: s.dx, B: b.w.wo, TransB: true, C: dattn})                      // dattn = dx·woᵀ
	// attn = attention(q, k, v); dq, dk and dv are written.
	r.AttentionBackward(op.AttentionBackward{Q: b.q, K: b.k, V: b.v, Out: b.attn, LSE: b.lse, DocStart: g.docStart,
		DOut: s.dattn, Delta: s.delta, DQ: s.dq, DK: s.dk, DV: s.dv, Scale: g.scale})
	// q and k were rotated; rotate their gradients back.
	r.RoPE(op.RoPE{X: s.dq, Table: g.rope, Inverse: true})
	r.RoPE(op.RoPE{X: s.dk, Table: g.rope, Inverse: true})
	// q, k, v = y1·{wq, wk, wv}
	r.MatMulGroup(b.dqkv)                                                                 // dwq, dwk, dwv +=
	r.MatMul(op.MatMul{A: dq, B: b.w.wq, TransB: true, C: s.dy})                          // dy = dq·wqᵀ
	r.MatMul(op.MatMul{A: dk, B: b.w.wk, TransB: true, C: s.dy, Acc: true})               // dy += dk·wkᵀ
	r.MatMul(op.MatMul{A: dv, B: b.w.wv, TransB: true, C: s.dy, Acc: true})               // dy += dv·wvᵀ
	r.RMSNormBackward(op.RMSNormBackward{X: b.x, W: b.attnGain, DY: s.dy, RMSInv: b.rms1, // y1 = norm(x)
		DX: s.dx, AddDX: true, DW: b.dw.attnNorm}) // dx +=, dattn_norm +=
}

// ffnForward computes out = xMid + (act(y·w_gate)·(y·w_up))·w_down with
// y = norm(xMid).
func (g *Graph) ffnForward(b *block) {
	g.ffnInner(b)
	g.r.MatMul(op.MatMul{A: b.glu, B: b.w.wDown, C: b.out, Residual: b.xMid})
}

// ffnInner is ffnForward without the last product, which the backward pass
// does not need when it computes a layer again.
func (g *Graph) ffnInner(b *block) {
	g.r.RMSNorm(op.RMSNorm{X: b.xMid, W: b.w.ffnNorm, Y: b.y2, RMSInv: b.rms2, Eps: g.eps})
	g.r.GateUp(op.GateUp{X: b.y2, WGate: b.w.wGate, WUp: b.w.wUp, Gate: b.gate, Up: b.up, Out: b.glu, Act: g.act})
}

// ffnBackward undoes ffnForward, its last line first. It finds the gradient of
// out in dx and leaves the gradient of xMid there.
func (g *Graph) ffnBackward(b *block) {
	r, s := g.r, &g.back
	// out = xMid + glu·w_down; the gradient of xMid begins as dx itself.
	r.MatMul(op.MatMul{A: b.glu, TransA: true, B: s.dx, C: b.dw.wDown, Acc: true}) // dw_down += gluᵀ·dx
	dglu, dup := b.glu, b.glu                                                      // glu has been used for the last time
	r.MatMul(op.MatMul{A: s.dx, B: b.w.wDown, TransB: true, C: dglu})              // dglu = dx·w_downᵀ
	// glu = act(gate)·up; dgate and dup are written, dup over dglu.
	r.GLUBackward(op.GLUBackward{Gate: b.gate, Up: b.up, DOut: dglu, DGate: s.dgate, DUp: dup, Act: g.act})
	// gate, up = y2·{w_gate, w_up}
	r.MatMulGroup(b.dgateDup)                                                               // dw_gate, dw_up +=
	r.MatMul(op.MatMul{A: s.dgate, B: b.w.wGate, TransB: true, C: s.dy})                    // dy = dgate·w_gateᵀ
	r.MatMul(op.MatMul{A: dup, B: b.w.wUp, TransB: true, C: s.dy, Acc: true})               // dy += dup·w_upᵀ
	r.RMSNormBackward(op.RMSNormBackward{X: b.xMid, W: b.ffnGain, DY: s.dy, RMSInv: b.rms2, // y2 = norm(xMid)
		DX: s.dx, AddDX: true, DW: b.dw.ffnNorm}) // dx +=, dffn_norm +=
}
