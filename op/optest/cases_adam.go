package optest

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

var nan32 = float32(math.NaN())

// notFinite has every kind of value that is not a number or infinite: quiet and
// signalling NaN of both signs, with the smallest and largest payload.
var notFinite = []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff}

// spoil puts the values of notFinite at places spread over v and returns how
// many fitted.
func spoil(v []float32) int {
	step := max(1, len(v)/len(notFinite))
	count := 0
	for i, bits := range notFinite {
		if at := i*step + step/2; at < len(v) {
			v[at] = math.Float32frombits(bits)
			count++
		}
	}
	return count
}

func gradNormCases() []Case {
	var cs []Case
	for _, n := range []int{1, 255, 257, op.NormChunk, op.NormChunk + 1, 2*op.NormChunk + 12345} {
		for _, bad := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("grad norm/%d spoilt=%t", n, bad), Op: "reduce_norm_sq",
				body: func(e *env) { gradNormCase(e, n, 1, bad) }})
		}
	}
	for _, std := range []float64{1e15, 1e-16} {
		cs = append(cs, Case{Name: fmt.Sprintf("grad norm/1000 std %g", std), Op: "reduce_norm_sq",
			body: func(e *env) { gradNormCase(e, 1000, std, false) }})
	}
	for _, z := range []struct {
		p          int
		scale, max float32
	}{{1, 1, 1}, {3, 1, 0}, {300, 1, 2.5}, {7, 0, 1}, {5, 1e-20, 1}} {
		cs = append(cs, Case{Name: fmt.Sprintf("grad stats/p%d scale %g max %g", z.p, z.scale, z.max), Op: "finalize_grad_stats",
			body: func(e *env) { gradStatsCase(e, z.p, z.scale, z.max) }})
	}
	return cs
}

func gradNormCase(e *env, n int, std float64, bad bool) {
	v := e.normal(std, n)
	if bad {
		spoil(v)
	}
	g, partials := e.in("g", v, n), e.out("partials", op.NormPartials(n), 2)
	e.run(func(s side) { s.GradNormSq(op.GradNormSq{G: s.t(g), Partials: s.t(partials)}) })
	want := e.want(partials)
	e.compare(partials, func(i int) float64 {
		if i%2 == 1 {
			return 0 // a count
		}
		return sumErr(min(n, op.NormChunk))*want[i] + float64(n)*tiny
	})
}

func gradStatsCase(e *env, p int, scale, maxNorm float32) {
	v := e.normal(1, 2*p)
	for i := range p {
		v[2*i], v[2*i+1] = v[2*i]*v[2*i]*scale, float32(i%3)
	}
	partials, stats := e.in("partials", v, p, 2), e.out("stats", 4)
	e.run(func(s side) {
		s.FinalizeGradStats(op.FinalizeGradStats{Partials: s.t(partials), Stats: s.t(stats), MaxNorm: maxNorm})
	})
	want := e.want(stats)
	rel := sumErr(p)/2 + 4*ulp // sqrt and a division
	e.compare(stats, func(i int) float64 { return []float64{rel * want[0], 2 * rel * want[1], 0, 0}[i] })
}

// hyperAt is a usual step's constants, after steps steps.
func hyperAt(step int, nonFinite op.NonFinite) op.AdamHyper {
	return op.AdamHyper{LR: 1e-2, Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1, Eps: 1e-8, NonFinite: nonFinite,
		Beta1Pow: float32(math.Pow(0.9, float64(step))), Beta2Pow: float32(math.Pow(0.95, float64(step)))}
}

func adamCases() []Case {
	var cs []Case
	for _, n := range []int{1, 7, 255, 256, 257, 3001} {
		for _, mirror := range mirrors {
			cs = append(cs, Case{Name: fmt.Sprintf("adamw/n%d 3 steps%s", n, mirror.name), Op: "adamw_update" + mirror.label, F16: mirror.typ == tensor.F16,
				body: func(e *env) { adamCase(e, n, 3, 1, mirror.typ) }})
		}
	}
	for _, mirror := range mirrors[1:] {
		cs = append(cs,
			Case{Name: "adamw/large weights" + mirror.name, Op: "adamw_update" + mirror.label, F16: mirror.typ == tensor.F16,
				body: func(e *env) { adamLargeCase(e, mirror.typ) }},
			Case{Name: "adamw/odd weights" + mirror.name, Op: "adamw_update" + mirror.label, F16: mirror.typ == tensor.F16,
				body: func(e *env) { adamOddCase(e, mirror.typ) }},
			Case{Name: "adamw/nonfinite skip" + mirror.name, Op: "adamw_update" + mirror.label, F16: mirror.typ == tensor.F16,
				body: func(e *env) { adamSkipCase(e, mirror.typ) }})
	}
	return append(cs,
		Case{Name: "adamw/50 steps", Op: "adamw_update", body: func(e *env) { adamCase(e, 300, 50, 1, tensor.F32) }},
		Case{Name: "adamw/large gradients", Op: "adamw_update", body: func(e *env) { adamCase(e, 100, 3, 1e12, tensor.F32) }},
		Case{Name: "adamw/tiny gradients", Op: "adamw_update", body: func(e *env) { adamCase(e, 100, 3, 1e-21, tensor.F32) }},
		Case{Name: "adamw/n300000", Op: "adamw_update", Large: true, body: func(e *env) { adamCase(e, 300000, 2, 1, tensor.F32) }},
		Case{Name: "adamw/nonfinite skip", Op: "adamw_update", body: func(e *env) { adamSkipCase(e, tensor.F32) }},
		Case{Name: "adamw/nonfinite zero", Op: "adamw_update", body: adamZeroCase})
}

