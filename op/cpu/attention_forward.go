package cpu

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/op/cpu/internal/kern"
)

type attnTask struct {
	attnShape
	q, v, out, lse []float32
	kt             []float32 // keys as (B, KVH, D, ldt)
}

// Attention is causal softmax(Q·Kᵀ·Scale)·V; see attention.go for the tiles and
// attnTask.tile for the arithmetic. The longest tiles are handed out first.
func (b *Backend) Attention(a op.Attention) error {
	t := &b.tasks.attn
	*t = attnTask{attnShape: shapeOf(a.Q, a.K, a.DocStart, a.Scale),
		q: floats(a.Q), v: floats(a.V), out: floats(a.Out), lse: floats(a.LSE)}
	defer func() { *t = attnTask{} }()
	if err := t.checkDocStart(); err != nil {
		return err
	}
	b.shared.kt = b.transposed(&t.attnShape, b.shared.kt, floats(a.K))
	t.kt = b.shared.kt
	b.each(t.pairs()*t.blocks, 1, t)
	return nil
}

func docStartError(b, t int, d int32) error {
	return fmt.Errorf("doc_start[%d, %d] is %d, want 0 to %d and not below the one before", b, t, d, t)
}

func (t *attnTask) do(b *Backend, w, lo, _ int) {
	x := t.tile(lo%t.pairs(), t.blocks-1-lo/t.pairs())
	t.run(b.k, b.engine.Workspace(w), &b.workers[w].tile, &x)
}

// run computes one tile with an online softmax over blocks of keys: max and sum
// are each row's greatest score and sum of exp(score − max) so far, o its
// unnormalised output.
func (t *attnTask) run(k kern.Kernels, ws *kern.Workspace, m *attnTile, x *tile) {
	d := t.d
	m.q, m.o = grow(m.q, x.rows*d), grow(m.o, x.rows*d)
	m.s = grow(m.s, x.rows*scoreStride)
	for q := range x.nq {
		k.Scale(m.q[q*t.g*d:][:t.g*d], t.q[t.queryAt(x, q):][:t.g*d], t.scale)
	}
	m.start(x.rows)
	kt := t.kt[(x.b*t.kvh+x.head)*d*t.ldt:]
	for k0 := x.keys; k0 < x.last; k0 += keyBlock {
		n := min(keyBlock, x.last-k0)
		k.GemmST(ws, kern.NN, x.rows, t.columns(k0, n), d, m.q, d, kt[k0:], t.ldt, m.s, scoreStride, false)
		for r := range x.rows {
			from, to := t.seen(x, r, k0, n)
			m.softmaxRow(k, r, d, m.s[r*scoreStride:][:n], from, to, k0 > x.keys)
		}
		k.GemmST(ws, kern.NN, x.rows, d, n, m.s, scoreStride, t.v[t.keyAt(x, k0):], t.kvh*d, m.o, d, k0 > x.keys)
	}
	for r := range x.rows {
		out := t.out[t.queryAt(x, r/t.g)+r%t.g*d:][:d]
		k.Scale(out, m.o[r*d:][:d], 1/m.sum[r])
		t.lse[t.rowAt(x, r)] = float32(float64(m.max[r]) + math.Log(float64(m.sum[r])))
	}
}

// start resets the running maximum and sum of every row.
func (m *attnTile) start(rows int) {
	m.max, m.sum = grow(m.max, rows), grow(m.sum, rows)
	for r := range rows {
		m.max[r] = float32(math.Inf(-1))
	}
	clear(m.sum)
}

// softmaxRow turns row r's scores x into exp(x − max), 0 where it does not see
// the key, and brings what was summed before to the new maximum.
func (m *attnTile) softmaxRow(k kern.Kernels, r, d int, x []float32, from, to int, started bool) {
	if from >= to {
		clear(x)
		return
	}
	clear(x[:from])
	clear(x[to:])
	x = x[from:to]
	if top := k.Max(x); top > m.max[r] {
		if started && m.sum[r] > 0 {
			c := float32(math.Exp(float64(m.max[r] - top)))
			m.sum[r] *= c
			k.Scale(m.o[r*d:][:d], m.o[r*d:][:d], c)
		}
		m.max[r] = top
	}
	m.sum[r] += k.SumExp(x, x, 1, m.max[r])
}
