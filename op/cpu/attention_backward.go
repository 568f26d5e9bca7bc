package cpu

import (
	"math"

	"tezgah/op"
	"tezgah/op/cpu/internal/kern"
)

// The backward pass walks the same tiles as the forward pass. A tile owns its
// dq; to dk and dv all tiles of a pair add, so the tiles of a pair are done in
// order by one thread, into one array. Where there are few pairs, each pair's
// tiles are cut into segments of about equal work with an array each, and the
// arrays are added in the order of the segments. The number of segments follows
// from the shape alone.
const (
	wantTasks   = 32 // segments of all pairs together, if the shape allows
	maxSegments = 16 // of one pair: bounds the memory for the arrays
)

type attnBackTask struct {
	attnShape
	q, k, out, lse, dout, delta []float32
	dq, dk, dv                  []float32
	kt, vt                      []float32 // (B, KVH, D, ldt)
	part                        []float32 // dk and dv of every pair and segment
	segments                    int
	bound                       [maxSegments + 1]int // first tile of each segment
	offset                      [maxSegments + 1]int // first row of each segment's array, within a pair's
}

// AttentionBackward undoes Attention, with scores computed again from Q, K and
// LSE.
func (b *Backend) AttentionBackward(a op.AttentionBackward) error {
	t := &b.tasks.attnBack
	*t = attnBackTask{attnShape: shapeOf(a.Q, a.K, a.DocStart, a.Scale),
		q: floats(a.Q), k: floats(a.K), out: floats(a.Out), lse: floats(a.LSE), dout: floats(a.DOut),
		delta: floats(a.Delta), dq: floats(a.DQ), dk: floats(a.DK), dv: floats(a.DV)}
	defer func() { *t = attnBackTask{} }()
	if err := t.checkDocStart(); err != nil {
		return err
	}
	b.shared.kt = b.transposed(&t.attnShape, b.shared.kt, floats(a.K))
	b.shared.vt = b.transposed(&t.attnShape, b.shared.vt, floats(a.V))
	t.kt, t.vt = b.shared.kt, b.shared.vt
	t.cut()
	if t.segments > 1 {
		b.shared.partial = grow(b.shared.partial, t.pairs()*t.offset[t.segments]*2*t.d)
		t.part = b.shared.partial
	}
	b.each(t.pairs()*t.segments, 1, t)
	if t.segments > 1 {
		r := &b.tasks.attnReduce
		r.attnBackTask = t
		b.each(t.pairs()*t.t, max(1, rowBlock(t.d)/4), r)
		r.attnBackTask = nil
	}
	return nil
}

// cut divides a pair's tiles into segments. Work up to query t grows with t², so
// the s-th bound of n stands at √(s/n) of the tiles.
func (t *attnBackTask) cut() {
	t.segments = min((wantTasks+t.pairs()-1)/t.pairs(), maxSegments, t.blocks)
	n := float64(t.segments)
	for s := 1; s <= t.segments; s++ {
		at := int(math.Round(float64(t.blocks) * math.Sqrt(float64(s)/n)))
		t.bound[s] = min(max(at, t.bound[s-1]+1), t.blocks-(t.segments-s))
		t.offset[s] = t.offset[s-1] + t.keysOf(s-1)
	}
}

// keysOf is the number of keys that segment s can reach.
func (t *attnBackTask) keysOf(s int) int { return min(t.t, t.bound[s+1]*t.tq) }

// grads returns where segment s of a pair adds dk and dv, and the distance of
// their rows.
func (t *attnBackTask) grads(pair, s int) (dk, dv []float32, ld int) {
	if t.segments == 1 {
		at := (pair/t.kvh*t.t*t.kvh + pair%t.kvh) * t.d
		return t.dk[at:], t.dv[at:], t.kvh * t.d
	}
	n := t.keysOf(s) * t.d
	at := (pair*t.offset[t.segments] + t.offset[s]) * 2 * t.d
	return t.part[at:][:n], t.part[at+n:][:n], t.d
}

// do computes one segment of one pair. Later segments come first: they take as
// long and touch more keys.
func (t *attnBackTask) do(b *Backend, w, lo, _ int) {
	pair, s := lo%t.pairs(), t.segments-1-lo/t.pairs()
	dk, dv, ld := t.grads(pair, s)
	for j := range t.keysOf(s) {
		clear(dk[j*ld:][:t.d])
		clear(dv[j*ld:][:t.d])
	}
	for block := t.bound[s]; block < t.bound[s+1]; block++ {
		x := t.tile(pair, block)
		t.run(b.k, b.engine.Workspace(w), &b.workers[w].tile, &x, dk, dv, ld)
	}
}

