package optest

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/op/ref"
	"tezgah/tensor"
)

// attnSize is the shape of one attention case. docs is the number of documents
// a sequence is cut into; 0 means no mask.
type attnSize struct {
	b, t, h, kvh, d int
	docs            int
	std             float64 // of queries and keys
}

func (z attnSize) String() string {
	return fmt.Sprintf("B%d T%d H%d KVH%d D%d docs %d std %g", z.b, z.t, z.h, z.kvh, z.d, z.docs, z.std)
}

func attentionCases() []Case {
	sizes := []attnSize{{1, 1, 1, 1, 32, 0, 1}, {1, 7, 2, 1, 16, 0, 1}, {2, 5, 3, 3, 2, 2, 1}, {2, 33, 4, 2, 64, 3, 1},
		{1, 64, 4, 4, 32, 0, 1}, {1, 65, 8, 2, 64, 0, 1}, {1, 129, 2, 1, 128, 0, 1}, {2, 17, 3, 3, 48, 2, 1},
		{1, 40, 6, 2, 80, 5, 1}, {1, 31, 4, 1, 96, 0, 1}, {1, 100, 2, 2, 64, 0, 4}, {1, 50, 2, 1, 32, 0, 1e-8},
		{3, 8, 2, 2, 64, 8, 1}, {1, 600, 2, 1, 16, 0, 1}, {1, 600, 1, 1, 16, 2, 1}, {2, 20, 100, 1, 8, 0, 1}}
	large := []attnSize{{1, 512, 8, 2, 64, 0, 1}, {1, 1100, 2, 1, 32, 0, 1}, {2, 300, 4, 4, 128, 7, 1}}
	var cs []Case
	for i, z := range append(sizes, large...) {
		cs = append(cs,
			Case{Name: "attention/" + z.String(), Op: "attention_forward", Large: i >= len(sizes), body: func(e *env) { attentionCase(e, z) }},
			Case{Name: "attention backward/" + z.String(), Op: "attention_backward", Large: i >= len(sizes),
				body: func(e *env) { attentionBackwardCase(e, z) }})
	}
	return cs
}

// docStarts cuts every sequence into about z.docs documents at random places.
func (e *env) docStarts(z attnSize) []int32 {
	starts := make([]int32, z.b*z.t)
	for b := range z.b {
		at := int32(0)
		draw := e.intn(z.t, z.t)
		for t := 1; t < z.t; t++ {
			if int(draw[t]) < z.docs-1 {
				at = int32(t)
			}
			starts[b*z.t+t] = at
		}
	}
	return starts
}

func (e *env) qkv(z attnSize) (q, k, v *tens) {
	return e.in("q", e.normal(z.std, z.b*z.t*z.h*z.d), z.b, z.t, z.h, z.d),
		e.in("k", e.normal(z.std, z.b*z.t*z.kvh*z.d), z.b, z.t, z.kvh, z.d),
		e.in("v", e.normal(1, z.b*z.t*z.kvh*z.d), z.b, z.t, z.kvh, z.d)
}

func (e *env) mask(z attnSize) (*tens, []int32) {
	if z.docs == 0 {
		return nil, make([]int32, z.b*z.t)
	}
	starts := e.docStarts(z)
	return e.ids("doc_start", starts, z.b, z.t), starts
}

func (z attnSize) scale() float32 { return float32(1 / math.Sqrt(float64(z.d))) }

func attentionCase(e *env, z attnSize) {
	q, k, v := e.qkv(z)
	doc, starts := e.mask(z)
	out, lse := e.out("out", z.b, z.t, z.h, z.d), e.out("lse", z.b, z.h, z.t)
	e.run(func(s side) {
		s.Attention(op.Attention{Q: s.t(q), K: s.t(k), V: s.t(v), Out: s.t(out), LSE: s.t(lse), DocStart: s.t(doc), Scale: z.scale()})
	})
	if e.res.Err != nil {
		return
	}
	m := newAttnMath(z, q, k, v, starts)
	errOut, errLSE := m.forward()
	e.compare(out, func(i int) float64 { return errOut[i] })
	e.compare(lse, func(i int) float64 { return errLSE[i] })
}

