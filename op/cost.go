package op

// Cost is what one call must do at the least: arithmetic, and bytes moved when
// each input is read once and each output written once. Profiles divide it by
// the measured time.
type Cost struct {
	FLOPs int64
	Bytes int64
}

func (c Cost) plus(d Cost) Cost { return Cost{c.FLOPs + d.FLOPs, c.Bytes + d.Bytes} }

func bytesOf(ts ...Tensor) (n int64) {
	for _, t := range ts {
		if t.Ok() {
			n += int64(t.Len()) * int64(t.Type().Size())
		}
	}
	return n
}

// Label returns the name under which profiles, errors and kernels know the call.
func (a Add) Label() string               { return "add" }
func (a Scale) Label() string             { return "scale" }
func (a Sum) Label() string               { return "sum" }
func (a Embedding) Label() string         { return "embedding_forward" }
func (a EmbeddingBackward) Label() string { return "embedding_backward" }
func (a RMSNorm) Label() string           { return "rmsnorm_forward" }
func (a RMSNormBackward) Label() string   { return "rmsnorm_backward" }
func (a MatMulSum) Label() string         { return "matmul_sum" }
func (a Attention) Label() string         { return "attention_forward" }
func (a AttentionBackward) Label() string { return "attention_backward" }
func (a KVAppend) Label() string          { return "kv_append" }
func (a AttentionDecode) Label() string   { return "attention_decode" }
func (a GateUp) Label() string            { return "matmul_gate_up" }
func (a CrossEntropy) Label() string      { return "cross_entropy" }
func (a GradNormSq) Label() string        { return "reduce_norm_sq" }
func (a FinalizeGradStats) Label() string { return "finalize_grad_stats" }
func (a AdamW8) Label() string            { return "adamw_8bit_update" }

// Label names the direction.
func (a Cast) Label() string {
	switch {
	case a.Dst.Ok() && a.Dst.Type() == f16:
		return "cast_f32_to_f16"
	case a.Dst.Ok() && a.Dst.Type() == bf16:
		return "cast_f32_to_bf16"
	case a.Src.Ok() && a.Src.Type() == bf16:
		return "cast_bf16_to_f32"
	}
	return "cast_f16_to_f32"
}

// Label names the form: matmul X·W, matmul_t dY·Wᵀ, matmul_at Xᵀ·dY.
func (a MatMul) Label() string {
	switch {
	case a.TransA:
		return "matmul_at"
	case a.TransB:
		return "matmul_t"
	}
	return "matmul"
}

// Label names the direction.
func (a RoPE) Label() string {
	if a.Inverse {
		return "rope_backward"
	}
	return "rope_forward"
}

// Label names the activation.
func (a GLU) Label() string {
	if a.Act == GeLUTanh {
		return "geglu_forward"
	}
	return "swiglu_forward"
}

// Label names the activation.
func (a GLUBackward) Label() string {
	if a.Act == GeLUTanh {
		return "geglu_backward"
	}
	return "swiglu_backward"
}

// Label names the mirror's type, where there is one.
func (a AdamW) Label() string {
	switch {
	case !a.W16.Ok():
		return "adamw_update"
	case a.W16.Type() == bf16:
		return "adamw_update_bf16"
	}
	return "adamw_update_f16"
}

