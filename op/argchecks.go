package op

import (
	"fmt"

	"tezgah/tensor"
)

// This file holds each operation's check, in the order of args.go. A check
// reads only shapes and types, never memory.

const (
	f32  = tensor.F32
	f16  = tensor.F16
	bf16 = tensor.BF16
	i32  = tensor.I32
	i8   = tensor.I8
)

func (a Add) check() error {
	c := checker{op: a.Label()}
	if c.present("dst", a.Dst) {
		c.want("dst", a.Dst.Flat(), f32, "n", a.Dst.Len())
		if a.Src.Ok() {
			c.want("src", a.Src.Flat(), f32, "n", a.Dst.Len())
		} else {
			c.fail("src is absent")
		}
	}
	return c.err
}

func (a Scale) check() error {
	c := checker{op: a.Label()}
	if c.present("dst", a.Dst) {
		c.want("dst", a.Dst.Flat(), f32, "n", a.Dst.Len())
		if a.Src.Ok() {
			c.want("src", a.Src.Flat(), f32, "n", a.Dst.Len())
		} else {
			c.fail("src is absent")
		}
	}
	return c.err
}

func (a Cast) check() error {
	c := checker{op: a.Label()}
	if !c.present("dst", a.Dst) || !c.present("src", a.Src) {
		return c.err
	}
	from, to := a.Src.Type(), a.Dst.Type()
	half := func(t tensor.DType) bool { return t == f16 || t == bf16 }
	if !(from == f32 && half(to) || half(from) && to == f32) {
		c.fail("cannot convert %v %v to %v, want F32 on one side and F16 or BF16 on the other", from, a.Src, to)
	}
	c.want("dst", a.Dst.Flat(), to, "n", a.Src.Len())
	c.want("src", a.Src.Flat(), from, "n", a.Src.Len())
	return c.err
}

func (a Sum) check() error {
	c := checker{op: a.Label()}
	if c.rank("x", a.X, 1) {
		c.want("x", a.X, f32, "n", a.X.Len())
		c.want("out", a.Out, f32, "one", 1)
	}
	return c.err
}

func (a Embedding) check() error {
	c := checker{op: a.Label()}
	if c.rank("w", a.W, 2) && c.rank("out", a.Out, 2) {
		n := a.Out.Dims[0]
		c.want("tokens", a.Tokens, i32, "N", n)
		c.wantWeight("w", a.W, "V,C", a.W.Dims[0], a.W.Dims[1])
		c.want("out", a.Out, f32, "N,C", n, a.W.Cols())
	}
	return c.err
}

func (a EmbeddingBackward) check() error {
	c := checker{op: a.Label()}
	if c.rank("dw", a.DW, 2) && c.rank("dout", a.DOut, 2) {
		n := a.DOut.Dims[0]
		c.want("tokens", a.Tokens, i32, "N", n)
		c.want("dw", a.DW, f32, "V,C", a.DW.Dims[0], a.DW.Dims[1])
		c.want("dout", a.DOut, f32, "N,C", n, a.DW.Cols())
	}
	return c.err
}

func (a RMSNorm) check() error {
	c := checker{op: a.Label()}
	if c.rank("x", a.X, 2) {
		n, d := a.X.Dims[0], a.X.Dims[1]
		c.want("x", a.X, f32, "N,C", n, d)
		c.wantWeight("w", a.W, "C", d)
		c.wantOperand("y", a.Y, "N,C", n, d)
		c.want("rms_inv", a.RMSInv, f32, "N", n)
	}
	return c.err
}

func (a RMSNormBackward) check() error {
	c := checker{op: a.Label()}
	if c.rank("x", a.X, 2) {
		n, d := a.X.Dims[0], a.X.Dims[1]
		c.want("x", a.X, f32, "N,C", n, d)
		c.want("w", a.W, f32, "C", d)
		c.want("dy", a.DY, f32, "N,C", n, d)
		c.want("rms_inv", a.RMSInv, f32, "N", n)
		c.want("dx", a.DX, f32, "N,C", n, d)
		if a.DXCopy.Ok() {
			c.wantOperand("dx_copy", a.DXCopy, "N,C", n, d)
		}
		c.optional("dw", a.DW, f32, "C", d)
	}
	return c.err
}

