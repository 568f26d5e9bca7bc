package kern

import "math"

// The functions of this file and of portable_*.go are the portable level: the path of every machine
// without assembly, and the plain twin that the assembly is read against. They sum in float64, and
// where a product is added they round it explicitly (float64(a*b) + c), which keeps Go from fusing
// the two on arm64, so that the portable level gives the same bits on every machine.

var (
	negInf = float32(math.Inf(-1))
	posInf = float32(math.Inf(1))
)

func scalePortable(dst, x []float32, s float32) {
	for i, v := range x {
		dst[i] = v * s
	}
}

func axpyPortable(y []float32, alpha float32, x []float32) {
	for i, v := range x {
		y[i] += float32(alpha * v)
	}
}

func addPortable(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v + b[i]
	}
}

func mulPortable(dst, a, b []float32) {
	for i, v := range a {
		dst[i] = v * b[i]
	}
}

func dotPortable(a, b []float32) float32 {
	var s float64
	for i, v := range a {
		s += float64(float64(v) * float64(b[i]))
	}
	return float32(s)
}

func dot3Portable(a, b, c []float32) float32 {
	var s float64
	for i, v := range a {
		s += float64(float64(v*b[i]) * float64(c[i]))
	}
	return float32(s)
}

func sumPortable(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v)
	}
	return s
}

// isFinite tells by the exponent bits, as the GPU kernels do.
func isFinite(x float32) bool { return math.Float32bits(x)&0x7f800000 != 0x7f800000 }

func sumSqPortable(x []float32) (sum float64, nonFinite int) {
	for _, v := range x {
		if !isFinite(v) {
			nonFinite++
			continue
		}
		sum += float64(float64(v) * float64(v))
	}
	return sum, nonFinite
}

func maxPortable(x []float32) float32 {
	m := negInf
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

func softmaxGradPortable(ds, p, dp []float32, delta, scale float32) {
	for i, v := range p {
		ds[i] = v * (dp[i] - delta) * scale
	}
}

func normApplyPortable(y, x, w []float32, r float32) {
	for i, v := range x {
		y[i] = v * r * w[i]
	}
}

func normBackwardPortable(dx, dw, dy, x, w []float32, r, coef float32, addDX bool) {
	for i, d := range dy {
		g := float32(w[i]*d*r) - float32(x[i]*coef)
		if addDX {
			g += dx[i]
		}
		dw[i] += float32(x[i] * r * d)
		dx[i] = g
	}
}

func normBackwardDXPortable(dx, dy, x, w []float32, r, coef float32, addDX bool) {
	for i, d := range dy {
		g := float32(w[i]*d*r) - float32(x[i]*coef)
		if addDX {
			g += dx[i]
		}
		dx[i] = g
	}
}

func ropePortable(x1, x2, cos, sin []float32, sign float32) {
	for i, c := range cos {
		s := sin[i] * sign
		a, b := x1[i], x2[i]
		x1[i] = float32(a*c) - float32(b*s)
		x2[i] = float32(b*c) + float32(a*s)
	}
}

func adamwPortable(w, g, m, v []float32, h *adamwArgs) {
	for i := range w {
		w[i], m[i], v[i] = h.update(w[i], g[i], m[i], v[i])
	}
}

// update is AdamW for one element.
func (h *adamwArgs) update(w, g, m, v float32) (w1, m1, v1 float32) {
	if h.zero != 0 && !isFinite(g) {
		g = 0
	}
	g *= h.clip
	m1 = float32(h.beta1*m) + float32(h.omb1*g)
	v1 = float32(h.beta2*v) + float32(h.omb2*float32(g*g))
	m1, v1 = flush(m1), flush(v1)
	denom := float32(math.Sqrt(float64(v1*h.invBias2))) + h.eps
	w1 = (w - float32(h.decay*w)) - float32(h.step*(m1/denom))
	return w1, m1, v1
}

// flush makes a subnormal number 0, as the assembly does.
func flush(x float32) float32 {
	if math.Float32bits(x)&0x7f800000 == 0 {
		return 0
	}
	return x
}
