package model

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

// Decoder computes next-token logits one position at a time. It keeps the keys
// and values of the last Slots positions of every layer in ring buffers of
// KVH heads, so that a token costs one row of work.
//
// Positions are counted without end: past Slots tokens the oldest are
// forgotten, one for each new one, and the window slides.
type Decoder struct {
	r     *op.Runner
	mem   *memory
	p     *Params
	cfg   Config
	act   op.Activation
	eps   float32
	scale float32
	batch int
	slots int
	pos   int // tokens seen

	prefillLen int       // the longest prompt part that goes through at once
	tokens     op.Tensor // (B·prefillLen) int32
	rope       op.Tensor // (prefillLen, D) positions ropeFirst … ; see angles
	ropeFirst  int
	a          activations // for B·prefillLen rows; y1 and rms1 serve all norms, one u all low-rank parts
	layers     []decoderLayer
	headW      op.Tensor // lm_head (C, V), or tok_emb (V, C) when tied
	headNorm   op.Tensor // (C)
	logits     op.Tensor // (B, V)
	out        []float32 // logits on the host
	qkv        [3]op.MatMul
	gateUp     [2]op.MatMul
}

// decoderLayer is one layer's parameters and caches.
type decoderLayer struct {
	blockParams
	low            blockLow
	kCache, vCache op.Tensor // (B, P, KVH, D), P slots; position p lies in slot p mod P
}

// NewDecoder allocates the caches and rows for batch sequences that advance
// together, with a window of slots positions; 0 means Config.Context.
func NewDecoder(r *op.Runner, p *Params, batch, slots int) (*Decoder, error) {
	mem := &memory{b: r.Backend(), lim: r.Backend().Limits()}
	d, err := newDecoder(mem, r, p, batch, slots)
	if err == nil {
		d.loadAngles(0)
		err = r.Err()
	}
	if err != nil {
		mem.free()
		return nil, err
	}
	return d, nil
}

func newDecoder(mem *memory, r *op.Runner, p *Params, batch, slots int) (*Decoder, error) {
	c := p.cfg
	if slots == 0 {
		slots = c.Context
	}
	if batch < 1 || batch > maxDim || slots < 1 || slots > maxDim {
		return nil, fmt.Errorf("decoder: batch %d with %d slots, want both in 1 to %d", batch, slots, maxDim)
	}
	d := &Decoder{r: r, mem: mem, p: p, cfg: c, eps: float32(c.NormEps), scale: c.attentionScale(), batch: batch, slots: slots}
	d.act, _ = c.activation() // validated with the configuration
	widest := max(c.DModel, c.FFN, c.qDim())
	d.prefillLen = max(1, min(slots, maxElems(mem.lim, tensor.F32)/(batch*widest)))
	d.allocRows()
	d.allocCaches()
	name := headName
	if c.Tied {
		name = embName
	}
	d.headW, d.headNorm = p.weight(name), p.weight(normName)
	mem.purpose = "decoder"
	d.logits = mem.f32("logits", batch, c.VocabSize)
	if mem.err == nil && r != nil {
		d.out = make([]float32, batch*c.VocabSize)
	}
	return d, mem.err
}

func (d *Decoder) allocRows() {
	c, m, B, P := d.cfg, d.mem, d.batch, d.prefillLen
	m.purpose = "decoder"
	d.tokens = m.i32("tokens", B*P)
	d.rope = m.f32("rope_table", P, c.HeadDim)
	d.a = activations{
		x:    m.f32("x", B*P, c.DModel),
		y1:   m.f32("y", B*P, c.DModel),
		rms1: m.f32("rms_inv", B*P),
		q:    m.f32("q", B, P, c.Heads, c.HeadDim),
		k:    m.f32("k", B, P, c.KVHeads, c.HeadDim),
		v:    m.f32("v", B, P, c.KVHeads, c.HeadDim),
		attn: m.f32("attn", B, P, c.Heads, c.HeadDim),
		lse:  m.f32("lse", B, c.Heads, P),
		xMid: m.f32("x_mid", B*P, c.DModel),
		gate: m.f32("gate", B*P, c.FFN),
		up:   m.f32("up", B*P, c.FFN),
		glu:  m.f32("glu", B*P, c.FFN),
	}
	var u op.Tensor
	d.a.u = d.p.newLowActs(func(_ string, rank int) op.Tensor {
		if !u.Ok() {
			u = m.f32("u", B*P, rank)
		}
		return u
	})
}