func (a MatMul) check() error {
	c := checker{op: a.Label()}
	if a.TransA && a.TransB {
		c.fail("both operands transposed is not a form")
	}
	if c.rank("a", a.A, 2) && c.rank("b", a.B, 2) {
		m, n, k := a.Sizes()
		if a.TransA {
			c.wantOperand("a", a.A, "K,M", k, m)
		} else {
			c.wantOperand("a", a.A, "M,K", m, k)
		}
		if a.TransB {
			c.wantOperand("b", a.B, "N,K", n, k)
		} else {
			c.wantOperand("b", a.B, "K,N", k, n)
		}
		c.wantOperand("c", a.C, "M,N", m, n)
		c.optional("residual", a.Residual, f32, "M,N", m, n)
		if c.err == nil && a.C.Type() != f32 && (a.Acc || a.Residual.Ok()) {
			c.fail("c %v is %v, want F32 with acc or a residual: a sum is rounded once, when it is complete", a.C, a.C.Type())
		}
	}
	return c.err
}

func (a MatMulSum) check() error {
	c := checker{op: a.Label()}
	if len(a) == 0 {
		c.fail("there are no products, want at least one")
	}
	for i := 0; i < len(a) && c.err == nil; i++ {
		if err := a.Product(i).check(); err != nil {
			c.err = fmt.Errorf("%s: product %d: %w", a.Label(), i, err)
		}
		c.that(i == 0 || !a[i].Acc && !a[i].Residual.Ok(), "product %d of %d has acc or a residual, want them on product 0 alone: they are added once", i, len(a))
		if c.err == nil && a[i].C != a[0].C {
			c.fail("c of product %d is %v from element %d, want that of product 0, %v from element %d", i, a[i].C, a[i].C.Off, a[0].C, a[0].C.Off)
		}
	}
	return c.err
}

func (a RoPE) check() error {
	c := checker{op: a.Label()}
	if c.rank("x", a.X, 4) && c.rank("table", a.Table, 2) {
		b, t, h, d := a.X.Dims[0], a.X.Dims[1], a.X.Dims[2], a.X.Dims[3]
		c.want("x", a.X, f32, "B,T,H,D", b, t, h, d)
		if a.Out.Ok() {
			c.wantOperand("out", a.Out, "B,T,H,D", b, t, h, d)
		}
		switch {
		case !a.X2.Ok() && a.Out2.Ok():
			c.fail("out2 is given, want it absent without x2: there is nothing to turn")
		case a.X2.Ok() && c.rank("x2", a.X2, 4):
			c.want("x2", a.X2, f32, "B,T,KVH,D", b, t, a.X2.Dims[2], d)
			if a.Out2.Ok() {
				c.wantOperand("out2", a.Out2, "B,T,KVH,D", b, t, a.X2.Dims[2], d)
			}
		}
		c.that(d%2 == 0, "D is %d, want an even number (remainder %d)", d, d%2)
		p := a.Table.Dims[0]
		c.want("table", a.Table, f32, "P,D", p, d)
		c.that(a.Pos0 >= 0 && a.Pos0+t <= p, "positions up to %d do not fit a table of %d", a.Pos0+t, p)
	}
	return c.err
}

// heads checks what the attention forms share and returns the sizes.
func (c *checker) heads(q, k Tensor) (b, t, h, kvh, d int, ok bool) {
	if !c.rank("q", q, 4) || !c.rank("k", k, 4) {
		return
	}
	b, t, h, d = q.Dims[0], q.Dims[1], q.Dims[2], q.Dims[3]
	kvh = k.Dims[2]
	c.that(h%kvh == 0, "H %d is not a multiple of KVH %d", h, kvh)
	return b, t, h, kvh, d, c.err == nil
}

func (a Attention) check() error {
	c := checker{op: a.Label()}
	if b, t, h, kvh, d, ok := c.heads(a.Q, a.K); ok {
		c.queries(a.Q, a.K, a.V, b, t, h, kvh, d)
		c.wantOperand("out", a.Out, "B,T,H,D", b, t, h, d)
		c.want("lse", a.LSE, f32, "B,H,T", b, h, t)
		c.optional("doc_start", a.DocStart, i32, "B,T", b, t)
	}
	return c.err
}