// mirrors are the forms of AdamW: without a mirror of the weights, and with one of each
// type. label ends the operation's own.
var mirrors = []struct {
	typ         tensor.DType
	name, label string
}{{tensor.F32, "", ""}, {tensor.F16, " mirror F16", "_f16"}, {tensor.BF16, " mirror BF16", "_bf16"}}

// outMirror is where the optimizer writes a mirror; nil for none, F32.
func (e *env) outMirror(typ tensor.DType, n int) *tens {
	if typ == tensor.F32 {
		return nil
	}
	return e.add("w16", typ, output, nil, []int{n})
}

// adamState is the four tensors of an optimizer with full moments.
type adamState struct{ w, g, m, v, w16, stats *tens }

func (e *env) adamState(n int, g []float32, stats []float32) adamState {
	a := adamState{w: e.acc("w", e.normal(1, n), n), g: e.in("g", g, n), m: e.acc("m", e.normal(0.1, n), n)}
	v := e.normal(1, n)
	for i := range v {
		v[i] *= v[i]
	}
	a.v = e.acc("v", v, n)
	if stats != nil {
		a.stats = e.in("stats", stats, 4)
	}
	return a
}

func (a adamState) call(s side, h op.AdamHyper) {
	s.AdamW(op.AdamW{W: s.t(a.w), G: s.t(a.g), M: s.t(a.m), V: s.t(a.v), W16: s.t(a.w16), Stats: s.t(a.stats), AdamHyper: h})
}

// adamCase takes several steps with new gradients and a clip computed from them,
// and follows the error that each step may add.
func adamCase(e *env, n, steps int, std float64, mirror tensor.DType) {
	a := e.adamState(n, make([]float32, n), nil)
	a.g.role = inout // renewed by the case itself
	a.stats = e.out("stats", 4)
	partials := e.out("partials", op.NormPartials(n), 2)
	a.w16 = e.outMirror(mirror, n)
	grads := make([][]float32, steps)
	for i := range grads {
		grads[i] = e.normal(std, n)
	}
	maxNorm := float32(0.5 * std * math.Sqrt(float64(n)))
	e.run(func(s side) {
		for i, g := range grads {
			s.write(a.g, g)
			s.GradNormSq(op.GradNormSq{G: s.t(a.g), Partials: s.t(partials)})
			s.FinalizeGradStats(op.FinalizeGradStats{Partials: s.t(partials), Stats: s.t(a.stats), MaxNorm: maxNorm})
			a.call(s, hyperAt(i+1, op.NonFiniteSkip))
		}
	})
	if e.res.Err != nil {
		return
	}
	sim := newAdamErr(a.w.before(), a.m.before(), a.v.before())
	for i, g := range grads {
		norm := 0.0
		for _, x := range g {
			norm += float64(x) * float64(x)
		}
		clip := math.Min(1, float64(maxNorm)/math.Max(math.Sqrt(norm), 1e-6))
		sim.step(wide(g), clip, sumErr(n)+8*ulp, hyperAt(i+1, op.NonFiniteSkip))
	}
	a.compare(e, sim)
	e.exact(a.g)
}

// compare holds weights and moments against the reference; the mirror must be the
// device's own weights, rounded.
func (a adamState) compare(e *env, sim *adamErr) {
	e.compare(a.m, func(i int) float64 { return sim.em[i] })
	e.compare(a.v, func(i int) float64 { return sim.ev[i] })
	e.compare(a.w, func(i int) float64 { return sim.ew[i] })
	a.compareMirror(e)
}

func (a adamState) compareMirror(e *env) {
	if a.w16 == nil || e.res.Err != nil {
		return
	}
	rounded := a.w.after()
	for i, w := range rounded {
		rounded[i] = float64(castTo(a.w16.typ, float32(w)))
	}
	e.compareTo("w16", a.w16, a.w16.after(), rounded, func(int) float64 { return 0 })
}

// castTo rounds x to a type of 16 bits as op.Cast does.
func castTo(typ tensor.DType, x float32) float32 {
	if typ == tensor.BF16 {
		return tensor.FromBF16(tensor.ToBF16(x))
	}
	return tensor.FromF16(tensor.ToF16(x))
}

// adamErr follows w, m and v of op.AdamW in float64 and, for each, the error
// that float32 may have gathered.
type adamErr struct{ w, m, v, ew, em, ev []float64 }

func newAdamErr(w, m, v []float64) *adamErr {
	n := len(w)
	return &adamErr{w, m, v, make([]float64, n), make([]float64, n), make([]float64, n)}
}