func (d *Decoder) allocCaches() {
	c, m := d.cfg, d.mem
	m.purpose = "KV cache"
	for l := range c.Layers {
		d.layers = append(d.layers, decoderLayer{
			blockParams: collect(l, d.p.weight, d.p.weight),
			low:         d.p.collectLow(l, &d.a.u),
			kCache:      m.f32(fmt.Sprintf("k_cache.%d", l), d.batch, d.slots, c.KVHeads, c.HeadDim),
			vCache:      m.f32(fmt.Sprintf("v_cache.%d", l), d.batch, d.slots, c.KVHeads, c.HeadDim),
		})
	}
}

// Pos is the number of tokens seen since the beginning or Reset. It may exceed
// Slots.
func (d *Decoder) Pos() int { return d.pos }

// Slots is the length of the window.
func (d *Decoder) Slots() int { return d.slots }

// Reset forgets everything seen.
func (d *Decoder) Reset() { d.pos = 0 }

// Close frees the caches.
func (d *Decoder) Close() { d.mem.free() }

// Prefill appends (B, n) tokens, row-major, and returns the logits (B, V) that
// follow the last. The slice is valid until the next call. Tokens go through
// in one pass as far as the window reaches, at first with any batch and later,
// as the next message of a conversation does, with one sequence; the rest, and
// the last token always, go one by one as in Step.
func (d *Decoder) Prefill(tokens []int32) ([]float32, error) {
	n := len(tokens) / d.batch
	if n == 0 || n*d.batch != len(tokens) {
		return nil, fmt.Errorf("prefill: got %d tokens, want a multiple of the batch %d, at least one each", len(tokens), d.batch)
	}
	if err := checkTokens(tokens, int32(d.cfg.VocabSize)); err != nil {
		return nil, err
	}
	for done := 0; done < n-1; {
		T := min(n-1-done, d.atOnce())
		d.advance(columns(tokens, d.batch, done, done+T), T)
		done += T
	}
	return d.Step(columns(tokens, d.batch, n-1, n))
}

// viewAlign is the multiple, in float32 elements, at which a view for a kernel
// may begin: WebGPU's 256 bytes.
const viewAlign = 64

// atOnce is the number of positions that advance can take now. On an empty
// decoder a pass attends to itself. On another one every row attends to the
// cache, one after the other: the rows of one position must then lie together
// and begin where a kernel can, and no slot may be taken over by a row before
// an earlier one has seen it.
func (d *Decoder) atOnce() int {
	switch {
	case d.pos == 0:
		return d.prefillLen
	case d.batch > 1 || d.cfg.qDim()%viewAlign != 0:
		return 1
	}
	return max(1, min(d.prefillLen, d.slots-d.pos))
}

// columns copies columns [lo, hi) of a (batch, n) matrix.
func columns(tokens []int32, batch, lo, hi int) []int32 {
	n := len(tokens) / batch
	var out []int32
	for b := range batch {
		out = append(out, tokens[b*n+lo:b*n+hi]...)
	}
	return out
}

// Step appends one token to each sequence, (B), and returns the logits (B, V)
// that follow. The slice is valid until the next call.
func (d *Decoder) Step(tokens []int32) ([]float32, error) {
	if len(tokens) != d.batch {
		return nil, fmt.Errorf("decoder step: got %d tokens, want %d, one for each sequence", len(tokens), d.batch)
	}
	if err := checkTokens(tokens, int32(d.cfg.VocabSize)); err != nil {
		return nil, err
	}
	d.advance(tokens, 1)
	r, x, y := d.r, rows(d.a.x, d.batch), rows(d.a.y1, d.batch)
	r.RMSNorm(op.RMSNorm{X: x, W: d.headNorm, Y: y, RMSInv: d.rms(d.batch), Eps: d.eps})
	r.MatMul(op.MatMul{A: y, B: d.headW, TransB: d.cfg.Tied, C: d.logits})
	return d.out, op.ReadSlice(r, d.out, d.logits)
}

// advance runs (B, T) tokens through all layers and appends their keys and
// values to the caches. T is at most atOnce. The residual stream's rows are
// left in x.
func (d *Decoder) advance(tokens []int32, T int) {
	d.p.fresh()
	N := d.batch * T
	in := op.Of(d.tokens.Buf, 0, N)
	op.WriteSlice(d.r, in, tokens)
	if d.pos < d.ropeFirst || d.pos+T > d.ropeFirst+d.prefillLen {
		d.loadAngles(d.pos)
	}
	d.r.Embedding(op.Embedding{Tokens: in, W: d.p.weight(embName), Out: rows(d.a.x, N)})
	for l := range d.layers {
		d.attention(&d.layers[l], T)
		d.ffn(&d.layers[l], N)
	}
	d.pos += T
}

