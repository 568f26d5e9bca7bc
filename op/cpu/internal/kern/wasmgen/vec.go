package main

// A kernel over slices takes pointers, then the number of elements (at least
// 1), then its constants, as in level_simd128_js.go. It handles four elements at a
// time and the last one to three with the same instructions, so that an element
// gets the same bits wherever it stands.

// slices is a function over so many slices with so many constants.
type slices struct {
	*function
	p         []local // pointers
	n         local   // elements left
	constants []local // as vectors
}

// overSlices begins such a function; more are i32 parameters after the constants.
func overSlices(name string, pointers, constants, more int) *slices {
	f := &function{name: name}
	for range pointers + 1 {
		f.params = append(f.params, i32)
	}
	for range constants {
		f.params = append(f.params, f32)
	}
	for range more {
		f.params = append(f.params, i32)
	}
	s := &slices{function: f, n: local(pointers)}
	for i := range pointers {
		s.p = append(s.p, local(i))
	}
	for i := range constants {
		c := f.newLocal(v128)
		f.get(local(pointers + 1 + i))
		f.do(f32x4Spl)
		f.set(c)
		s.constants = append(s.constants, c)
	}
	return s
}

// access reads and writes the current elements of a slice. In the tail, lanes
// beyond the end read as 0 and are not written.
type access struct {
	s    *slices
	tail bool
}

// each runs body for all elements. body must leave the stack as it was.
func (s *slices) each(body func(a access)) {
	s.while(func() { s.get(s.n); s.i(4); s.do(i32GeS) }, func() {
		body(access{s, false})
		for _, p := range s.p {
			s.addTo(p, 16)
		}
		s.addTo(s.n, -4)
	})
	s.get(s.n)
	s.when(func() { body(access{s, true}) }, nil)
}

// bit leaves whether the number of elements left has that bit.
func (s *slices) bit(b int32) { s.get(s.n); s.i(b); s.do(i32And) }

// load leaves the elements of slice i on the stack.
func (a access) load(i int) {
	s, p := a.s, a.s.p[i]
	if !a.tail {
		s.get(p)
		s.function.load(0)
		return
	}
	s.bit(2)
	s.choose(v128, func() {
		s.bit(1)
		s.choose(v128, func() { s.get(p); s.get(p); s.load2(0); s.loadLane(2, 8) }, func() { s.get(p); s.load2(0) })
	}, func() { s.get(p); s.load1(0) })
}

// read loads the elements of slice i into a new local.
func (a access) read(i int) local {
	v := a.s.newLocal(v128)
	a.load(i)
	a.s.set(v)
	return v
}

// store writes a local to slice i.
func (a access) store(i int, v local) {
	s, p := a.s, a.s.p[i]
	if !a.tail {
		s.get(p)
		s.get(v)
		s.function.store(0)
		return
	}
	s.bit(2)
	s.when(func() {
		s.get(p)
		s.get(v)
		s.store2(0)
		s.bit(1)
		s.when(func() { s.get(p); s.get(v); s.storeLane(2, 8) }, nil)
	}, func() { s.get(p); s.get(v); s.storeLane(0, 0) })
}

// inside clears the lanes of the top of the stack that are beyond the end.
func (a access) inside() {
	if a.tail {
		a.s.lanes()
		a.s.get(a.s.n)
		a.s.do(i32x4Spl, i32x4LtS, vAnd)
	}
}

// expr pushes locals and applies operations, in the order given: locals are
// read, operations executed, functions called.
func (f *function) expr(items ...any) {
	for _, x := range items {
		switch x := x.(type) {
		case local:
			f.get(x)
		case op:
			f.do(x)
		case func():
			x()
		case float64:
			f.vf(float32(x))
		}
	}
}

// assign evaluates an expression into a new local.
func (f *function) assign(items ...any) local {
	v := f.newLocal(v128)
	f.expr(items...)
	f.set(v)
	return v
}

// sumLanes leaves the sum of a vector's lanes, as f32: (0+2) + (1+3).
func (f *function) sumLanes(v local) {
	s := f.assign(v, v, v, f.swapHalves, f32x4Add)
	f.get(s)
	f.lane(0)
	f.get(s)
	f.lane(1)
	f.do(f32Add)
}

// wide is a sum in float64, two lanes for the even and two for the odd halves.
type wide struct{ low, high local }

func (f *function) newWide() wide { return wide{f.newLocal(v128), f.newLocal(v128)} }