func attentionBackwardCase(e *env, z attnSize) {
	q, k, v := e.qkv(z)
	doc, starts := e.mask(z)
	m := newAttnMath(z, q, k, v, starts)
	outv, lsev := m.reference()
	out, lse := e.in("out", outv, z.b, z.t, z.h, z.d), e.in("lse", lsev, z.b, z.h, z.t)
	dout := e.in("dout", e.normal(1, z.b*z.t*z.h*z.d), z.b, z.t, z.h, z.d)
	delta := e.out("delta", z.b, z.h, z.t)
	dq, dk, dv := e.out("dq", z.b, z.t, z.h, z.d), e.out("dk", z.b, z.t, z.kvh, z.d), e.out("dv", z.b, z.t, z.kvh, z.d)
	e.run(func(s side) {
		s.AttentionBackward(op.AttentionBackward{Q: s.t(q), K: s.t(k), V: s.t(v), Out: s.t(out), LSE: s.t(lse), DocStart: s.t(doc),
			DOut: s.t(dout), Delta: s.t(delta), DQ: s.t(dq), DK: s.t(dk), DV: s.t(dv), Scale: z.scale()})
	})
	if e.res.Err != nil {
		return
	}
	m.out, m.lse, m.dout = out.before(), lse.before(), dout.before()
	errDQ, errDK, errDV := m.backward()
	e.compare(dq, func(i int) float64 { return errDQ[i] })
	e.compare(dk, func(i int) float64 { return errDK[i] })
	e.compare(dv, func(i int) float64 { return errDV[i] })
}

// attnMath computes the errors that rounding may cause, by plain loops in
// float64 over every (query, key) pair.
type attnMath struct {
	attnSize
	q, k, v        []float64
	out, lse, dout []float64
	starts         []int32
	// What a product may do to a factor that was computed, a weight or ds, relative
	// and at the least; 0 for products in float32.
	rounding, least float64
}

func newAttnMath(z attnSize, q, k, v *tens, starts []int32) *attnMath {
	return &attnMath{attnSize: z, q: q.before(), k: k.before(), v: v.before(), starts: starts}
}

func (m *attnMath) qAt(b, t, h int) int   { return ((b*m.t+t)*m.h + h) * m.d }
func (m *attnMath) kAt(b, t, h int) int   { return ((b*m.t+t)*m.kvh + h/(m.h/m.kvh)) * m.d }
func (m *attnMath) rowAt(b, h, t int) int { return (b*m.h+h)*m.t + t }

// reference returns what the forward pass keeps, rounded to float32.
func (m *attnMath) reference() (out, lse []float32) {
	b := ref.New[float64]()
	r := op.NewRunner(b)
	put := func(v []float64, dims ...int) op.Tensor {
		x := op.Of(nil, 0, dims...)
		x.Buf, _ = b.Alloc("x", tensor.F32, x.Len())
		copy(b.Data(x.Buf), v)
		return x
	}
	doc := op.Of(nil, 0, m.b, m.t)
	doc.Buf, _ = b.Alloc("doc_start", tensor.I32, doc.Len())
	op.WriteSlice(r, doc, m.starts)
	a := op.Attention{Q: put(m.q, m.b, m.t, m.h, m.d), K: put(m.k, m.b, m.t, m.kvh, m.d), V: put(m.v, m.b, m.t, m.kvh, m.d),
		Out: put(nil, m.b, m.t, m.h, m.d), LSE: put(nil, m.b, m.h, m.t), DocStart: doc, Scale: m.scale()}
	r.Attention(a)
	out, lse = make([]float32, a.Out.Len()), make([]float32, a.LSE.Len())
	op.ReadSlice(r, out, a.Out)
	op.ReadSlice(r, lse, a.LSE)
	return out, lse
}

// pairs calls f for every query row and every key that it sees, with the score
// and the error allowed for it: a dot product of D, scaled.
func (m *attnMath) pairs(f func(b, i, h, j int, s, errS float64), row func(b, i, h int)) {
	scale := float64(m.scale())
	for b := range m.b {
		for h := range m.h {
			for i := range m.t {
				for j := int(m.starts[b*m.t+i]); j <= i; j++ {
					s, mag := dots(m.q[m.qAt(b, i, h):][:m.d], m.k[m.kAt(b, j, h):])
					f(b, i, h, j, scale*s, scale*mag*(sumErr(m.d)+2*unit))
				}
				row(b, i, h)
			}
		}
	}
}

