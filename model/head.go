package model

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

// head is the final norm, the lm_head and the loss. The logits of all rows
// never exist at once: rows go through in chunks, and with gradients each
// chunk goes back at once, before the next overwrites it.
type head struct {
	x       op.Tensor // (N, C) the last layer's output
	y       op.Tensor // (N, C) operand, final_norm(x)
	rmsInv  op.Tensor // (N)
	logits  op.Tensor // (R, V), R rows of a chunk
	dlogits op.Tensor // (R, V) operand, their gradient: logits itself in float32
	loss    op.Tensor // (N) nats
	sum     op.Tensor // (1) Σ loss since the last LossSum

	w, dw, norm, dnorm op.Tensor // lm_head (C, V), or tok_emb (V, C) when tied; final_norm (C)
	gain               op.Tensor // (C) final_norm in float32

	host [1]float32 // where LossSum reads to
}

// logitsBytes is what a chunk of logits may take by default.
const logitsBytes = 64 << 20

func (g *Graph) newHead() {
	p, m, N := g.p, g.mem, g.Rows()
	name := headName
	if g.cfg.Tied {
		name = embName
	}
	m.purpose = "activations"
	h := &g.head
	h.x = g.blocks[len(g.blocks)-1].out
	h.y = m.operand("y_final", N, g.cfg.DModel)
	h.rmsInv = m.f32("rms_inv_final", N)
	h.loss = m.f32("loss", N)
	h.sum = m.f32("loss_sum", 1)
	h.w, h.norm, h.gain = p.factor(name), p.weight(normName), p.master(normName)
	if p.opt.Grads {
		h.dw, h.dnorm = p.grad(name), p.grad(normName)
	}
	m.purpose = "logits chunk"
	h.logits = m.f32("logits", HeadRows(g.cfg, g.opt, g.mem.lim), g.cfg.VocabSize)
	if h.dlogits = h.logits; p.trains() {
		h.dlogits = m.operandOr(h.logits, "dlogits")
	}
}

// HeadRows is R, the rows of logits that a graph with these options has at once:
// what the option asks for, or as many as fit logitsBytes and the device's limits, in
// chunks of nearly equal size. Chunks begin at multiples of op.AlignElems rows, so
// that every view of them is aligned. A context of 0 is the model's.
func HeadRows(cfg Config, opt TrainOptions, lim op.Limits) int {
	if opt.Context == 0 {
		opt.Context = cfg.Context
	}
	N, V := opt.Batch*opt.Context, cfg.VocabSize
	most := maxElems(lim, tensor.F32) / V
	rows := opt.LossChunkRows
	if rows == 0 {
		rows = min(logitsBytes/4/V, most)
		rows = max(rows/op.AlignElems*op.AlignElems, op.AlignElems)
		chunks := (N + rows - 1) / rows
		rows = (N + chunks - 1) / chunks
	}
	return min(alignUp(rows, op.AlignElems), N)
}

// headForwardBackward undoes itself: it computes the loss and the gradient of
// the last layer's output, left in dx.
func (g *Graph) headForwardBackward(gradScale float32) {
	r, h, s := g.r, &g.head, &g.back
	g.finalNorm()
	for lo := 0; lo < g.Rows(); lo += h.logits.Dims[0] {
		add := g.adds || lo > 0 // to the weight's gradient
		c := g.chunkLogits(lo)
		dlogits := c.dlogits // perhaps in place
		r.CrossEntropy(op.CrossEntropy{Logits: c.logits, DLogits: dlogits, Targets: c.targets, Loss: c.loss, Grad: true, Ignore: IgnoreIndex,
			LabelSmoothing: float32(g.opt.LabelSmoothing), ZLoss: float32(g.opt.ZLoss), GradScale: gradScale})
		dy := s.dy.RowRange(lo, lo+c.rows)
		if g.cfg.Tied { // logits = y·tok_embᵀ
			g.weightGrad(dlogits, c.y, h.dw, add)          // dtok_emb = dlogitsᵀ·y
			r.MatMul(op.MatMul{A: dlogits, B: h.w, C: dy}) // dy = dlogits·tok_emb
		} else { // logits = y·lm_head
			g.weightGrad(c.y, dlogits, h.dw, add)                        // dlm_head = yᵀ·dlogits
			r.MatMul(op.MatMul{A: dlogits, B: h.w, TransB: true, C: dy}) // dy = dlogits·lm_headᵀ
		}
	}
	r.Sum(op.Sum{X: h.loss, Out: h.sum, Scale: 1, Acc: true})
	r.RMSNormBackward(op.RMSNormBackward{X: h.x, W: h.gain, DY: s.dy, RMSInv: h.rmsInv, // y = norm(x)
		DX: s.dx, DXCopy: s.dxRead, DW: h.dnorm}) // dx =, dfinal_norm +=
}

