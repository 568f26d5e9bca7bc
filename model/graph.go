package model

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

// TrainOptions are the sizes and the loss of one micro-step.
type TrainOptions struct {
	Batch          int     // B, at least 1
	Context        int     // T; 0 means Config.Context
	LabelSmoothing float64 // α in [0, 1); 0 means none
	ZLoss          float64 // β, at least 0; 0 means none
	DocMask        bool    // attention does not cross the document starts given with each batch
	Recompute      bool    // keep only each layer's input and compute the rest again in the backward pass
	LossChunkRows  int     // rows of logits that exist at once, rounded up to a multiple of 256; 0 means about 64 MiB
}

func (o TrainOptions) validate() error {
	switch {
	case o.Batch < 1 || o.Batch > maxDim:
		return fmt.Errorf("training options: batch is %d, want 1 to %d", o.Batch, maxDim)
	case o.Context < 1 || o.Context > maxDim:
		return fmt.Errorf("training options: context is %d, want 1 to %d", o.Context, maxDim)
	case !(o.LabelSmoothing >= 0 && o.LabelSmoothing < 1):
		return fmt.Errorf("training options: label smoothing is %v, want 0 ≤ α < 1", o.LabelSmoothing)
	case !(o.ZLoss >= 0) || math.IsInf(o.ZLoss, 0):
		return fmt.Errorf("training options: z-loss is %v, want a finite number of at least 0", o.ZLoss)
	case o.LossChunkRows < 0:
		return fmt.Errorf("training options: loss chunk is %d rows, want at least 1, or 0 for the default", o.LossChunkRows)
	}
	return nil
}

// Graph is a model laid out for batches of one size, with every activation
// allocated. Its methods are lists of ops; after NewGraph nothing is allocated
// but what Logits hands out.
type Graph struct {
	r   *op.Runner
	mem *memory
	p   *Params
	cfg Config
	opt TrainOptions
	act op.Activation
	eps float32
	// scale of the attention scores, D^−½.
	scale float32

	tokens   op.Tensor // (N) int32
	targets  op.Tensor // (N) int32
	docStart op.Tensor // (B, T) int32; absent without DocMask
	rope     op.Tensor // (T, D)

	qFlat  op.Tensor // (B, T, H, D) see activations; absent in float32
	kFlat  op.Tensor // (B, T, KVH, D)
	blocks []block
	head   head
	back   scratch // absent when the parameters have no gradients
	adds   bool    // this micro-step adds to the gradients of earlier ones; see gradsum.go
}

// scratch is what the backward pass writes and no forward pass reads; all
// layers share it.
type scratch struct {
	dx     op.Tensor // (N, C) gradient of the residual stream
	dy     op.Tensor // (N, C) gradient of a norm's output
	dattn  op.Tensor // (B, T, H, D) gradient of the attention's output; operand, see Graph.narrowAttention
	dq     op.Tensor // (B, T, H, D) qFlat's memory, where there is one: neither lasts
	dk, dv op.Tensor // (B, T, KVH, D) likewise kFlat's, and an operand as dattn
	delta  op.Tensor // (B, H, T)
	du     op.Tensor // (N, r) gradient of a low-rank projection; absent without an adapter

	// Operands.
	dxRead op.Tensor // (N, C) dx as products read it, renewed with it: dx itself in float32
	dqBack op.Tensor // (B, T, H, D) dq rotated back: dq itself in float32
	dkBack op.Tensor // (B, T, KVH, D) dk rotated back: dk itself in float32
	dgate  op.Tensor // (N, F)
	dup    op.Tensor // (N, F); absent in float32, see gluGrads
	dglu   op.Tensor // (N, F) gradient of glu; absent in float32, see gluGrads
}

// gluGrads is where the gradients of a layer's glu and up go. In float32 one after
// the other takes glu's place. In 16 bits they have memory of their own, which is
// little then: with an adapter on w_down something is added to dglu, in float32, and
// without one the products that read glu and write dglu need not wait for each other.
func (s *scratch) gluGrads(b *block) (dglu, dup op.Tensor) {
	if s.dglu.Ok() {
		return s.dglu, s.dup
	}
	return b.glu, b.glu
}

// NewGraph allocates the activations for batches of opt.Batch sequences of
// opt.Context tokens. When p has no gradients the graph can only evaluate, and
// needs far less memory. What products read has the backend's operand type as
// it is now: op.Rounder's RoundProducts comes before NewGraph, and a graph made
// while products round to 16 bits fails with an error when they no longer do.
func NewGraph(r *op.Runner, p *Params, opt TrainOptions) (*Graph, error) {
	mem := &memory{b: r.Backend(), lim: r.Backend().Limits(), operands: op.OperandType(r.Backend())}
	g, err := newGraph(mem, r, p, opt)
	if err == nil {
		op.WriteSlice(r, g.rope, ropeTable(p.cfg, 0, g.opt.Context))
		err = r.Err()
	}
	if err != nil {
		mem.free()
		return nil, err
	}
	return g, nil
}

