package cpu

import "tezgah/op"

// KVAppend copies T new rows into the caches' slots (Pos + t) mod P.
func (b *Backend) KVAppend(a op.KVAppend) error {
	steps, slots := a.K.Dims[1], a.KCache.Dims[1]
	row := a.K.Dims[2] * a.K.Dims[3]
	k, v, kc, vc := floats(a.K), floats(a.V), floats(a.KCache), floats(a.VCache)
	for s := range a.K.Dims[0] {
		for t := 0; t < steps; {
			slot := (a.Pos + t) % slots
			n := min(steps-t, slots-slot) * row // up to the end, then once more from the start
			from, to := (s*steps+t)*row, (s*slots+slot)*row
			copy(kc[to:to+n], k[from:])
			copy(vc[to:to+n], v[from:])
			t += n / row
		}
	}
	return nil
}

// decodeWork is how many products of a query with keys a piece should have: less
// is done before another thread has woken.
const decodeWork = 1 << 15

type attnDecodeTask struct {
	q, k, v, out       []float32
	h, g, d, slots, kv int // kv is the distance of slots, KVH·D
	n                  int
	scale              float32
}

// do computes one query head of one sequence.
func (t *attnDecodeTask) do(b *Backend, w, lo, hi int) {
	me := &b.workers[w]
	me.row = grow(me.row, t.n)
	for i := lo; i < hi; i++ {
		s, h := i/t.h, i%t.h
		q, out := t.q[i*t.d:][:t.d], t.out[i*t.d:][:t.d]
		first := s*t.slots*t.kv + h/t.g*t.d
		for j := range me.row {
			me.row[j] = b.k.Dot(q, t.k[first+j*t.kv:][:t.d]) * t.scale
		}
		sum := b.k.SumExp(me.row, me.row, 1, b.k.Max(me.row))
		clear(out)
		for j, p := range me.row {
			b.k.Axpy(out, p, t.v[first+j*t.kv:][:t.d])
		}
		b.k.Scale(out, out, 1/sum)
	}
}

// AttentionDecode is attention of one query per sequence over Len cache slots.
// Each head reads its keys and values once; the threads share the heads, several
// a piece while the caches are short.
func (b *Backend) AttentionDecode(a op.AttentionDecode) error {
	t := &b.tasks.attnDecode
	*t = attnDecodeTask{q: floats(a.Q), k: floats(a.KCache), v: floats(a.VCache), out: floats(a.Out),
		h: a.Q.Dims[1], g: a.Q.Dims[1] / a.KCache.Dims[2], d: a.Q.Dims[2], slots: a.KCache.Dims[1],
		kv: a.KCache.Dims[2] * a.KCache.Dims[3], n: a.Len, scale: a.Scale}
	b.each(a.Q.Dims[0]*t.h, max(1, decodeWork/(t.n*t.d)), t)
	*t = attnDecodeTask{}
	return nil
}