// finalNorm computes y = norm(x).
func (g *Graph) finalNorm() {
	h := &g.head
	g.r.RMSNorm(op.RMSNorm{X: h.x, W: h.norm, Y: h.y, RMSInv: h.rmsInv, Eps: g.eps})
}

// chunkLogits computes the logits of the chunk of rows from lo on.
func (g *Graph) chunkLogits(lo int) lossChunk {
	c := g.chunk(lo)
	g.r.MatMul(op.MatMul{A: c.y, B: g.head.w, TransB: g.cfg.Tied, C: c.logits})
	return c
}

// headForward computes the plain cross-entropy.
func (g *Graph) headForward() {
	r, h := g.r, &g.head
	g.finalNorm()
	for lo := 0; lo < g.Rows(); lo += h.logits.Dims[0] {
		c := g.chunkLogits(lo)
		r.CrossEntropy(op.CrossEntropy{Logits: c.logits, Targets: c.targets, Loss: c.loss, Ignore: IgnoreIndex})
	}
	r.Sum(op.Sum{X: h.loss, Out: h.sum, Scale: 1, Acc: true})
}

// headLogits reads the logits back chunk by chunk.
func (g *Graph) headLogits(part func(first int, logits []float32) error) error {
	h := &g.head
	g.finalNorm()
	host := make([]float32, h.logits.Len())
	for lo := 0; lo < g.Rows(); lo += h.logits.Dims[0] {
		c := g.chunkLogits(lo)
		logits := host[:c.logits.Len()]
		if err := op.ReadSlice(g.r, logits, c.logits); err != nil {
			return err
		}
		if err := part(lo, logits); err != nil {
			return err
		}
	}
	return nil
}

// lossChunk is the view of rows [lo, lo+rows).
type lossChunk struct {
	rows    int
	y       op.Tensor // (rows, C)
	logits  op.Tensor // (rows, V)
	dlogits op.Tensor // (rows, V)
	targets op.Tensor // (rows)
	loss    op.Tensor // (rows)
}

func (g *Graph) chunk(lo int) lossChunk {
	h := &g.head
	rows := min(h.logits.Dims[0], g.Rows()-lo)
	return lossChunk{
		rows:    rows,
		y:       h.y.RowRange(lo, lo+rows),
		logits:  h.logits.RowRange(0, rows),
		dlogits: h.dlogits.RowRange(0, rows),
		targets: op.Of(g.targets.Buf, lo, rows),
		loss:    op.Of(h.loss.Buf, lo, rows),
	}
}

// LossSum waits, returns the sum of the losses (nats) of all rows since the
// last call, and clears it. It reads four bytes back.
func (g *Graph) LossSum() (sumNats float64, err error) {
	if err := op.ReadSlice(g.r, g.head.host[:], g.head.sum); err != nil {
		return 0, err
	}
	g.r.Zero(g.head.sum)
	return float64(g.head.host[0]), g.r.Err()
}

// RowLosses waits and copies the losses (nats) of the last batch's rows to dst
// (N): what Evaluate or MicroStep summed, 0 where the target was IgnoreIndex.
func (g *Graph) RowLosses(dst []float32) error {
	if len(dst) != g.Rows() {
		return fmt.Errorf("row losses: got room for %d, want %d (batch %d × context %d)",
			len(dst), g.Rows(), g.opt.Batch, g.opt.Context)
	}
	return op.ReadSlice(g.r, dst, g.head.loss)
}