// step makes one update. clipErr is the relative error of the clip factor.
func (a *adamErr) step(g []float64, clip, clipErr float64, h op.AdamHyper) {
	b1, b2 := float64(h.Beta1), float64(h.Beta2)
	c1, c2 := 1-float64(h.Beta1Pow), 1-float64(h.Beta2Pow)
	for i := range g {
		x := g[i] * clip
		m, v := b1*a.m[i]+(1-b1)*x, b2*a.v[i]+(1-b2)*x*x
		a.em[i] = b1*a.em[i] + 3*unit*(b1*abs(a.m[i])+(1-b1)*abs(x)) + (1-b1)*abs(x)*(clipErr+2*unit) + tiny
		a.ev[i] = b2*a.ev[i] + 4*unit*v + (1-b2)*x*x*(2*clipErr+4*unit) + 4*tiny
		root := math.Sqrt(v / c2)
		errRoot := math.Sqrt((v+a.ev[i])/c2) - root + 8*unit*root
		low := math.Max(root-errRoot, 0) + float64(h.Eps)
		step := m / c1 / (root + float64(h.Eps))
		errStep := a.em[i]/c1/low + abs(m)/c1*(1/low-1/(root+float64(h.Eps))) + 16*unit*abs(step)
		lr, wd := float64(h.LR), float64(h.WeightDecay)
		a.ew[i] += lr*errStep + 4*unit*(abs(a.w[i])+lr*abs(step)) + tiny
		a.w[i] -= lr * (step + wd*a.w[i])
		a.m[i], a.v[i] = m, v
	}
}

// adamSkipCase has non-finite gradients and stats that count them: nothing may
// move, the mirror included.
func adamSkipCase(e *env, mirror tensor.DType) {
	const n = 700
	g := e.normal(1, n)
	bad := spoil(g)
	a := e.adamState(n, g, []float32{5, 0.2, float32(bad), 0})
	a.w16 = e.outMirror(mirror, n)
	e.run(func(s side) { a.call(s, hyperAt(3, op.NonFiniteSkip)) })
	for _, x := range []*tens{a.w, a.m, a.v, a.w16} {
		if x != nil {
			e.unchanged(x)
		}
	}
	if e.res.Err == nil {
		e.res.Where = "skipped step"
	}
}

// adamZeroCase takes the same gradients as zeros.
func adamZeroCase(e *env) {
	const n = 700
	g := e.normal(1, n)
	bad := spoil(g)
	a := e.adamState(n, g, []float32{5, 0.2, float32(bad), 0})
	e.run(func(s side) { a.call(s, hyperAt(3, op.NonFiniteZero)) })
	if e.res.Err != nil {
		return
	}
	clean := wide(g)
	for i, x := range clean {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			clean[i] = 0
		}
	}
	sim := newAdamErr(a.w.before(), a.m.before(), a.v.before())
	sim.step(clean, float64(float32(0.2)), 0, hyperAt(3, op.NonFiniteZero))
	a.compare(e, sim)
}

// adamLargeCase has weights beyond the range of float16.
func adamLargeCase(e *env, mirror tensor.DType) {
	const n = 300
	a := e.adamState(n, e.normal(1, n), []float32{1, 1, 0, 0})
	copy(a.w.init[a.w.off*4:], tensor.Bytes(e.normal(1e5, n)))
	a.w16 = e.outMirror(mirror, n)
	e.run(func(s side) { a.call(s, hyperAt(1, op.NonFiniteSkip)) })
	if e.res.Err != nil {
		return
	}
	sim := newAdamErr(a.w.before(), a.m.before(), a.v.before())
	sim.step(a.g.before(), 1, 0, hyperAt(1, op.NonFiniteSkip))
	a.compare(e, sim)
}

// adamOddCase has weights that are hard to round, and a learning rate of 0, which leaves
// them: ties, subnormal numbers of the mirror's type and of float32, what rounds up beyond
// the type's range, NaN; infinities become NaN. An even and an odd place for each, since
// mirrors are written in pairs.
func adamOddCase(e *env, mirror tensor.DType) {
	const n = 301
	v := wild(e.normal(1, n))
	for i, x := range []float32{math.MaxFloat32, -math.MaxFloat32, 0x1.fep127, 0x1.ff7fp127, 1e-40, -1e-40, 0x1p-149, 0x1p-133, 0x1.8p-133, 0x1.8p-25, 0x1.000002p-25} {
		v[n-1-2*i], v[40+3*i] = x, x
	}
	a := e.adamState(n, e.normal(1, n), []float32{1, 1, 0, 0})
	copy(a.w.init[a.w.off*4:], tensor.Bytes(v))
	a.w16 = e.outMirror(mirror, n)
	h := hyperAt(2, op.NonFiniteSkip)
	h.LR = 0
	e.run(func(s side) { a.call(s, h) })
	a.compareMirror(e)
	e.compare(a.w16, func(int) float64 { return 0x1p-126 }) // a device may take subnormal weights for 0
}