func newGraph(mem *memory, r *op.Runner, p *Params, opt TrainOptions) (*Graph, error) {
	c := p.cfg
	if opt.Context == 0 {
		opt.Context = c.Context
	}
	if err := opt.validate(); err != nil {
		return nil, err
	}
	B, T := opt.Batch, opt.Context
	g := &Graph{r: r, mem: mem, p: p, cfg: c, opt: opt, eps: float32(c.NormEps), scale: c.attentionScale()}
	g.act, _ = c.activation() // validated with the configuration
	mem.purpose = "batch and positions"
	g.tokens = mem.i32("tokens", B*T)
	g.targets = mem.i32("targets", B*T)
	if opt.DocMask {
		g.docStart = mem.i32("doc_start", B, T)
	}
	g.rope = mem.f32("rope_table", T, c.HeadDim)
	g.newBlocks()
	g.newHead()
	if p.trains() {
		g.newScratch()
		g.linkSums()
	}
	if p.opt.Grads {
		g.linkGroups()
	}
	return g, mem.err
}

func (g *Graph) newScratch() {
	c, m := g.cfg, g.mem
	B, T, N := g.opt.Batch, g.opt.Context, g.Rows()
	narrow := g.narrowAttention()
	m.purpose = "backward scratch"
	g.back = scratch{
		dx:    m.f32("dx", N, c.DModel),
		dy:    m.f32("dy", N, c.DModel),
		dattn: m.operandIf(narrow, "dattn", B, T, c.Heads, c.HeadDim),
		dq:    g.qFlat,
		dk:    g.kFlat,
		dv:    m.operandIf(narrow, "dv", B, T, c.KVHeads, c.HeadDim),
		delta: m.f32("delta", B, c.Heads, T),
		dgate: m.operand("dgate", N, c.FFN),
	}
	s := &g.back
	if !narrow {
		s.dq, s.dk = m.f32("dq", B, T, c.Heads, c.HeadDim), m.f32("dk", B, T, c.KVHeads, c.HeadDim)
	}
	s.dxRead = m.operandOr(s.dx, "dx_read")
	s.dqBack, s.dkBack = m.operandOr(s.dq, "dq_back"), m.operandOr(s.dk, "dk_back")
	if m.operands != tensor.F32 {
		s.dglu, s.dup = m.operandIf(!g.p.adapts("w_down"), "dglu", N, c.FFN), m.operand("dup", N, c.FFN)
	}
	if g.p.adapter != nil {
		g.back.du = m.f32("du", N, g.p.opt.LoRA.Rank)
	}
}

// Rows is N = B·T, the length of tokens and targets.
func (g *Graph) Rows() int { return g.opt.Batch * g.opt.Context }

// Options returns the options with the context filled in.
func (g *Graph) Options() TrainOptions { return g.opt }

// Close frees the activations.
func (g *Graph) Close() { g.mem.free() }

// MicroStep runs one batch forward and backward. It adds gradScale times the
// loss's gradient to the gradients, or begins a new sum of them when it is the
// first since NewParams, Init, an optimizer's step or Params.DropGrads; and the sum
// of the rows' losses (with smoothing and z-loss) to the loss sum. gradScale is
// 1/(targets counted in the whole optimizer step, over all its micro-steps), which
// makes accumulation equal to one large batch. After an error on the way the
// gradients are dropped; a batch that is refused leaves them as they were.
//
// tokens and targets are (B, T) row-major; a target may be IgnoreIndex.
// docStart is (B, T) with DocMask, the index in the row at which the document
// of that position begins, and nil without.
func (g *Graph) MicroStep(tokens, targets, docStart []int32, gradScale float32) error {
	if !g.p.trains() {
		return fmt.Errorf("micro-step: the parameters were made without gradients, want ParamOptions.Grads")
	}
	if !(gradScale > 0) || math.IsInf(float64(gradScale), 0) {
		return fmt.Errorf("micro-step: gradient scale is %v, want 1/(counted targets of the step), finite and above 0", gradScale)
	}
	if err := g.load(tokens, targets, docStart); err != nil {
		return err
	}
	grads := g.p.Trainable()
	g.adds = grads.beginGrads()
	g.forward()
	g.headForwardBackward(gradScale)
	g.backward()
	g.r.Flush() // the device works while the host prepares the next batch
	err := g.r.Err()
	if err != nil {
		grads.DropGrads()
	}
	return err
}

