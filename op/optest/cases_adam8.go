package optest

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

func adam8Cases() []Case {
	var cs []Case
	for _, n := range []int{1, 255, 256, 257, 1000, 5000} {
		for _, mirror := range mirrors {
			cs = append(cs, Case{Name: fmt.Sprintf("adamw8/n%d%s", n, mirror.name), Op: "adamw_8bit_update", F16: mirror.typ == tensor.F16,
				body: func(e *env) { adam8Case(e, n, 1, mirror.typ, false) }})
		}
	}
	for _, mirror := range mirrors[1:] {
		cs = append(cs, Case{Name: "adamw8/nonfinite skip" + mirror.name, Op: "adamw_8bit_update", F16: mirror.typ == tensor.F16,
			body: func(e *env) { adam8SkipCase(e, mirror.typ) }})
	}
	return append(cs,
		Case{Name: "adamw8/tiny gradients", Op: "adamw_8bit_update", body: func(e *env) { adam8Case(e, 600, 1e-12, tensor.F32, false) }},
		Case{Name: "adamw8/nonfinite zero", Op: "adamw_8bit_update", body: func(e *env) { adam8Case(e, 600, 1, tensor.F32, true) }},
		Case{Name: "adamw8/nonfinite skip", Op: "adamw_8bit_update", body: func(e *env) { adam8SkipCase(e, tensor.F32) }},
		Case{Name: "adamw8/zero blocks", Op: "adamw_8bit_update", body: adam8ZeroCase},
		Case{Name: "adamw8/convergence", Op: "adamw_8bit_update", body: adam8Converge})
}

// adam8State is the tensors of an optimizer with 8-bit moments.
type adam8State struct {
	w, g, m, v, mScale, vScale, w16, stats *tens
	n                                      int
}

// adam8State starts from random codes. Every block's largest code is at its
// end of the range, as an encoder leaves it.
func (e *env) adam8State(n int, std float64, g, stats []float32) adam8State {
	blocks := (n + op.MomentBlock - 1) / op.MomentBlock
	m, v := make([]int8, n), make([]int8, n)
	for i, c := range e.intn(255, n) {
		m[i] = int8(c - 127)
	}
	for i, c := range e.intn(255, n) {
		v[i] = int8(uint8(c + 1))
	}
	for i := 0; i < n; i += op.MomentBlock {
		m[i], v[i] = 127, -1 // 255
	}
	ms, vs := e.normal(0.05*std/127, blocks), e.normal(0.1*std/255, blocks)
	for b := range ms {
		ms[b], vs[b] = float32(abs(float64(ms[b])))+1e-30, float32(abs(float64(vs[b])))+float32(0.1*std/255)
	}
	return adam8State{n: n, w: e.acc("w", e.normal(1, n), n), g: e.in("g", g, n), m: e.codes("m", m, n), v: e.codes("v", v, n),
		mScale: e.acc("m_scale", ms, blocks), vScale: e.acc("v_scale", vs, blocks), stats: e.in("stats", stats, 4)}
}

func (a adam8State) call(s side, h op.AdamHyper) {
	s.AdamW8(op.AdamW8{W: s.t(a.w), G: s.t(a.g), M: s.t(a.m), V: s.t(a.v), MScale: s.t(a.mScale), VScale: s.t(a.vScale),
		W16: s.t(a.w16), Stats: s.t(a.stats), AdamHyper: h})
}

// moments decodes codes and scales into m and √v.
func moments(qm, qv, ms, vs []float64) (m, root []float64) {
	m, root = make([]float64, len(qm)), make([]float64, len(qm))
	for i := range qm {
		b := i / op.MomentBlock
		m[i], root[i] = qm[i]*ms[b], byteOf(qv[i])*vs[b]
	}
	return m, root
}

// byteOf reads a signed code's byte as unsigned.
func byteOf(q float64) float64 { return float64(uint8(int8(q))) }

// adam8Case makes one step. The weights use the exact new moments, so their
// bound is AdamW's; the new codes must be next to the exact quotients.
func adam8Case(e *env, n int, std float64, mirror tensor.DType, spoilt bool) {
	g := e.normal(std, n)
	stats := []float32{3, 0.5, 0, 0}
	h := hyperAt(4, op.NonFiniteSkip)
	if spoilt {
		stats[2] = float32(spoil(g))
		h.NonFinite = op.NonFiniteZero
	}
	a := e.adam8State(n, std, g, stats)
	a.w16 = e.outMirror(mirror, n)
	e.run(func(s side) { a.call(s, h) })
	if e.res.Err != nil {
		return
	}
	m, root := moments(a.m.before(), a.v.before(), a.mScale.before(), a.vScale.before())
	clean := wide(g)
	for i, x := range clean {
		root[i] *= root[i]
		if math.IsNaN(x) || math.IsInf(x, 0) {
			clean[i] = 0
		}
	}
	sim := newAdamErr(a.w.before(), m, root)
	for i := range m { // decoding multiplies, and squares
		sim.em[i], sim.ev[i] = unit*abs(m[i]), 4*unit*root[i]+tiny
	}
	sim.step(clean, 0.5, 0, h)
	e.compare(a.w, func(i int) float64 { return sim.ew[i] })
	adamState{w: a.w, w16: a.w16}.compareMirror(e)
	a.compareCodes(e, sim)
}