func (a Add) cost() Cost { return Cost{int64(a.Dst.Len()), 3 * bytesOf(a.Src)} }
func (a Scale) cost() Cost {
	return Cost{int64(a.Dst.Len()), bytesOf(a.Dst, a.Src)}
}
func (a Cast) cost() Cost {
	return Cost{0, bytesOf(a.Dst, a.Src)}
}
func (a Sum) cost() Cost { return Cost{int64(a.X.Len()), bytesOf(a.X)} }
func (a Embedding) cost() Cost {
	return Cost{0, bytesOf(a.Tokens, a.Out) + int64(a.Out.Len()*a.W.Type().Size())}
}
func (a EmbeddingBackward) cost() Cost {
	return Cost{int64(a.DOut.Len()), bytesOf(a.Tokens) + 3*bytesOf(a.DOut)}
}
func (a RMSNorm) cost() Cost {
	return Cost{4 * int64(a.X.Len()), bytesOf(a.X, a.W, a.Y, a.RMSInv)}
}
func (a RMSNormBackward) cost() Cost {
	c := Cost{11 * int64(a.X.Len()), bytesOf(a.X, a.W, a.DY, a.RMSInv, a.DX, a.DW, a.DW)}
	if a.AddDX {
		c.Bytes += bytesOf(a.DX)
	}
	if a.DXCopy != a.DX {
		c.Bytes += bytesOf(a.DXCopy)
	}
	return c
}
func (a MatMul) cost() Cost {
	m, n, k := a.Sizes()
	c := Cost{2 * int64(m) * int64(n) * int64(k), bytesOf(a.A, a.B, a.C, a.Residual)}
	if a.Acc {
		c.Bytes += bytesOf(a.C)
	}
	return c
}
func (a MatMulSum) cost() (c Cost) {
	for i, p := range a {
		if i > 0 {
			p.C = Tensor{} // written once
		}
		k := p.cost()
		c.FLOPs += k.FLOPs
		c.Bytes += k.Bytes
	}
	return c
}
func (a RoPE) cost() Cost {
	to, to2 := a.X, a.X2
	if a.Out.Ok() {
		to = a.Out
	}
	if a.Out2.Ok() {
		to2 = a.Out2
	}
	n := a.X.Len()
	if a.X2.Ok() {
		n += a.X2.Len()
	}
	return Cost{3 * int64(n), bytesOf(a.X, to, a.X2, to2)}
}

// causalPairs counts the (query, key) pairs of all heads without a document mask.
func causalPairs(q Tensor) int64 {
	b, t, h := int64(q.Dims[0]), int64(q.Dims[1]), int64(q.Dims[2])
	return b * h * t * (t + 1) / 2
}
func (a Attention) cost() Cost {
	return Cost{4 * causalPairs(a.Q) * int64(a.Q.Cols()), bytesOf(a.Q, a.K, a.V, a.Out, a.LSE)}
}
func (a AttentionBackward) cost() Cost {
	return Cost{10 * causalPairs(a.Q) * int64(a.Q.Cols()),
		bytesOf(a.Q, a.K, a.V, a.Out, a.LSE, a.DOut, a.DQ, a.DK, a.DV)}
}
func (a KVAppend) cost() Cost { return Cost{0, 2 * bytesOf(a.K, a.V)} }
func (a AttentionDecode) cost() Cost {
	b, h, d := int64(a.Q.Dims[0]), int64(a.Q.Dims[1]), int64(a.Q.Dims[2])
	kvh := int64(a.KCache.Dims[2])
	return Cost{4 * b * h * d * int64(a.Len), 8*b*kvh*d*int64(a.Len) + bytesOf(a.Q, a.Out)}
}
func (a GLU) cost() Cost { return Cost{6 * int64(a.Out.Len()), bytesOf(a.Gate, a.Up, a.Out)} }
func (a GLUBackward) cost() Cost {
	return Cost{12 * int64(a.DOut.Len()), bytesOf(a.Gate, a.Up, a.DOut, a.DGate, a.DUp)}
}
func (a GateUp) cost() Cost {
	n, c, f := int64(a.X.Dims[0]), int64(a.X.Dims[1]), int64(a.WGate.Dims[1])
	return Cost{4*n*c*f + 6*n*f, bytesOf(a.X, a.WGate, a.WUp, a.Gate, a.Up, a.Out)}
}
func (a CrossEntropy) cost() Cost {
	c := Cost{6 * int64(a.Logits.Len()), bytesOf(a.Logits, a.Targets, a.Loss)}
	switch {
	case a.DLogits.Ok():
		c.Bytes += bytesOf(a.DLogits)
	case a.Grad:
		c.Bytes += bytesOf(a.Logits)
	}
	return c
}
func (a GradNormSq) cost() Cost        { return Cost{2 * int64(a.G.Len()), bytesOf(a.G, a.Partials)} }
func (a FinalizeGradStats) cost() Cost { return Cost{int64(a.Partials.Len()), bytesOf(a.Partials)} }
func (a AdamW) cost() Cost {
	n := int64(a.W.Len())
	return Cost{16 * n, 28*n + bytesOf(a.W16)} // reads w g m v, writes w m v
}
func (a AdamW8) cost() Cost {
	n := int64(a.W.Len())
	return Cost{24 * n, 16*n + 2*bytesOf(a.MScale, a.VScale) + bytesOf(a.W16)}
}