// queries checks what attention reads in both directions.
func (c *checker) queries(q, k, v Tensor, b, t, h, kvh, d int) {
	c.wantOperand("q", q, "B,T,H,D", b, t, h, d)
	c.wantOperand("k", k, "B,T,KVH,D", b, t, kvh, d)
	c.wantOperand("v", v, "B,T,KVH,D", b, t, kvh, d)
	c.oneType("q", q, "k", k)
	c.oneType("q", q, "v", v)
}

func (a AttentionBackward) check() error {
	c := checker{op: a.Label()}
	if b, t, h, kvh, d, ok := c.heads(a.Q, a.K); ok {
		c.queries(a.Q, a.K, a.V, b, t, h, kvh, d)
		c.wantOperand("out", a.Out, "B,T,H,D", b, t, h, d)
		c.wantOperand("dout", a.DOut, "B,T,H,D", b, t, h, d)
		c.want("lse", a.LSE, f32, "B,H,T", b, h, t)
		c.want("delta", a.Delta, f32, "B,H,T", b, h, t)
		c.want("dq", a.DQ, f32, "B,T,H,D", b, t, h, d)
		c.want("dk", a.DK, f32, "B,T,KVH,D", b, t, kvh, d)
		c.wantOperand("dv", a.DV, "B,T,KVH,D", b, t, kvh, d)
		c.optional("doc_start", a.DocStart, i32, "B,T", b, t)
	}
	return c.err
}

func (a KVAppend) check() error {
	c := checker{op: a.Label()}
	if c.rank("k", a.K, 4) && c.rank("k_cache", a.KCache, 4) {
		b, t, kvh, d := a.K.Dims[0], a.K.Dims[1], a.K.Dims[2], a.K.Dims[3]
		p := a.KCache.Dims[1]
		c.want("k", a.K, f32, "B,T,KVH,D", b, t, kvh, d)
		c.want("v", a.V, f32, "B,T,KVH,D", b, t, kvh, d)
		c.want("k_cache", a.KCache, f32, "B,P,KVH,D", b, p, kvh, d)
		c.want("v_cache", a.VCache, f32, "B,P,KVH,D", b, p, kvh, d)
		c.that(t <= p, "%d rows do not fit %d slots", t, p)
		c.that(a.Pos >= 0, "position %d is negative (slots %d)", a.Pos, p)
	}
	return c.err
}

func (a AttentionDecode) check() error {
	c := checker{op: a.Label()}
	if c.rank("q", a.Q, 3) && c.rank("k_cache", a.KCache, 4) {
		b, h, d := a.Q.Dims[0], a.Q.Dims[1], a.Q.Dims[2]
		p, kvh := a.KCache.Dims[1], a.KCache.Dims[2]
		c.that(h%kvh == 0, "H %d is not a multiple of KVH %d", h, kvh)
		c.want("q", a.Q, f32, "B,H,D", b, h, d)
		c.want("k_cache", a.KCache, f32, "B,P,KVH,D", b, p, kvh, d)
		c.want("v_cache", a.VCache, f32, "B,P,KVH,D", b, p, kvh, d)
		c.want("out", a.Out, f32, "B,H,D", b, h, d)
		c.that(a.Len >= 1 && a.Len <= p, "length %d, want 1 to %d", a.Len, p)
	}
	return c.err
}

func (a GLU) check() error {
	c := checker{op: a.Label()}
	if c.rank("gate", a.Gate, 2) {
		n, f := a.Gate.Dims[0], a.Gate.Dims[1]
		c.gateAndUp(a.Gate, a.Up, n, f)
		c.wantOperand("out", a.Out, "N,F", n, f)
	}
	return c.err
}

// gateAndUp checks the two sides of a gated unit.
func (c *checker) gateAndUp(gate, up Tensor, n, f int) {
	c.wantOperand("gate", gate, "N,F", n, f)
	c.wantOperand("up", up, "N,F", n, f)
	c.oneType("gate", gate, "up", up)
}