// add adds the four floats of v; squared adds their squares.
func (w wide) add(f *function, v local, squared bool) {
	for _, half := range []struct {
		sum  local
		high bool
	}{{w.low, false}, {w.high, true}} {
		f.get(half.sum)
		f.get(v)
		if half.high {
			f.get(v)
			f.swapHalves()
		}
		f.do(f64x2Low)
		if squared {
			x := f.newLocal(v128)
			f.tee(x)
			f.get(x)
			f.do(f64x2Mul)
		}
		f.do(f64x2Add)
		f.set(half.sum)
	}
}

// total leaves the sum as f64.
func (w wide) total(f *function) {
	s := f.assign(w.low, w.high, f64x2Add)
	f.get(s)
	f.lane64(0)
	f.get(s)
	f.lane64(1)
	f.do(f64Add)
}

// elementwise are the kernels without sums.
func elementwise() []*function {
	two := func(name string, o op) *function {
		s := overSlices(name, 3, 0, 0) // dst, a, b
		s.each(func(a access) {
			x, y := a.read(1), a.read(2)
			a.store(0, s.assign(x, y, o))
		})
		return s.function
	}
	scale := overSlices("scale", 2, 1, 0) // dst, x; s
	scale.each(func(a access) {
		x := a.read(1)
		a.store(0, scale.assign(x, scale.constants[0], f32x4Mul))
	})
	axpy := overSlices("axpy", 2, 1, 0) // y, x; alpha
	axpy.each(func(a access) {
		y, x := a.read(0), a.read(1)
		a.store(0, axpy.assign(y, axpy.constants[0], x, f32x4Mul, f32x4Add))
	})
	grad := overSlices("softmaxGrad", 3, 2, 0) // ds, p, dp; delta, scale
	grad.each(func(a access) {
		p, dp := a.read(1), a.read(2)
		a.store(0, grad.assign(p, dp, grad.constants[0], f32x4Sub, f32x4Mul, grad.constants[1], f32x4Mul))
	})
	norm := overSlices("normApply", 3, 1, 0) // y, x, w; r
	norm.each(func(a access) {
		x, w := a.read(1), a.read(2)
		a.store(0, norm.assign(x, norm.constants[0], f32x4Mul, w, f32x4Mul))
	})
	return []*function{
		two("add", f32x4Add), two("mul", f32x4Mul), scale.function, axpy.function, grad.function, norm.function,
		normBackward("normBackward", true), normBackward("normBackwardDX", false), rope(), adamw(),
	}
}

// normBackward: dx, dy, x, w and, with dw, dw; r, coef; whether to add to dx.
func normBackward(name string, withDW bool) *function {
	pointers := 4
	if withDW {
		pointers = 5
	}
	s := overSlices(name, pointers, 2, 1)
	addDX := local(pointers + 3)
	r, coef := s.constants[0], s.constants[1]
	s.each(func(a access) {
		dy, x, w := a.read(1), a.read(2), a.read(3)
		g := s.assign(w, dy, f32x4Mul, r, f32x4Mul, x, coef, f32x4Mul, f32x4Sub)
		s.get(addDX)
		s.when(func() { old := a.read(0); s.expr(g, old, f32x4Add); s.set(g) }, nil)
		if withDW {
			dw := a.read(4)
			a.store(4, s.assign(dw, x, r, f32x4Mul, dy, f32x4Mul, f32x4Add))
		}
		a.store(0, g)
	})
	return s.function
}

// rope: x1, x2, cos, sin; sign.
func rope() *function {
	s := overSlices("rope", 4, 1, 0)
	s.each(func(a access) {
		x1, x2, c, sin := a.read(0), a.read(1), a.read(2), a.read(3)
		sn := s.assign(sin, s.constants[0], f32x4Mul)
		y1 := s.assign(x1, c, f32x4Mul, x2, sn, f32x4Mul, f32x4Sub)
		y2 := s.assign(x2, c, f32x4Mul, x1, sn, f32x4Mul, f32x4Add)
		a.store(0, y1)
		a.store(1, y2)
	})
	return s.function
}

// exponent is the mask of a float's exponent bits.
const exponent = 0x7f800000

