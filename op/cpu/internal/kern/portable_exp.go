package kern

import "math"

// Bounds of the exponential: below expLow the result is 0, because it would not be a normal number;
// above expHigh it is +Inf. The assembly has the same bounds.
const (
	expLow  = -87.33
	expHigh = 88.722839
)

// expf is e^x to about 0.5 units in the last place: x = n·ln 2 + r with |r| ≤ ½ ln 2, a polynomial
// in r, and 2ⁿ put into the exponent. It works in float64, which costs a scalar machine nothing.
func expf(x float32) float32 {
	switch {
	case x < expLow:
		return 0
	case x > expHigh:
		return posInf
	case x != x:
		return x
	}
	t := float64(x) * math.Log2E
	n := int(t + 1024.5) // 1024.5 makes the truncation a rounding to nearest
	r := (t - float64(n-1024)) * math.Ln2
	p := 1.0 / 5040
	p = float64(p*r) + 1.0/720
	p = float64(p*r) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 0.5
	p = float64(p*r) + 1
	p = float64(p*r) + 1
	return float32(p * math.Float64frombits(uint64(n-1)<<52))
}

func expAffinePortable(dst, x []float32, shift, mul, add float32) {
	for i, v := range x {
		dst[i] = float32(expf(v-shift)*mul) + add
	}
}

func sumExpPortable(dst, x []float32, scale, shift float32) float32 {
	var s float64
	for i, v := range x {
		e := expf(float32(v*scale) - shift)
		dst[i] = e
		s += float64(e)
	}
	return float32(s)
}

func sumExpSumPortable(x []float32, m float32) (float32, float64) {
	var e, s float64
	for _, v := range x {
		e += float64(expf(v - m))
		s += float64(v)
	}
	return float32(e), s
}

func sigmoid(x float32) float32 { return 1 / (1 + expf(-x)) }

func siluMulPortable(out, g, u []float32) {
	for i, x := range g {
		out[i] = x * sigmoid(x) * u[i]
	}
}

func siluMulBackwardPortable(dg, du, dout, g, u []float32) {
	for i, x := range g {
		s := sigmoid(x)
		d, up := dout[i], u[i]
		du[i] = d * (x * s)
		dg[i] = d * up * (s * (1 + float32(x*(1-s))))
	}
}

// Constants of the tanh form of GELU, folded for σ: gelu(x) = x·σ(x·(geluA + geluB·x²)), where
// geluA = 2√(2/π) and geluB = 0.044715·geluA. Arguments are clamped to ±geluClamp, where σ is 0 or 1
// to the last bit, so that powers of huge x cannot overflow.
const (
	geluA     = 1.5957691216057308
	geluB     = 0.07135481282687
	geluClamp = 20
)

// geluSigmoid returns σ(2z) and x·d(2z)/dx for GELU's argument x.
func geluSigmoid(x float32) (s, xdz float32) {
	c := x
	if c > geluClamp {
		c = geluClamp
	} else if c < -geluClamp {
		c = -geluClamp
	}
	q := float32(geluB * float32(c*c))
	return sigmoid(c * (geluA + q)), c * (geluA + float32(3*q))
}

func geluMulPortable(out, g, u []float32) {
	for i, x := range g {
		s, _ := geluSigmoid(x)
		out[i] = x * s * u[i]
	}
}

func geluMulBackwardPortable(dg, du, dout, g, u []float32) {
	for i, x := range g {
		s, xdz := geluSigmoid(x)
		d, up := dout[i], u[i]
		du[i] = d * (x * s)
		dg[i] = d * up * (s * (1 + float32(xdz*(1-s))))
	}
}
