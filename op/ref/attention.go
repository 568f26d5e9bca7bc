package ref

import (
	"math"

	"tezgah/op"
)

// attn has the sizes and the indexing that both directions share.
type attn struct {
	b, t, h, kvh, d int
	doc             []int32 // (B, T) or nil
}

func attnOf[T Float](r *Backend[T], q, k, doc op.Tensor) attn {
	s := attn{b: q.Dims[0], t: q.Dims[1], h: q.Dims[2], d: q.Dims[3], kvh: k.Dims[2]}
	if doc.Ok() {
		s.doc = r.int32(doc)
	}
	return s
}

// first is the first key that query t sees.
func (s attn) first(b, t int) int {
	if s.doc == nil {
		return 0
	}
	return int(s.doc[b*s.t+t])
}

// q, kv and row index a head of a query row, of a key row, and (B, H, T).
func (s attn) q(b, t, h int) int   { return ((b*s.t+t)*s.h + h) * s.d }
func (s attn) kv(b, t, h int) int  { return ((b*s.t+t)*s.kvh + h/(s.h/s.kvh)) * s.d }
func (s attn) row(b, h, t int) int { return (b*s.h+h)*s.t + t }

// Attention is, for each query i of each head, over the keys j it sees,
//
//	s_j = scale·q·k_j,  lse = log Σ exp s_j,  p_j = exp(s_j − lse),  out = Σ p_j·v_j
func (r *Backend[T]) Attention(a op.Attention) error {
	s := attnOf(r, a.Q, a.K, a.DocStart)
	q, k, v, out, lse := r.float(a.Q), r.float(a.K), r.float(a.V), r.float(a.Out), r.float(a.LSE)
	score := make([]T, s.t)
	for b := range s.b {
		for h := range s.h {
			for i := range s.t {
				qi, oi := q[s.q(b, i, h):][:s.d], out[s.q(b, i, h):][:s.d]
				lo := s.first(b, i)
				for j := lo; j <= i; j++ {
					score[j] = T(a.Scale) * dot(qi, k[s.kv(b, j, h):])
				}
				l := logSumExp(score[lo : i+1])
				lse[s.row(b, h, i)] = l
				clear(oi)
				for j := lo; j <= i; j++ {
					axpy(oi, exp(score[j]-l), v[s.kv(b, j, h):])
				}
			}
		}
	}
	r.store(a.Out)
	return nil
}

// AttentionBackward undoes Attention. With p_j as above and, per query,
// delta = Σ_d dout·out (which equals Σ_j p_j·dp_j):
//
//	dv_j += p_j·dout          dp_j = dout·v_j
//	ds_j  = p_j·(dp_j − delta)
//	dq   += scale·ds_j·k_j    dk_j += scale·ds_j·q
//
// where all query heads that share a key head add to its dk and dv.
func (r *Backend[T]) AttentionBackward(a op.AttentionBackward) error {
	s := attnOf(r, a.Q, a.K, a.DocStart)
	q, k, v, lse := r.float(a.Q), r.float(a.K), r.float(a.V), r.float(a.LSE)
	out, dout, delta := r.float(a.Out), r.float(a.DOut), r.float(a.Delta)
	dq, dk, dv := r.float(a.DQ), r.float(a.DK), r.float(a.DV)
	clear(dq)
	clear(dk)
	clear(dv)
	for b := range s.b {
		for h := range s.h {
			for i := range s.t {
				at := s.q(b, i, h)
				qi, doi, row := q[at:at+s.d], dout[at:at+s.d], s.row(b, h, i)
				delta[row] = dot(doi, out[at:])
				for j := s.first(b, i); j <= i; j++ {
					kj := s.kv(b, j, h)
					p := exp(T(a.Scale)*dot(qi, k[kj:]) - lse[row])
					ds := p * (dot(doi, v[kj:]) - delta[row])
					axpy(dv[kj:kj+s.d], p, doi)
					axpy(dq[at:at+s.d], T(a.Scale)*ds, k[kj:])
					axpy(dk[kj:kj+s.d], T(a.Scale)*ds, qi)
				}
			}
		}
	}
	r.store(a.DV)
	return nil
}

// KVAppend copies T new rows into the caches' slots (Pos + t) mod P.
func (r *Backend[T]) KVAppend(a op.KVAppend) error {
	seqs, steps, slots := a.K.Dims[0], a.K.Dims[1], a.KCache.Dims[1]
	row := a.K.Dims[2] * a.K.Dims[3]
	for b := range seqs {
		for t := range steps {
			from, to := (b*steps+t)*row, (b*slots+(a.Pos+t)%slots)*row
			copy(r.float(a.KCache)[to:to+row], r.float(a.K)[from:])
			copy(r.float(a.VCache)[to:to+row], r.float(a.V)[from:])
		}
	}
	return nil
}

// AttentionDecode is Attention for one query per sequence over Len cache slots.
func (r *Backend[T]) AttentionDecode(a op.AttentionDecode) error {
	seqs, heads, d := a.Q.Dims[0], a.Q.Dims[1], a.Q.Dims[2]
	slots, kvh := a.KCache.Dims[1], a.KCache.Dims[2]
	q, k, v, out := r.float(a.Q), r.float(a.KCache), r.float(a.VCache), r.float(a.Out)
	score := make([]T, a.Len)
	for b := range seqs {
		for h := range heads {
			at := (b*heads + h) * d
			kv := func(j int) int { return ((b*slots+j)*kvh + h/(heads/kvh)) * d }
			for j := range score {
				score[j] = T(a.Scale) * dot(q[at:at+d], k[kv(j):])
			}
			l := logSumExp(score)
			clear(out[at : at+d])
			for j := range score {
				axpy(out[at:at+d], exp(score[j]-l), v[kv(j):])
			}
		}
	}
	return nil
}

// dot is Σ a[i]·b[i] over the elements of a.
func dot[T Float](a, b []T) (s T) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

// axpy is y += alpha·x over the elements of y.
func axpy[T Float](y []T, alpha T, x []T) {
	for i := range y {
		y[i] += alpha * x[i]
	}
}

// logSumExp is log Σ exp x, with the largest taken out so that nothing
// overflows.
func logSumExp[T Float](x []T) T {
	m := T(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	var s T
	for _, v := range x {
		s += exp(v - m)
	}
	return m + log(s)
}