// adamw: w, g, m, v; then a pointer to adamwArgs.
func adamw() *function {
	s := overSlices("adamw", 4, 0, 1)
	args := local(5)
	field := func(n uint32) local {
		v := s.newLocal(v128)
		s.get(args)
		s.loadSplat(4 * n)
		s.set(v)
		return v
	}
	beta1, omb1, beta2, omb2, clip := field(0), field(1), field(2), field(3), field(4)
	step, invBias2, eps, decay, zero := field(5), field(6), field(7), field(8), field(9)
	mask := func() { s.vi(exponent) }
	s.each(func(a access) {
		w, g, m, v := a.read(0), a.read(1), a.read(2), a.read(3)
		// A gradient is kept if it is finite, or if none are to be replaced.
		g = s.assign(g, g, mask, vAnd, mask, i32x4Ne, zero, vNot, vOr, vAnd, clip, f32x4Mul)
		flush := func(x local) local { return s.assign(x, x, mask, vAnd, func() { s.vi(0) }, i32x4Ne, vAnd) }
		m = flush(s.assign(beta1, m, f32x4Mul, omb1, g, f32x4Mul, f32x4Add))
		v = flush(s.assign(beta2, v, f32x4Mul, omb2, g, g, f32x4Mul, f32x4Mul, f32x4Add))
		denom := s.assign(v, invBias2, f32x4Mul, f32x4Sqrt, eps, f32x4Add)
		w = s.assign(w, decay, w, f32x4Mul, f32x4Sub, step, m, denom, f32x4Div, f32x4Mul, f32x4Sub)
		a.store(0, w)
		a.store(2, m)
		a.store(3, v)
	})
	return s.function
}

// reductions are the kernels that return a sum or a largest element.
func reductions() []*function {
	dot3 := overSlices("dot3", 3, 0, 0) // a, b, c
	acc := dot3.newLocal(v128)
	dot3.each(func(a access) {
		x, y, z := a.read(0), a.read(1), a.read(2)
		dot3.expr(acc, x, y, f32x4Mul, z, f32x4Mul, f32x4Add)
		dot3.set(acc)
	})
	dot3.sumLanes(acc)
	dot3.result = []byte{f32}

	sum := overSlices("sum", 1, 0, 0) // x
	total := sum.newWide()
	sum.each(func(a access) { total.add(sum.function, a.read(0), false) })
	total.total(sum.function)
	sum.result = []byte{f64}
	return []*function{dot(), dot3.function, sum.function, sumSq(), largest()}
}

// dot keeps four sums going, because one would wait for each addition.
func dot() *function {
	s := overSlices("dot", 2, 0, 0) // a, b
	var acc [4]local
	for i := range acc {
		acc[i] = s.newLocal(v128)
	}
	s.while(func() { s.get(s.n); s.i(16); s.do(i32GeS) }, func() {
		for i, sum := range acc {
			s.get(sum)
			for _, p := range s.p {
				s.get(p)
				s.load(16 * uint32(i))
			}
			s.do(f32x4Mul, f32x4Add)
			s.set(sum)
		}
		s.addTo(s.p[0], 64)
		s.addTo(s.p[1], 64)
		s.addTo(s.n, -16)
	})
	s.each(func(a access) {
		x, y := a.read(0), a.read(1)
		s.expr(acc[0], x, y, f32x4Mul, f32x4Add)
		s.set(acc[0])
	})
	s.sumLanes(s.assign(acc[0], acc[1], f32x4Add, acc[2], acc[3], f32x4Add, f32x4Add))
	s.result = []byte{f32}
	return s.function
}

// sumSq: x; a pointer that the number of non-finite elements is written to.
func sumSq() *function {
	s := overSlices("sumSq", 1, 0, 1)
	out := local(2)
	total, bad := s.newWide(), s.newLocal(v128)
	mask := func() { s.vi(exponent) }
	s.each(func(a access) {
		x := a.read(0)
		finite := s.assign(x, mask, vAnd, mask, i32x4Ne)
		s.expr(bad, finite, vNot, i32x4Sub) // a true lane is −1
		s.set(bad)
		total.add(s.function, s.assign(x, finite, vAnd), true)
	})
	s.get(out)
	for n := range byte(4) {
		s.get(bad)
		s.laneI32(n)
		if n > 0 {
			s.do(i32Add)
		}
	}
	s.storeI32(0)
	total.total(s.function)
	s.result = []byte{f64}
	return s.function
}

// largest: x. The last elements are compared in all lanes, one after another.
func largest() *function {
	s := overSlices("max", 1, 0, 0)
	m := s.newLocal(v128)
	s.vi(0xff800000) // −Inf
	s.set(m)
	x := s.p[0]
	s.while(func() { s.get(s.n); s.i(4); s.do(i32GeS) }, func() {
		s.get(m)
		s.get(x)
		s.load(0)
		s.do(f32x4PMax)
		s.set(m)
		s.addTo(x, 16)
		s.addTo(s.n, -4)
	})
	s.while(func() { s.get(s.n) }, func() {
		s.get(m)
		s.get(x)
		s.loadSplat(0)
		s.do(f32x4PMax)
		s.set(m)
		s.addTo(x, 4)
		s.addTo(s.n, -1)
	})
	m = s.assign(m, m, m, s.swapHalves, f32x4PMax)
	m = s.assign(m, m, m, func() { s.shuffle(1, 0, 3, 2) }, f32x4PMax)
	s.get(m)
	s.lane(0)
	s.result = []byte{f32}
	return s.function
}
