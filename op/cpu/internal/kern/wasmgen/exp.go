package main

// Bounds of the exponential, those of kern.expf: below expLow the result is 0,
// because it would not be a normal number; above expHigh it is +Inf.
const (
	expLow  = -87.33
	expHigh = 88.722839
)

// exp returns e^x: x = n·ln 2 + r with |r| ≤ ½ ln 2, where n·ln2High is exact
// because ln2High has nine bits; a Taylor polynomial of degree 7 in r, of which
// 1 + (r + r²·q) loses less than the plain form; and 2ⁿ in two factors, because
// one exponent does not hold 2¹²⁸.
func (f *function) exp(x local) local {
	const log2e, ln2High, ln2Low = 1.4426950408889634, 0.693359375, -2.12194440e-4
	n := f.assign(x, log2e, f32x4Mul, f32x4Near)
	r := f.assign(x, n, ln2High, f32x4Mul, f32x4Sub, n, ln2Low, f32x4Mul, f32x4Sub)
	q := f.assign(1.0 / 5040)
	for _, c := range []float64{1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5} {
		f.expr(q, r, f32x4Mul, c, f32x4Add)
		f.set(q)
	}
	y := f.assign(1.0, r, r, r, f32x4Mul, q, f32x4Mul, f32x4Add, f32x4Add)
	i := f.assign(n, i32x4Trunc)
	half := f.newLocal(v128)
	f.get(i)
	f.i(1)
	f.do(i32x4ShrS)
	f.set(half)
	power := func(e local) {
		f.get(e)
		f.vi(127)
		f.do(i32x4Add)
		f.i(23)
		f.do(i32x4Shl)
	}
	rest := f.assign(i, half, i32x4Sub)
	y = f.assign(y, func() { power(half) }, f32x4Mul, func() { power(rest) }, f32x4Mul)
	y = f.assign(y, x, expLow, f32x4Lt, vAndNot)
	return f.assign(func() { f.vi(exponent) }, y, x, expHigh, f32x4Gt, vSelect)
}

// sigmoid returns 1/(1 + e^−x).
func (f *function) sigmoid(x local) local {
	e := f.exp(f.assign(x, f32x4Neg))
	return f.assign(1.0, 1.0, e, f32x4Add, f32x4Div)
}

// exponentials are the kernels with an exponential in them.
func exponentials() []*function {
	affine := overSlices("expAffine", 2, 3, 0) // dst, x; shift, mul, add
	affine.each(func(a access) {
		x := a.read(1)
		c := affine.constants
		e := affine.exp(affine.assign(x, c[0], f32x4Sub))
		a.store(0, affine.assign(e, c[1], f32x4Mul, c[2], f32x4Add))
	})
	return []*function{affine.function, sumExp("sumExp", true), sumExp("expSum", false),
		glu("siluMul", false), gluBackward("siluMulBackward", false), glu("geluMul", true), gluBackward("geluMulBackward", true)}
}

// sumExp: dst, x; scale, shift. Without store: x; shift, and nothing is written.
func sumExp(name string, store bool) *function {
	pointers, constants := 2, 2
	if !store {
		pointers, constants = 1, 1
	}
	s := overSlices(name, pointers, constants, 0)
	total := s.newWide()
	s.each(func(a access) {
		x := a.read(pointers - 1)
		if store {
			s.expr(x, s.constants[0], f32x4Mul)
			s.set(x)
		}
		e := s.exp(s.assign(x, s.constants[constants-1], f32x4Sub))
		if store {
			a.store(0, e)
		}
		total.add(s.function, s.assign(e, a.inside), false)
	})
	total.total(s.function)
	s.do(f32Demo)
	s.result = []byte{f32}
	return s.function
}

// Constants of the tanh form of GELU, those of kern.geluSigmoid.
const (
	geluA     = 1.5957691216057308
	geluB     = 0.07135481282687
	geluClamp = 20
)

// gate returns σ of a gate and, for GELU, the derivative's x·d(2z)/dx.
func (f *function) gate(x local, gelu bool) (s, xdz local) {
	if !gelu {
		return f.sigmoid(x), 0
	}
	// pmin and pmax return their first operand where it is NaN.
	c := f.assign(x, float64(geluClamp), f32x4PMin, float64(-geluClamp), f32x4PMax)
	q := f.assign(float64(geluB), c, c, f32x4Mul, f32x4Mul)
	z := f.assign(c, float64(geluA), q, f32x4Add, f32x4Mul)
	xdz = f.assign(c, float64(geluA), 3.0, q, f32x4Mul, f32x4Add, f32x4Mul)
	return f.sigmoid(z), xdz
}

// glu: out, gate, up.
func glu(name string, gelu bool) *function {
	f := overSlices(name, 3, 0, 0)
	f.each(func(a access) {
		x, up := a.read(1), a.read(2)
		s, _ := f.gate(x, gelu)
		a.store(0, f.assign(x, s, f32x4Mul, up, f32x4Mul))
	})
	return f.function
}

// gluBackward: dgate, dup, dout, gate, up.
func gluBackward(name string, gelu bool) *function {
	f := overSlices(name, 5, 0, 0)
	f.each(func(a access) {
		d, x, up := a.read(2), a.read(3), a.read(4)
		s, slope := f.gate(x, gelu)
		if !gelu {
			slope = x
		}
		dup := f.assign(d, x, s, f32x4Mul, f32x4Mul)
		dgate := f.assign(d, up, f32x4Mul, s, 1.0, slope, 1.0, s, f32x4Sub, f32x4Mul, f32x4Add, f32x4Mul, f32x4Mul)
		a.store(1, dup)
		a.store(0, dgate)
	})
	return f.function
}