func (a GLUBackward) check() error {
	c := checker{op: a.Label()}
	if c.rank("gate", a.Gate, 2) {
		n, f := a.Gate.Dims[0], a.Gate.Dims[1]
		c.gateAndUp(a.Gate, a.Up, n, f)
		c.wantOperand("dout", a.DOut, "N,F", n, f)
		c.wantOperand("dgate", a.DGate, "N,F", n, f)
		c.wantOperand("dup", a.DUp, "N,F", n, f)
		c.oneType("dgate", a.DGate, "dup", a.DUp)
	}
	return c.err
}

func (a GateUp) check() error {
	c := checker{op: a.Label()}
	if c.rank("x", a.X, 2) && c.rank("w_gate", a.WGate, 2) {
		n, d, f := a.X.Dims[0], a.X.Dims[1], a.WGate.Dims[1]
		c.wantOperand("x", a.X, "N,C", n, d)
		c.wantOperand("w_gate", a.WGate, "C,F", d, f)
		c.wantOperand("w_up", a.WUp, "C,F", d, f)
		c.gateAndUp(a.Gate, a.Up, n, f)
		c.wantOperand("out", a.Out, "N,F", n, f)
	}
	return c.err
}

func (a CrossEntropy) check() error {
	c := checker{op: a.Label()}
	if c.rank("logits", a.Logits, 2) {
		r, v := a.Logits.Dims[0], a.Logits.Dims[1]
		c.want("logits", a.Logits, f32, "R,V", r, v)
		c.want("targets", a.Targets, i32, "R", r)
		c.want("loss", a.Loss, f32, "R", r)
		if a.DLogits.Ok() {
			c.wantOperand("dlogits", a.DLogits, "R,V", r, v)
			if !a.Grad {
				c.fail("dlogits is given, want it absent without Grad: there is no gradient to write")
			}
		}
		if !(a.LabelSmoothing >= 0 && a.LabelSmoothing < 1) {
			c.fail("label smoothing is %v, want 0 ≤ α < 1", a.LabelSmoothing)
		}
	}
	return c.err
}

func (a GradNormSq) check() error {
	c := checker{op: a.Label()}
	if c.rank("g", a.G, 1) {
		c.want("g", a.G, f32, "n", a.G.Len())
		c.want("partials", a.Partials, f32, "p,two", NormPartials(a.G.Len()), 2)
	}
	return c.err
}

func (a FinalizeGradStats) check() error {
	c := checker{op: a.Label()}
	if c.rank("partials", a.Partials, 2) {
		c.want("partials", a.Partials, f32, "p,two", a.Partials.Dims[0], 2)
		c.want("stats", a.Stats, f32, "four", 4)
	}
	return c.err
}

// mirror checks the 16-bit copy of n weights, where there is one.
func (c *checker) mirror(t Tensor, n int) {
	if !t.Ok() {
		return
	}
	if typ := t.Type(); typ != f16 && typ != bf16 {
		c.fail("w16 %v is %v, want F16 or BF16", t, typ)
	}
	c.want("w16", t, t.Type(), "n", n)
}

func (a AdamW) check() error {
	c := checker{op: a.Label()}
	if c.rank("w", a.W, 1) {
		n := a.W.Len()
		c.want("w", a.W, f32, "n", n)
		c.want("g", a.G, f32, "n", n)
		c.want("m", a.M, f32, "n", n)
		c.want("v", a.V, f32, "n", n)
		c.mirror(a.W16, n)
		c.want("stats", a.Stats, f32, "four", 4)
	}
	return c.err
}

func (a AdamW8) check() error {
	c := checker{op: a.Label()}
	if c.rank("w", a.W, 1) {
		n := a.W.Len()
		blocks := (n + MomentBlock - 1) / MomentBlock
		c.want("w", a.W, f32, "n", n)
		c.want("g", a.G, f32, "n", n)
		c.want("m", a.M, i8, "n", n)
		c.want("v", a.V, i8, "n", n)
		c.want("m_scale", a.MScale, f32, "blocks", blocks)
		c.want("v_scale", a.VScale, f32, "blocks", blocks)
		c.mirror(a.W16, n)
		c.want("stats", a.Stats, f32, "four", 4)
	}
	return c.err
}
