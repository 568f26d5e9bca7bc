package optest

import (
	"fmt"
	"math"

	"tezgah/op"
	"tezgah/tensor"
)

func elementwiseCases() []Case {
	var cs []Case
	for _, n := range []int{1, 257, 5000} {
		cs = append(cs,
			Case{Name: fmt.Sprintf("zero/%d", n), Op: "zero", body: func(e *env) { zeroCase(e, n) }},
			Case{Name: fmt.Sprintf("copy/%d", n), Op: "copy", body: func(e *env) { copyCase(e, n) }},
			Case{Name: fmt.Sprintf("add/%d", n), Op: "add", body: func(e *env) { addCase(e, n) }},
			Case{Name: fmt.Sprintf("scale/%d", n), Op: "scale", body: func(e *env) { scaleCase(e, n) }})
	}
	for _, n := range []int{1, 2, 255, 256, 257, 4099, 100003} {
		for _, acc := range []bool{false, true} {
			cs = append(cs, Case{Name: fmt.Sprintf("sum/%d acc=%t", n, acc), Op: "sum",
				body: func(e *env) { sumCase(e, n, acc) }})
		}
	}
	return append(cs,
		Case{Name: "cast/to f16", Op: "cast_f32_to_f16", F16: true, body: castToHalf},
		Case{Name: "cast/to f16 subnormal", Op: "cast_f32_to_f16", F16: true, body: castToHalfSubnormal},
		Case{Name: "cast/from f16", Op: "cast_f16_to_f32", F16: true, body: castFromHalf})
}

func zeroCase(e *env, n int) {
	x := e.out("x", n)
	e.run(func(s side) { s.Zero(s.t(x)) })
	e.exact(x)
}

func copyCase(e *env, n int) {
	src, dst := e.in("src", e.normal(1, n), n), e.out("dst", n)
	e.run(func(s side) { s.Copy(s.t(dst), s.t(src)) })
	e.exact(dst)
}

func addCase(e *env, n int) {
	src, dst := e.in("src", e.normal(1e3, n), n), e.acc("dst", e.normal(1, n), n)
	e.run(func(s side) { s.Add(op.Add{Dst: s.t(dst), Src: s.t(src)}) })
	want := e.want(dst)
	e.compare(dst, func(i int) float64 { return ulp*abs(want[i]) + tiny })
}

func scaleCase(e *env, n int) {
	src, dst := e.in("src", e.normal(1e3, n), n), e.out("dst", n)
	e.run(func(s side) { s.Scale(op.Scale{Dst: s.t(dst), Src: s.t(src), Factor: -1.7}) })
	want := e.want(dst)
	e.compare(dst, func(i int) float64 { return ulp*abs(want[i]) + tiny })
}

func sumCase(e *env, n int, acc bool) {
	v := e.normal(1, n)
	x, out := e.in("x", v, n), e.acc("out", []float32{3}, 1)
	if !acc {
		out = e.out("out", 1)
	}
	e.run(func(s side) { s.Sum(op.Sum{X: s.t(x), Out: s.t(out), Scale: 0.37, Acc: acc}) })
	mag := 3.0
	for _, f := range v {
		mag += 0.37 * abs(float64(f))
	}
	e.compare(out, func(int) float64 { return mag * (sumErr(n) + 4*unit) })
}

// castToHalf has values at every edge of float16: saturation (infinities
// included), ties to even, both zeros, NaN of either sign.
func castToHalf(e *env) {
	v := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 65504, -65504, 65519.996, 65520, 65536, -1e6, 3e38, -3e38,
		float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), math.Float32frombits(0xffc12345),
		math.Float32frombits(0x7f800001), 1 + 1.0/2048, 1 + 3.0/2048, 2049, 2051, 0x1p-14, 0x1.ffep-14, 0x1.fffp-14}
	v = append(v, e.normal(1, 500)...)
	v = append(v, e.normal(1e5, 500)...)
	castExact(e, v)
}

// castToHalfSubnormal has the results below 2^−14, in steps of 2^−24: a mirror
// that flushed them would lose small weights.
func castToHalfSubnormal(e *env) {
	v := []float32{0x1p-24, -0x1p-24, 0x1p-25, 0x1.000002p-25, 0x1.8p-24, 0x1p-15, 0x1.ffcp-15, 0x1.ffep-15, 0x1.fffp-15, 1e-30}
	castExact(e, append(v, e.normal(1e-5, 300)...))
}

func castExact(e *env, v []float32) {
	n := len(v)
	src, dst := e.in("src", v, n), e.out16("dst", n)
	e.run(func(s side) { s.Cast(op.Cast{Dst: s.t(dst), Src: s.t(src)}) })
	e.exact(dst)
}

// castFromHalf converts every float16 there is, but for the payloads of NaN.
func castFromHalf(e *env) {
	const n = 1 << 16
	bits := make([]uint16, n)
	for i := range bits {
		bits[i] = uint16(i)
		if i&0x7fff > 0x7c00 {
			bits[i] = uint16(i)&0x8000 | 0x7e00
		}
	}
	src, dst := e.add("src", tensor.F16, input, tensor.Bytes(bits), []int{n}), e.out("dst", n)
	e.run(func(s side) { s.Cast(op.Cast{Dst: s.t(dst), Src: s.t(src)}) })
	e.exact(dst)
}