// dots returns Σ a·b and Σ |a·b| over the elements of a.
func dots(a, b []float64) (s, mag float64) {
	for i, x := range a {
		s += x * b[i]
		mag += abs(x * b[i])
	}
	return s, mag
}

// forward returns the errors allowed for out and lse. The weight of key j, with
// x = s_j − max, is wrong by its score's error and by exp's, of x; numerator and
// denominator of Σ p·v / Σ p each have such an error and a sum's.
func (m *attnMath) forward() (out, lse []float64) {
	out, lse = make([]float64, len(m.q)), make([]float64, m.b*m.h*m.t)
	var ss, es []float64
	var keys []int
	m.pairs(func(_, _, _, j int, s, errS float64) {
		ss, es, keys = append(ss, s), append(es, errS), append(keys, j)
	}, func(b, i, h int) {
		top, sum := math.Inf(-1), 0.0
		for _, s := range ss {
			top = math.Max(top, s)
		}
		for _, s := range ss {
			sum += math.Exp(s - top)
		}
		n, errMax := len(ss), 0.0
		for _, e := range es {
			errMax = math.Max(errMax, e)
		}
		var relSum float64
		rel := make([]float64, n)
		for x, s := range ss {
			p := math.Exp(s-top) / sum
			// Online softmax rescales what it has by exp of at most the same x.
			rel[x] = es[x] + errMax + unit*abs(top) + 2*expErr(s-top) + sumErr(n) + 4*unit
			relSum += p * rel[x]
		}
		for x, s := range ss {
			p := math.Exp(s-top) / sum
			for d := range m.d {
				out[m.qAt(b, i, h)+d] += (p*(rel[x]+relSum+m.rounding) + m.least + tiny) * abs(m.v[m.kAt(b, keys[x], h)+d])
			}
		}
		l := top + math.Log(sum)
		lse[m.rowAt(b, h, i)] = relSum + logErr(sum) + 3*unit*(abs(l)+abs(top))
		ss, es, keys = ss[:0], es[:0], keys[:0]
	})
	return out, lse
}

// backward returns the errors allowed for dq, dk and dv. With p = exp(s − lse)
// wrong by the score's error, exp's and that of the subtraction, dp a dot
// product of D, and delta another, ds = p·(dp − delta) and the gradients are
// sums of up to T (dq) or T·G (dk, dv) products.
func (m *attnMath) backward() (dq, dk, dv []float64) {
	dq, dk, dv = make([]float64, len(m.q)), make([]float64, len(m.k)), make([]float64, len(m.k))
	scale, g := float64(m.scale()), m.h/m.kvh
	sumQ, sumK := sumErr(m.t), sumErr(m.t*g)
	m.pairs(func(b, i, h, j int, s, errS float64) {
		qa, ka := m.qAt(b, i, h), m.kAt(b, j, h)
		l := m.lse[m.rowAt(b, h, i)]
		x := s - l
		p := math.Exp(x)
		relP := errS + expErr(x) + unit*(abs(l)+2*abs(x)) + 2*unit
		dp, magDP := dots(m.dout[qa:qa+m.d], m.v[ka:])
		delta, magDelta := dots(m.dout[qa:qa+m.d], m.out[qa:])
		ds := p * (dp - delta)
		errDS := p*(sumErr(m.d)+2*unit)*(magDP+magDelta) + (relP+3*unit+m.rounding)*abs(ds) + m.least
		for d := range m.d {
			dv[ka+d] += (p*(relP+sumK+m.rounding) + m.least + tiny) * abs(m.dout[qa+d])
			dq[qa+d] += scale * (errDS + (sumQ+2*unit)*abs(ds) + tiny) * abs(m.k[ka+d])
			dk[ka+d] += scale * (errDS + (sumK+2*unit)*abs(ds) + tiny) * abs(m.q[qa+d])
		}
	}, func(int, int, int) {})
	return dq, dk, dv
}
