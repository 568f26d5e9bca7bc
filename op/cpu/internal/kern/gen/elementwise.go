package main

import (
	"strings"

	"github.com/mmcloughlin/avo/build"
)

// elementwise describes a loop whose outputs depend on the inputs at the same index.
type elementwise struct {
	name    string
	doc     string
	in, out []string // names of pointer parameters; one may be both
	scalars []string // names of float parameters
	unroll  int
	body    func(s *isa, x, c []V) []V // values read and scalars → values written
}

// signature lists the pointers, outputs first, then n and the scalars.
func (e *elementwise) signature() string {
	var ptrs []string
	for _, p := range append(append([]string{}, e.out...), e.in...) {
		if !contains(ptrs, p) {
			ptrs = append(ptrs, p)
		}
	}
	sig := "func(" + strings.Join(ptrs, ", ") + " *float32, n int"
	if len(e.scalars) > 0 {
		sig += ", " + strings.Join(e.scalars, ", ") + " float32"
	}
	return sig + ")"
}

func contains(list []string, x string) bool {
	for _, v := range list {
		if v == x {
			return true
		}
	}
	return false
}

func (e *elementwise) emit(s *isa) {
	s.fn(e.name, e.signature(), e.doc)
	ptr := map[string]G{}
	for _, p := range append(append([]string{}, e.in...), e.out...) {
		if _, ok := ptr[p]; !ok {
			ptr[p] = s.arg(p)
		}
	}
	var c []V
	for _, f := range e.scalars {
		c = append(c, s.floatArg(f))
	}
	s.loop(s.arg("n"), e.unroll, func(_ int, i G, off int, k mask) {
		var x []V
		for _, p := range e.in {
			x = append(x, s.load(at(ptr[p], i, off), k))
		}
		for o, v := range e.body(s, x, c) {
			s.store(v, at(ptr[e.out[o]], i, off), k)
		}
	})
	s.end()
}

// emitVec writes the elementwise loops.
func emitVec(c *build.Context) {
	each(c, func(s *isa) {
		for _, e := range elementwiseLoops {
			e.emit(s)
		}
		emitHalf(s)
	})
}

