package kern

import "math"

// RMSNorm writes one row y = x·rms_inv·w with rms_inv = (mean x² + eps)^−½ (Zhang and Sennrich
// 2019) and returns rms_inv, which the backward pass needs. All rows are (C). y may be x.
func (k Kernels) RMSNorm(y, x, w []float32, eps float32) (rmsInv float32) {
	y, w = y[:len(x)], w[:len(x)]
	if len(x) == 0 {
		return 0
	}
	mean := float64(k.Dot(x, x)) / float64(len(x))
	rmsInv = float32(1 / math.Sqrt(mean+float64(eps)))
	for lo := 0; lo < len(x); lo += chunk {
		hi := min(len(x), lo+chunk)
		k.normApply(y[lo:hi], x[lo:hi], w[lo:hi], rmsInv)
	}
	return rmsInv
}

// RMSNormBackward undoes one row of RMSNorm. With A = Σ w·x·dy it computes
//
//	dx = w·dy·rms_inv − x·rms_inv³·A/C     written (=), or added (+=) if addDX
//	dw += x·rms_inv·dy                     always added, so that rows share one partial sum
//
// All rows are (C); a nil dw is not computed, and dx is the same to the bit. dx may be dy; it may not be x, w or dw.
func (k Kernels) RMSNormBackward(dx, dw, dy, x, w []float32, rmsInv float32, addDX bool) {
	n := len(x)
	dx, dy, w = dx[:n], dy[:n], w[:n]
	if n == 0 {
		return
	}
	var a float64
	for lo := 0; lo < n; lo += chunk {
		hi := min(n, lo+chunk)
		a += float64(k.dot3(w[lo:hi], x[lo:hi], dy[lo:hi]))
	}
	r := float64(rmsInv)
	coef := float32(r * r * r * a / float64(n))
	for lo := 0; lo < n; lo += chunk {
		hi := min(n, lo+chunk)
		if dw == nil {
			k.normBackwardDX(dx[lo:hi], dy[lo:hi], x[lo:hi], w[lo:hi], rmsInv, coef, addDX)
			continue
		}
		k.normBackward(dx[lo:hi], dw[lo:hi], dy[lo:hi], x[lo:hi], w[lo:hi], rmsInv, coef, addDX)
	}
}