// Evaluate runs one batch forward and adds the sum of its rows' losses to the
// loss sum: plain cross-entropy in nats, without smoothing and z-loss, so that
// its mean is the logarithm of the perplexity.
func (g *Graph) Evaluate(tokens, targets, docStart []int32) error {
	if err := g.load(tokens, targets, docStart); err != nil {
		return err
	}
	g.forward()
	g.headForward()
	g.r.Flush()
	return g.r.Err()
}

// Logits runs one batch forward and hands the logits of all positions to part,
// chunk by chunk in order: logits (R, V) are those of rows first to first+R−1
// of the N, valid until part returns. An error of part ends the pass and is
// returned. Losses stay as they are. This is for comparing engines and for
// looking closely; it copies N·V numbers to the host.
func (g *Graph) Logits(tokens, docStart []int32, part func(first int, logits []float32) error) error {
	if err := g.loadInputs(tokens, docStart); err != nil {
		return err
	}
	g.forward()
	return g.headLogits(part)
}

// forward: 01 → [02 → 03 QKV → 04 → 05 → 03 O → 02 → 03 gate/up → 06 → 03 down] × L.
func (g *Graph) forward() {
	g.p.fresh()
	g.r.Embedding(op.Embedding{Tokens: g.tokens, W: g.p.weight(embName), Out: g.blocks[0].x})
	for l := range g.blocks {
		g.attentionForward(&g.blocks[l])
		g.ffnForward(&g.blocks[l])
	}
}

// backward begins with the gradient of the last layer's output in dx, where
// the head left it.
func (g *Graph) backward() {
	for l := len(g.blocks) - 1; l >= 0; l-- {
		b := &g.blocks[l]
		if g.opt.Recompute && l < len(g.blocks)-1 { // the last layer's activations are still there
			g.attentionForward(b)
			g.ffnInner(b)
		}
		g.ffnBackward(b)
		if b.ffnDX {
			g.attentionBackward(b)
		}
	}
	if dw := g.p.grad(embName); dw.Ok() {
		g.r.EmbeddingBackward(op.EmbeddingBackward{Tokens: g.tokens, DOut: g.back.dx, DW: dw}) // += what was cleared, or the head wrote
	}
}

// load checks a batch and copies it to the device.
func (g *Graph) load(tokens, targets, docStart []int32) error {
	if err := g.checkTargets(targets); err != nil {
		return err
	}
	if err := g.loadInputs(tokens, docStart); err != nil {
		return err
	}
	op.WriteSlice(g.r, g.targets, targets)
	return g.r.Err()
}

// loadInputs is load for passes without a loss.
func (g *Graph) loadInputs(tokens, docStart []int32) error {
	if err := g.checkInputs(tokens, docStart); err != nil {
		return err
	}
	op.WriteSlice(g.r, g.tokens, tokens)
	if g.opt.DocMask {
		op.WriteSlice(g.r, g.docStart, docStart)
	}
	return g.r.Err()
}

// checkLen says whether a batch has N of what.
func (g *Graph) checkLen(what string, n int) error {
	if n != g.Rows() {
		return fmt.Errorf("batch: got %d %s, want %d (batch %d × context %d)", n, what, g.Rows(), g.opt.Batch, g.opt.Context)
	}
	return nil
}

func (g *Graph) checkTargets(targets []int32) error {
	if err := g.checkLen("targets", len(targets)); err != nil {
		return err
	}
	V := int32(g.cfg.VocabSize)
	for i, t := range targets {
		if t != IgnoreIndex && (t < 0 || t >= V) {
			return fmt.Errorf("batch: target %d is %d, want 0 to %d, or %d to ignore it", i, t, V-1, IgnoreIndex)
		}
	}
	return nil
}

func (g *Graph) checkInputs(tokens, docStart []int32) error {
	if err := g.checkLen("tokens", len(tokens)); err != nil {
		return err
	}
	if err := checkTokens(tokens, int32(g.cfg.VocabSize)); err != nil {
		return err
	}
	if !g.opt.DocMask {
		if docStart != nil {
			return fmt.Errorf("batch: got %d document starts, want none: the graph was made without DocMask", len(docStart))
		}
		return nil
	}
	if err := g.checkLen("document starts", len(docStart)); err != nil {
		return err
	}
	for i, s := range docStart {
		t := i % g.opt.Context
		if s < 0 || int(s) > t || t > 0 && s < docStart[i-1] {
			return fmt.Errorf("batch: document start of row %d, position %d is %d, want 0 to %d and not below the one before",
				i/g.opt.Context, t, s, t)
		}
	}
	return nil
}

func checkTokens(tokens []int32, vocab int32) error {
	for i, t := range tokens {
		if t < 0 || t >= vocab {
			return fmt.Errorf("batch: token %d is %d, want 0 to %d: was it encoded with the model's own tokenizer?", i, t, vocab-1)
		}
	}
	return nil
}
