package optest

import (
	"fmt"

	"tezgah/op"
)

func decodeCases() []Case {
	var cs []Case
	for _, z := range []struct{ b, t, p, kvh, d, pos int }{{1, 1, 1, 1, 2, 0}, {2, 3, 8, 2, 16, 0}, {2, 3, 8, 2, 16, 6},
		{1, 5, 5, 1, 64, 3}, {3, 1, 7, 3, 32, 20}, {1, 17, 33, 2, 48, 30}} {
		cs = append(cs, Case{Name: fmt.Sprintf("kv append/B%d T%d P%d KVH%d D%d pos %d", z.b, z.t, z.p, z.kvh, z.d, z.pos), Op: "kv_append",
			body: func(e *env) { appendCase(e, z.b, z.t, z.p, z.kvh, z.d, z.pos) }})
	}
	for _, z := range []struct{ b, p, h, kvh, d, n int }{{1, 1, 1, 1, 2, 1}, {2, 9, 4, 2, 16, 5}, {1, 65, 8, 2, 64, 65},
		{1, 300, 4, 4, 32, 257}, {3, 33, 6, 1, 48, 33}, {1, 130, 2, 1, 128, 129}, {2, 20, 3, 3, 80, 19}, {1, 40, 4, 1, 96, 1}} {
		cs = append(cs, Case{Name: fmt.Sprintf("decode/B%d P%d H%d KVH%d D%d len %d", z.b, z.p, z.h, z.kvh, z.d, z.n), Op: "attention_decode",
			body: func(e *env) { decodeCase(e, z.b, z.p, z.h, z.kvh, z.d, z.n) }})
	}
	return cs
}

func appendCase(e *env, b, t, p, kvh, d, pos int) {
	n, c := b*t*kvh*d, b*p*kvh*d
	k, v := e.in("k", e.normal(1, n), b, t, kvh, d), e.in("v", e.normal(1, n), b, t, kvh, d)
	kc, vc := e.acc("k_cache", e.normal(1, c), b, p, kvh, d), e.acc("v_cache", e.normal(1, c), b, p, kvh, d)
	e.run(func(s side) {
		s.KVAppend(op.KVAppend{K: s.t(k), V: s.t(v), KCache: s.t(kc), VCache: s.t(vc), Pos: pos})
	})
	e.exact(kc)
	e.exact(vc)
}

// decodeCase has NaN in every slot that must not be read.
func decodeCase(e *env, b, p, h, kvh, d, n int) {
	// The same sums as the last query of a sequence of n.
	m := &attnMath{attnSize: attnSize{b: b, t: n, h: h, kvh: kvh, d: d}, starts: make([]int32, b*n)}
	kv, vv := e.normal(1, b*p*kvh*d), e.normal(1, b*p*kvh*d)
	row := kvh * d
	for s := range b {
		m.k = append(m.k, wide(kv[s*p*row:][:n*row])...)
		m.v = append(m.v, wide(vv[s*p*row:][:n*row])...)
		for i := s*p*row + n*row; i < (s+1)*p*row; i++ {
			kv[i], vv[i] = nan32, nan32
		}
	}
	qv := e.normal(1, b*h*d)
	m.q = make([]float64, b*n*h*d)
	for s := range b {
		copy(m.q[m.qAt(s, n-1, 0):], wide(qv[s*h*d:(s+1)*h*d]))
	}
	q, out := e.in("q", qv, b, h, d), e.out("out", b, h, d)
	kc, vc := e.in("k_cache", kv, b, p, kvh, d), e.in("v_cache", vv, b, p, kvh, d)
	e.run(func(s side) {
		s.AttentionDecode(op.AttentionDecode{Q: s.t(q), KCache: s.t(kc), VCache: s.t(vc), Out: s.t(out), Len: n, Scale: m.scale()})
	})
	if e.res.Err != nil {
		return
	}
	errOut, _ := m.forward()
	e.compare(out, func(i int) float64 { return errOut[m.qAt(i/(h*d), n-1, 0)+i%(h*d)] })
}