// run computes one tile. With p = exp(q·k·scale − lse), dp = dout·v and
// ds = p·(dp − delta):
//
//	dv += pᵀ·dout,  dk += dsᵀ·(scale·q),  dq = scale·(ds·k)
func (t *attnBackTask) run(k kern.Kernels, ws *kern.Workspace, m *attnTile, x *tile, dk, dv []float32, ld int) {
	d := t.d
	t.load(k, m, x)
	pair := (x.b*t.kvh + x.head) * d * t.ldt
	for k0 := x.keys; k0 < x.last; k0 += keyBlock {
		n := min(keyBlock, x.last-k0)
		k.GemmST(ws, kern.NN, x.rows, t.columns(k0, n), d, m.q, d, t.kt[pair+k0:], t.ldt, m.s, scoreStride, false)
		k.GemmST(ws, kern.NN, x.rows, t.columns(k0, n), d, m.dout, d, t.vt[pair+k0:], t.ldt, m.ds, scoreStride, false)
		for r := range x.rows {
			from, to := t.seen(x, r, k0, n)
			m.softmaxGradRow(k, r, n, from, to)
		}
		k.GemmST(ws, kern.TN, n, d, x.rows, m.s, scoreStride, m.dout, d, dv[k0*ld:], ld, true)
		k.GemmST(ws, kern.TN, n, d, x.rows, m.ds, scoreStride, m.q, d, dk[k0*ld:], ld, true)
		k.GemmST(ws, kern.NN, x.rows, d, n, m.ds, scoreStride, t.k[t.keyAt(x, k0):], t.kvh*d, m.o, d, k0 > x.keys)
	}
	for q := range x.nq {
		k.Scale(t.dq[t.queryAt(x, q):][:t.g*d], m.o[q*t.g*d:][:t.g*d], t.scale)
	}
}

// load gathers a tile's rows: the scaled queries, dout, lse (in max) and
// delta = Σ dout·out (in sum, and written).
func (t *attnBackTask) load(k kern.Kernels, m *attnTile, x *tile) {
	d := t.d
	m.q, m.dout, m.o = grow(m.q, x.rows*d), grow(m.dout, x.rows*d), grow(m.o, x.rows*d)
	m.s, m.ds = grow(m.s, x.rows*scoreStride), grow(m.ds, x.rows*scoreStride)
	m.max, m.sum = grow(m.max, x.rows), grow(m.sum, x.rows)
	for q := range x.nq {
		at := t.queryAt(x, q)
		k.Scale(m.q[q*t.g*d:][:t.g*d], t.q[at:][:t.g*d], t.scale)
		copy(m.dout[q*t.g*d:][:t.g*d], t.dout[at:])
	}
	for r := range x.rows {
		row := t.rowAt(x, r)
		m.max[r] = t.lse[row]
		m.sum[r] = k.Dot(m.dout[r*d:][:d], t.out[t.queryAt(x, r/t.g)+r%t.g*d:][:d])
		t.delta[row] = m.sum[r]
	}
}

// softmaxGradRow turns row r's scores into probabilities and its dp into ds,
// both 0 where the row does not see the key.
func (m *attnTile) softmaxGradRow(k kern.Kernels, r, n, from, to int) {
	p, ds := m.s[r*scoreStride:][:n], m.ds[r*scoreStride:][:n]
	if from >= to {
		clear(p)
		clear(ds)
		return
	}
	clear(p[:from])
	clear(p[to:])
	clear(ds[:from])
	clear(ds[to:])
	k.SumExp(p[from:to], p[from:to], 1, m.max[r])
	k.SoftmaxGrad(ds[from:to], p[from:to], ds[from:to], m.sum[r], 1)
}

// attnReduceTask adds the segments' arrays; a piece is a range of keys of all
// pairs.
type attnReduceTask struct{ *attnBackTask }

func (t *attnReduceTask) do(b *Backend, _, lo, hi int) {
	for i := lo; i < hi; i++ {
		pair, j := i/t.t, i%t.t
		at := ((pair/t.kvh*t.t+j)*t.kvh + pair%t.kvh) * t.d
		dk, dv := t.dk[at:][:t.d], t.dv[at:][:t.d]
		started := false
		for s := range t.segments {
			if j >= t.keysOf(s) {
				continue
			}
			pk, pv, _ := t.grads(pair, s)
			pk, pv = pk[j*t.d:][:t.d], pv[j*t.d:][:t.d]
			if !started {
				copy(dk, pk)
				copy(dv, pv)
				started = true
				continue
			}
			b.k.Add(dk, dk, pk)
			b.k.Add(dv, dv, pv)
		}
	}
}