var elementwiseLoops = []elementwise{
	{"scale", "sets dst = x·a.", []string{"x"}, []string{"dst"}, []string{"a"}, 4,
		func(s *isa, x, c []V) []V { return []V{s.mul(x[0], c[0])} }},
	{"axpy", "sets y += a·x.", []string{"y", "x"}, []string{"y"}, []string{"a"}, 4,
		func(s *isa, x, c []V) []V { s.addMulTo(x[0], x[1], c[0]); return x[:1] }},
	{"add", "sets dst = a + b.", []string{"a", "b"}, []string{"dst"}, nil, 4,
		func(s *isa, x, _ []V) []V { return []V{s.add(x[0], x[1])} }},
	{"mul", "sets dst = a·b.", []string{"a", "b"}, []string{"dst"}, nil, 4,
		func(s *isa, x, _ []V) []V { return []V{s.mul(x[0], x[1])} }},
	{"softmaxGrad", "sets ds = p·(dp−delta)·a.", []string{"p", "dp"}, []string{"ds"}, []string{"delta", "a"}, 2,
		func(s *isa, x, c []V) []V { return []V{s.mul(c[1], s.mul(x[0], s.sub(x[1], c[0])))} }},
	{"expAffine", "sets dst = e^(x−shift)·factor + term.", []string{"x"}, []string{"dst"}, []string{"shift", "factor", "term"}, 2,
		func(s *isa, x, c []V) []V {
			r := s.copy(c[2])
			s.addMulTo(r, s.exp(s.sub(x[0], c[0])), c[1])
			return []V{r}
		}},
	{"siluMul", "sets out = silu(g)·u.", []string{"gate", "u"}, []string{"out"}, nil, 2,
		func(s *isa, x, _ []V) []V { return []V{s.mul(x[1], s.mul(x[0], s.sigmoid(x[0])))} }},
	{"siluMulBackward", "undoes siluMul.", []string{"dout", "gate", "u"}, []string{"dgate", "du"}, nil, 1,
		func(s *isa, x, _ []V) []V { return gatedGrad(s, x, x[1], s.sigmoid(x[1])) }},
	{"geluMul", "sets out = gelu(g)·u.", []string{"gate", "u"}, []string{"out"}, nil, 2,
		func(s *isa, x, _ []V) []V {
			sig, _ := geluSigmoid(s, x[0])
			return []V{s.mul(x[1], s.mul(x[0], sig))}
		}},
	{"geluMulBackward", "undoes geluMul.", []string{"dout", "gate", "u"}, []string{"dgate", "du"}, nil, 1,
		func(s *isa, x, _ []V) []V {
			sig, slope := geluSigmoid(s, x[1])
			return gatedGrad(s, x, slope, sig)
		}},
	{"normApply", "sets y = x·r·w.", []string{"x", "w"}, []string{"y"}, []string{"r"}, 4,
		func(s *isa, x, c []V) []V { return []V{s.mul(x[1], s.mul(x[0], c[0]))} }},
	{"normBackward", "sets dx = w·dy·r − x·coef and dw += x·r·dy.", []string{"dy", "x", "w", "dw"}, []string{"dx", "dw"}, []string{"r", "coef"}, 2,
		func(s *isa, x, c []V) []V { return normGrad(s, x, c) }},
	{"normBackwardAdd", "is normBackward that adds to dx.", []string{"dy", "x", "w", "dw", "dx"}, []string{"dx", "dw"}, []string{"r", "coef"}, 2,
		func(s *isa, x, c []V) []V {
			g := normGrad(s, x, c)
			return []V{s.add(x[4], g[0]), g[1]}
		}},
	{"normBackwardDX", "sets dx = w·dy·r − x·coef.", []string{"dy", "x", "w"}, []string{"dx"}, []string{"r", "coef"}, 2,
		func(s *isa, x, c []V) []V { return []V{normGradDX(s, x, s.mul(x[0], c[0]), c[1])} }},
	{"normBackwardDXAdd", "is normBackwardDX that adds to dx.", []string{"dy", "x", "w", "dx"}, []string{"dx"}, []string{"r", "coef"}, 2,
		func(s *isa, x, c []V) []V { return []V{s.add(x[3], normGradDX(s, x, s.mul(x[0], c[0]), c[1]))} }},
	{"rope", "rotates the pairs (x1, x2); sign −1 rotates back.", []string{"x1", "x2", "cos", "sin"}, []string{"x1", "x2"}, []string{"sign"}, 1,
		func(s *isa, x, c []V) []V {
			sin := s.mul(x[3], c[0])
			a, b := s.mul(x[0], x[2]), s.mul(x[1], x[2])
			s.subMulTo(a, x[1], sin)
			s.addMulTo(b, x[0], sin)
			return []V{a, b}
		}},
}

// gatedGrad is the backward step of out = x·σ·u for inputs (dout, x, u) and slope = x·d(argument)/dx:
// dgate = dout·u·σ·(1 + slope·(1−σ)) and du = dout·x·σ.
func gatedGrad(s *isa, in []V, slope, sig V) []V {
	dout, x, u := in[0], in[1], in[2]
	one := s.value(s.f32(1))
	rest := s.sub(one, sig)
	s.mulAddTo(rest, slope, one)
	dgate := s.mul(s.mul(dout, u), s.mul(sig, rest))
	return []V{dgate, s.mul(dout, s.mul(x, sig))}
}

// geluSigmoid returns σ(2z) and x·d(2z)/dx; see portable_exp.go for the constants.
func geluSigmoid(s *isa, x V) (sig, slope V) {
	const a, b, clamp = 1.5957691216057308, 0.07135481282687, 20
	c := s.clamp(x, clamp)
	q := s.mul(s.f32(b), s.mul(c, c))
	arg := s.mul(c, s.add(s.f32(a), q))
	slope = s.mul(c, s.add(s.f32(a), s.mul(s.f32(3), q)))
	return s.sigmoid(arg), slope
}

// normGrad takes (dy, x, w, dw) and (r, coef) and returns dx and the new dw.
func normGrad(s *isa, x, c []V) []V {
	dyr := s.mul(x[0], c[0])
	dx := normGradDX(s, x, dyr, c[1])
	s.addMulTo(x[3], x[1], dyr)
	return []V{dx, x[3]}
}

// normGradDX takes (dy, x, w), dy·r and coef and returns dx.
func normGradDX(s *isa, x []V, dyr, coef V) V {
	dx := s.mul(x[2], dyr)
	s.subMulTo(dx, x[1], coef)
	return dx
}
