package kern

// chunk is how many elements one call of an assembly loop handles at most. Assembly cannot be
// preempted; 64 Ki elements take well under a millisecond even from memory. Reductions add the
// chunks' partial results in order, in float64, so the order of a sum follows from its length.
const chunk = 1 << 16

// Scale sets dst[i] = x[i]·s. dst may be x.
func (k Kernels) Scale(dst, x []float32, s float32) {
	dst = dst[:len(x)]
	for len(x) > 0 {
		c := min(len(x), chunk)
		k.scale(dst[:c], x[:c], s)
		dst, x = dst[c:], x[c:]
	}
}

// Axpy adds: y[i] += alpha·x[i].
func (k Kernels) Axpy(y []float32, alpha float32, x []float32) {
	y = y[:len(x)]
	for len(x) > 0 {
		c := min(len(x), chunk)
		k.axpy(y[:c], alpha, x[:c])
		y, x = y[c:], x[c:]
	}
}

// Add sets dst[i] = a[i] + b[i]. dst may be a or b.
func (k Kernels) Add(dst, a, b []float32) {
	dst, b = dst[:len(a)], b[:len(a)]
	for len(a) > 0 {
		c := min(len(a), chunk)
		k.add(dst[:c], a[:c], b[:c])
		dst, a, b = dst[c:], a[c:], b[c:]
	}
}

// Mul sets dst[i] = a[i]·b[i]. dst may be a or b.
func (k Kernels) Mul(dst, a, b []float32) {
	dst, b = dst[:len(a)], b[:len(a)]
	for len(a) > 0 {
		c := min(len(a), chunk)
		k.mul(dst[:c], a[:c], b[:c])
		dst, a, b = dst[c:], a[c:], b[c:]
	}
}

// Dot returns Σ a[i]·b[i]: float32 lanes within a chunk, float64 between chunks.
func (k Kernels) Dot(a, b []float32) float32 {
	b = b[:len(a)]
	if len(a) <= chunk {
		if len(a) == 0 {
			return 0
		}
		return k.dot(a, b)
	}
	var s float64
	for len(a) > 0 {
		c := min(len(a), chunk)
		s += float64(k.dot(a[:c], b[:c]))
		a, b = a[c:], b[c:]
	}
	return float32(s)
}

// Sum returns Σ x[i], accumulated in float64.
func (k Kernels) Sum(x []float32) float64 {
	var s float64
	for len(x) > 0 {
		c := min(len(x), chunk)
		s += k.sum(x[:c])
		x = x[c:]
	}
	return s
}

// SumSq returns Σ x[i]² over the finite elements, accumulated in float64, and how many elements
// are not finite (NaN or ±Inf, told by their bits).
func (k Kernels) SumSq(x []float32) (sum float64, nonFinite int) {
	for len(x) > 0 {
		c := min(len(x), chunk)
		s, bad := k.sumSq(x[:c])
		sum += s
		nonFinite += bad
		x = x[c:]
	}
	return sum, nonFinite
}

// Max returns the largest element, −Inf for an empty slice. NaN elements may be passed over; in a
// softmax they come back through SumExp.
func (k Kernels) Max(x []float32) float32 {
	m := negInf
	for len(x) > 0 {
		c := min(len(x), chunk)
		if v := k.max(x[:c]); v > m {
			m = v
		}
		x = x[c:]
	}
	return m
}

// Exp sets dst[i] = e^x[i]. dst may be x. The relative error is at most 1.3e-7; results below the
// smallest normal number (x < −87.33) are 0, those above the largest are +Inf, NaN stays NaN.
func (k Kernels) Exp(dst, x []float32) { k.ExpAffine(dst, x, 0, 1, 0) }

// ExpAffine sets dst[i] = e^(x[i]−shift)·mul + add. dst may be x.
func (k Kernels) ExpAffine(dst, x []float32, shift, mul, add float32) {
	dst = dst[:len(x)]
	for len(x) > 0 {
		c := min(len(x), chunk)
		k.expAffine(dst[:c], x[:c], shift, mul, add)
		dst, x = dst[c:], x[c:]
	}
}

// SumExp sets dst[i] = e^(x[i]·scale−shift) and returns the sum of what it wrote: the middle step
// of a softmax (shift = scale·max), and its recomputation from a saved logsumexp (shift = lse). dst
// may be x. A row that is −Inf throughout gives NaN, so leave masked rows out.
func (k Kernels) SumExp(dst, x []float32, scale, shift float32) float32 {
	dst = dst[:len(x)]
	if len(x) <= chunk {
		if len(x) == 0 {
			return 0
		}
		return k.sumExp(dst, x, scale, shift)
	}
	var s float64
	for len(x) > 0 {
		c := min(len(x), chunk)
		s += float64(k.sumExp(dst[:c], x[:c], scale, shift))
		dst, x = dst[c:], x[c:]
	}
	return float32(s)
}

// SoftmaxGrad sets ds[i] = p[i]·(dp[i]−delta)·scale, the derivative of a softmax row with
// probabilities p and delta = Σ p·dp. ds may be p or dp.
func (k Kernels) SoftmaxGrad(ds, p, dp []float32, delta, scale float32) {
	ds, dp = ds[:len(p)], dp[:len(p)]
	for len(p) > 0 {
		c := min(len(p), chunk)
		k.softmaxGrad(ds[:c], p[:c], dp[:c], delta, scale)
		ds, p, dp = ds[c:], p[c:], dp[c:]
	}
}