// loadAngles makes first the table's first position.
func (d *Decoder) loadAngles(first int) {
	d.ropeFirst = first
	op.WriteSlice(d.r, d.rope, ropeTable(d.cfg, first, d.prefillLen))
}

// attention is Graph.attentionForward over the caches.
func (d *Decoder) attention(w *decoderLayer, T int) {
	r, c, a, B := d.r, d.cfg, &d.a, d.batch
	N, pos0 := B*T, d.pos-d.ropeFirst
	x, y, xMid := rows(a.x, N), rows(a.y1, N), rows(a.xMid, N)
	q, attn := heads(a.q, B, T, c.Heads), heads(a.attn, B, T, c.Heads)
	k, v := heads(a.k, B, T, c.KVHeads), heads(a.v, B, T, c.KVHeads)
	r.RMSNorm(op.RMSNorm{X: x, W: w.attnNorm, Y: y, RMSInv: d.rms(N), Eps: d.eps})
	d.qkv = [3]op.MatMul{{A: y, B: w.wq, C: rowsOf(q)}, {A: y, B: w.wk, C: rowsOf(k)}, {A: y, B: w.wv, C: rowsOf(v)}}
	r.MatMulGroup(d.qkv[:])
	w.low.q.forward(r, y, rowsOf(q))
	w.low.k.forward(r, y, rowsOf(k))
	w.low.v.forward(r, y, rowsOf(v))
	r.RoPE(op.RoPE{X: q, X2: k, Table: d.rope, Pos0: pos0})
	r.KVAppend(op.KVAppend{K: k, V: v, KCache: w.kCache, VCache: w.vCache, Pos: d.pos})
	if d.pos == 0 && T > 1 {
		r.Attention(op.Attention{Q: q, K: k, V: v, Out: attn, LSE: op.Of(a.lse.Buf, 0, B, c.Heads, T), Scale: d.scale})
	} else {
		d.attendCache(w, q, attn, T)
	}
	r.MatMul(op.MatMul{A: rowsOf(attn), B: w.wo, C: xMid, Residual: x})
	w.low.o.forward(r, rowsOf(attn), xMid)
}

// attendCache is attention of T positions over what the caches hold up to each,
// itself included; q and attn are (B, T, H, D), B is 1 unless T is.
func (d *Decoder) attendCache(w *decoderLayer, q, attn op.Tensor, T int) {
	H, D := d.cfg.Heads, d.cfg.HeadDim
	for t := range T {
		at := t * H * D
		d.r.AttentionDecode(op.AttentionDecode{Q: op.Of(q.Buf, q.Off+at, d.batch, H, D), KCache: w.kCache, VCache: w.vCache,
			Out: op.Of(attn.Buf, attn.Off+at, d.batch, H, D), Len: min(d.pos+t+1, d.slots), Scale: d.scale})
	}
}

// ffn is Graph.ffnForward.
func (d *Decoder) ffn(w *decoderLayer, N int) {
	r, a := d.r, &d.a
	x, y, xMid, glu := rows(a.x, N), rows(a.y1, N), rows(a.xMid, N), rows(a.glu, N)
	r.RMSNorm(op.RMSNorm{X: xMid, W: w.ffnNorm, Y: y, RMSInv: d.rms(N), Eps: d.eps})
	gate, up := rows(a.gate, N), rows(a.up, N)
	d.gateUp = [2]op.MatMul{{A: y, B: w.wGate, C: gate}, {A: y, B: w.wUp, C: up}}
	w.low.gateUp(r, op.GateUp{X: y, WGate: w.wGate, WUp: w.wUp, Gate: gate, Up: up, Out: glu, Act: d.act}, d.gateUp[:])
	r.MatMul(op.MatMul{A: glu, B: w.wDown, C: x, Residual: xMid})
	w.low.down.forward(r, glu, x)
}

// rms views the first n inverse root mean squares.
func (d *Decoder) rms(n int) op.Tensor { return op.Of(d.a.rms1.Buf, 0, n) }

// rows views the first n rows of a (·, width) tensor.
func rows(t op.Tensor, n int) op.Tensor { return op.Of(t.Buf, 0, n, t.Dims[1]) }

// heads views the beginning of t as (B, T, heads, D).
func heads(t op.Tensor, B, T, n int) op.Tensor { return op.Of(t.Buf, 0, B, T, n, t.Dims[3]) }
