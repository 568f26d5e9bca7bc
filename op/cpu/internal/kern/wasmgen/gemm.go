package main

// micro computes a tile of C of rows × 8, rows a multiple of 4, four rows at a
// time: eight vectors of sums, which hide the latency of an addition, in the
// registers of any machine. fused takes multiply-add instructions.
//
//	micro(rows, kc, a, rsa, csa, b, ldb, c, ldc, accumulate)
//
// Strides are in elements. Either csa is 1 (rows of A where they are) or rsa is
// 1 (packed).
func micro(name string, fused bool) *function {
	f := &function{name: name, fused: fused, params: []byte{i32, i32, i32, i32, i32, i32, i32, i32, i32, i32}}
	rows, kc, a, rsa, csa, b := local(0), local(1), local(2), local(3), local(4), local(5)
	ldb, c, ldc, accumulate := local(6), local(7), local(8), local(9)
	for _, stride := range []local{rsa, csa, ldb, ldc} {
		f.get(stride)
		f.i(2)
		f.do(i32Shl)
		f.set(stride)
	}
	f.while(func() { f.get(rows) }, func() {
		sums := f.fourRows(kc, a, rsa, csa, b, ldb)
		row := f.newLocal(i32)
		f.get(c)
		f.set(row)
		for r := range 4 {
			f.putRow(row, sums[2*r:2*r+2], accumulate)
			f.get(row)
			f.get(ldc)
			f.do(i32Add)
			f.set(row)
		}
		f.get(row)
		f.set(c)
		f.get(a)
		f.get(rsa)
		f.i(2)
		f.do(i32Shl, i32Add)
		f.set(a)
		f.addTo(rows, -4)
	})
	return f
}

// fourRows returns the sums of four rows of A times the panel of B.
func (f *function) fourRows(kc, a, rsa, csa, b, ldb local) []local {
	sums := make([]local, 8)
	for i := range sums {
		sums[i] = f.newLocal(v128)
		f.vi(0)
		f.set(sums[i])
	}
	k, pb := f.newLocal(i32), f.newLocal(i32)
	f.get(kc)
	f.set(k)
	f.get(b)
	f.set(pb)
	f.get(csa)
	f.i(4)
	f.do(i32Ne)
	f.when(func() { f.packedRows(k, pb, a, csa, ldb, sums) }, func() { f.rowsInPlace(k, pb, a, rsa, ldb, sums) })
	return sums
}

// multiply adds one k: elements of A from address, which gets the row's number,
// and eight columns of B from pb.
func (f *function) multiply(pb local, sums []local, element func(row int)) {
	b0, b1 := f.newLocal(v128), f.newLocal(v128)
	f.get(pb)
	f.load(0)
	f.set(b0)
	f.get(pb)
	f.load(16)
	f.set(b1)
	for r := range 4 {
		x := f.newLocal(v128)
		element(r)
		f.set(x)
		for h, bv := range []local{b0, b1} {
			sum := sums[2*r+h]
			f.multiplyAdd(sum, x, bv)
		}
	}
}

// multiplyAdd adds x·y to a sum.
func (f *function) multiplyAdd(sum, x, y local) {
	if f.fused {
		f.expr(x, y, sum, f32x4MAdd)
	} else {
		f.expr(sum, x, y, f32x4Mul, f32x4Add)
	}
	f.set(sum)
}

func (f *function) packedRows(k, pb, a, csa, ldb local, sums []local) {
	pa := f.newLocal(i32)
	f.get(a)
	f.set(pa)
	f.while(func() { f.get(k) }, func() {
		f.multiply(pb, sums, func(row int) { f.get(pa); f.loadSplat(4 * uint32(row)) })
		f.advance(pa, csa)
		f.advance(pb, ldb)
		f.addTo(k, -1)
	})
}

// unroll is how many k the loop over rows in place does at a time.
const unroll = 4

func (f *function) rowsInPlace(k, pb, a, rsa, ldb local, sums []local) {
	var row [4]local
	for r := range row {
		row[r] = f.newLocal(i32)
		f.get(a)
		if r > 0 {
			f.get(rsa)
			f.i(int32(r))
			f.do(i32Mul, i32Add)
		}
		f.set(row[r])
	}
	loop := func(steps int) {
		f.while(func() { f.get(k); f.i(int32(steps)); f.do(i32GeS) }, func() {
			for s := range steps {
				f.multiply(pb, sums, func(r int) { f.get(row[r]); f.loadSplat(4 * uint32(s)) })
				f.advance(pb, ldb)
			}
			for _, p := range row {
				f.addTo(p, 4*int32(steps))
			}
			f.addTo(k, -int32(steps))
		})
	}
	loop(unroll)
	loop(1)
}

func (f *function) advance(p, by local) {
	f.get(p)
	f.get(by)
	f.do(i32Add)
	f.set(p)
}