// compareCodes checks scales and codes against the exact moments.
func (a adam8State) compareCodes(e *env, sim *adamErr) {
	ms, vs := a.mScale.after(), a.vScale.after()
	wantM, wantV := make([]float64, len(ms)), make([]float64, len(vs))
	errM, errV := make([]float64, len(ms)), make([]float64, len(vs))
	root, errRoot := make([]float64, a.n), make([]float64, a.n)
	for i := range root {
		b := i / op.MomentBlock
		root[i] = math.Sqrt(sim.v[i])
		errRoot[i] = math.Sqrt(sim.v[i]+sim.ev[i]) - root[i] + 4*unit*root[i]
		wantM[b], wantV[b] = math.Max(wantM[b], abs(sim.m[i])/127), math.Max(wantV[b], root[i]/255)
		errM[b], errV[b] = math.Max(errM[b], sim.em[i]/127), math.Max(errV[b], errRoot[i]/255)
	}
	e.compareTo("m_scale", a.mScale, ms, wantM, func(b int) float64 { return errM[b] + 4*unit*wantM[b] })
	e.compareTo("v_scale", a.vScale, vs, wantV, func(b int) float64 { return errV[b] + 4*unit*wantV[b] })
	gotM, gotRoot := moments(a.m.after(), a.v.after(), ms, vs)
	e.compareTo("m decoded", a.m, gotM, sim.m, func(i int) float64 { return ms[i/op.MomentBlock]*(1+1e-4) + sim.em[i] })
	e.compareTo("√v decoded", a.v, gotRoot, root, func(i int) float64 { return vs[i/op.MomentBlock]*(1+1e-4) + errRoot[i] })
	for i, q := range a.v.after() {
		if q == 0 && root[i] > 0 && e.res.Err == nil {
			e.fail(fmt.Errorf("v[%d] has code 0 for a √v of %g: its next step would be divided by eps alone", i, root[i]))
		}
	}
}

func adam8SkipCase(e *env, mirror tensor.DType) {
	const n = 600
	g := e.normal(1, n)
	a := e.adam8State(n, 1, g, []float32{5, 0.2, float32(spoil(g)), 0})
	a.w16 = e.outMirror(mirror, n)
	e.run(func(s side) { a.call(s, hyperAt(3, op.NonFiniteSkip)) })
	for _, x := range []*tens{a.w, a.m, a.v, a.mScale, a.vScale, a.w16} {
		if x != nil {
			e.unchanged(x)
		}
	}
	if e.res.Err == nil {
		e.res.Where = "skipped step"
	}
}

// adam8ZeroCase has moments and gradients of zero: scales and codes stay 0 and
// the weights only decay.
func adam8ZeroCase(e *env) {
	const n = 520
	a := e.adam8State(n, 1, make([]float32, n), []float32{0, 1, 0, 0})
	for _, x := range []*tens{a.m, a.v, a.mScale, a.vScale} {
		size := x.typ.Size()
		clear(x.init[x.off*size : (x.off+x.n)*size])
	}
	e.run(func(s side) { a.call(s, hyperAt(1, op.NonFiniteSkip)) })
	for _, x := range []*tens{a.m, a.v, a.mScale, a.vScale} {
		e.unchanged(x)
	}
	if e.res.Err != nil {
		return
	}
	want := e.want(a.w)
	e.compare(a.w, func(i int) float64 { return 4 * unit * abs(want[i]) })
}

// adam8Converge minimises Σ c·(w − target)²/2 with noisy gradients, c spread
// over two decades inside every block, from moments of zero. With full moments
// the distance falls from 1 to some hundredths in 150 steps at this learning
// rate; 8-bit moments must come as near but for a tenth of the way.
func adam8Converge(e *env) {
	const n, steps = 512, 150
	a := e.adam8State(n, 1, make([]float32, n), []float32{0, 1, 0, 0})
	for _, x := range []*tens{a.m, a.v, a.mScale, a.vScale} {
		size := x.typ.Size()
		clear(x.init[x.off*size : (x.off+x.n)*size])
	}
	a.g.role = inout // renewed by the case itself
	start, noise := wide(e.normal(1, n)), wide(e.normal(0.05, n*steps))
	copy(a.w.init[a.w.off*4:], tensor.Bytes(narrow(start)))
	distance := func(w []float64) (s float64) {
		for _, x := range w {
			s += x * x / n
		}
		return math.Sqrt(s)
	}
	gradient := func(w []float64, step int) []float64 {
		g := make([]float64, n)
		for i := range g {
			g[i] = math.Pow(10, -2*float64(i%16)/15) * (w[i] + noise[step*n+i])
		}
		return g
	}
	hyper := func(step int) op.AdamHyper {
		h := hyperAt(step+1, op.NonFiniteSkip)
		h.LR, h.WeightDecay = 0.02, 0
		return h
	}
	full := newAdamErr(append([]float64(nil), start...), make([]float64, n), make([]float64, n))
	for i := range steps {
		full.step(gradient(full.w, i), 1, 0, hyper(i))
	}
	w := make([]float32, n)
	e.run(func(s side) {
		for i := range steps {
			op.ReadSlice(s.Runner, w, s.t(a.w))
			s.write(a.g, narrow(gradient(wide(w), i)))
			a.call(s, hyper(i))
		}
	})
	if e.res.Err != nil {
		return
	}
	got, want, from := distance(a.w.after()), distance(full.w), distance(start)
	e.res.MaxErr, e.res.Bound = math.Max(0, got-want), (from-want)/10
	e.res.Where = fmt.Sprintf("distance %.4g from %.4g, with full moments %.4g", got, from, want)
	if math.IsNaN(got) {
		e.res.MaxErr = math.Inf(1)
	}
}

// narrow converts to float32.
func narrow(v []float64) []float32 {
	f := make([]float32, len(v))
	for i, x := range v {
		f[i] = float32(x)
	}
	return f
}