// putRow writes or adds eight sums to a row of C.
func (f *function) putRow(row local, sums []local, accumulate local) {
	f.get(accumulate)
	f.when(func() {
		for h, sum := range sums {
			f.get(row)
			f.load(16 * uint32(h))
			f.get(sum)
			f.do(f32x4Add)
			f.set(sum)
		}
	}, nil)
	for h, sum := range sums {
		f.get(row)
		f.get(sum)
		f.store(16 * uint32(h))
	}
}

// gemvNN adds x (k) · w (k, n) to y (n), n a multiple of 4, sixteen columns at a
// time and then four.
//
//	gemvNN(n, k, x, w, ldw, y)
func gemvNN(name string, fused bool) *function {
	f := &function{name: name, fused: fused, params: []byte{i32, i32, i32, i32, i32, i32}}
	n, k, x, w, ldw, y := local(0), local(1), local(2), local(3), local(4), local(5)
	f.get(ldw)
	f.i(2)
	f.do(i32Shl)
	f.set(ldw)
	strip := func(vectors int) {
		f.while(func() { f.get(n); f.i(4 * int32(vectors)); f.do(i32GeS) }, func() {
			px, pw, left := f.newLocal(i32), f.newLocal(i32), f.newLocal(i32)
			for _, pair := range [][2]local{{px, x}, {pw, w}, {left, k}} {
				f.get(pair[1])
				f.set(pair[0])
			}
			sums := make([]local, vectors)
			for v := range sums {
				sums[v] = f.newLocal(v128)
				f.get(y)
				f.load(16 * uint32(v))
				f.set(sums[v])
			}
			f.while(func() { f.get(left) }, func() {
				xv := f.newLocal(v128)
				f.get(px)
				f.loadSplat(0)
				f.set(xv)
				for v, sum := range sums {
					wv := f.newLocal(v128)
					f.get(pw)
					f.load(16 * uint32(v))
					f.set(wv)
					f.multiplyAdd(sum, xv, wv)
				}
				f.addTo(px, 4)
				f.advance(pw, ldw)
				f.addTo(left, -1)
			})
			for v, sum := range sums {
				f.get(y)
				f.get(sum)
				f.store(16 * uint32(v))
			}
			f.addTo(y, 16*int32(vectors))
			f.addTo(w, 16*int32(vectors))
			f.addTo(n, -4*int32(vectors))
		})
	}
	strip(4)
	strip(1)
	return f
}

// packTranspose packs rows of src, ld apart, into one panel: dst[k·width+r] =
// src[r·ld+k], four rows and four columns at a time; groups is rows/4, kc a
// multiple of 4.
//
//	packTranspose(dst, width, src, ld, groups, kc)
func packTranspose() *function {
	f := &function{name: "packTranspose", params: []byte{i32, i32, i32, i32, i32, i32}}
	dst, width, src, ld, groups, kc := local(0), local(1), local(2), local(3), local(4), local(5)
	for _, stride := range []local{width, ld} {
		f.get(stride)
		f.i(2)
		f.do(i32Shl)
		f.set(stride)
	}
	f.while(func() { f.get(groups) }, func() {
		var row [4]local
		for r := range row {
			row[r] = f.newLocal(i32)
			f.get(src)
			f.get(ld)
			f.i(int32(r))
			f.do(i32Mul, i32Add)
			f.set(row[r])
		}
		d, left := f.newLocal(i32), f.newLocal(i32)
		f.get(dst)
		f.set(d)
		f.get(kc)
		f.set(left)
		f.while(func() { f.get(left) }, func() {
			f.transpose4(row, d, width)
			f.addTo(left, -4)
		})
		f.addTo(dst, 16)
		f.get(src)
		f.get(ld)
		f.i(2)
		f.do(i32Shl, i32Add)
		f.set(src)
		f.addTo(groups, -1)
	})
	return f
}

// transpose4 transposes the 4×4 block at row into four places from d on.
func (f *function) transpose4(row [4]local, d, width local) {
	var x [4]local
	for r := range x {
		x[r] = f.newLocal(v128)
		f.get(row[r])
		f.load(0)
		f.set(x[r])
		f.addTo(row[r], 16)
	}
	pick := func(a, b local, lanes ...byte) local {
		return f.assign(a, b, func() { f.shuffle(lanes...) })
	}
	lo01, hi01 := pick(x[0], x[1], 0, 4, 1, 5), pick(x[0], x[1], 2, 6, 3, 7)
	lo23, hi23 := pick(x[2], x[3], 0, 4, 1, 5), pick(x[2], x[3], 2, 6, 3, 7)
	for _, v := range []local{pick(lo01, lo23, 0, 1, 4, 5), pick(lo01, lo23, 2, 3, 6, 7), pick(hi01, hi23, 0, 1, 4, 5), pick(hi01, hi23, 2, 3, 6, 7)} {
		f.get(d)
		f.get(v)
		f.store(0)
		f.advance(d, width)
	}
}
