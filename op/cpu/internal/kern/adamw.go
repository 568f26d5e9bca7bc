package kern

// AdamW holds one step's constants of the optimizer (Loshchilov and Hutter 2019, decoupled decay):
//
//	ĝ = g·clip;  m ← β1·m + (1−β1)·ĝ;  v ← β2·v + (1−β2)·ĝ²
//	w ← w − lr·((m/bias1) / (√(v/bias2) + eps) + wd·w)
//
// Subnormal moments become 0.
type AdamW struct {
	LR, Beta1, Beta2, Eps, WeightDecay float32
	Clip                               float32 // factor on the gradient; 1 means none
	Bias1, Bias2                       float32 // 1−β1ᵗ and 1−β2ᵗ of step t = 1, 2, …
	ZeroNonFinite                      bool    // take a NaN or Inf gradient as 0
}

// adamwArgs is the form in which the inner loops read the constants; the assembly knows its layout.
type adamwArgs struct {
	beta1, omb1 float32 // β1, 1−β1
	beta2, omb2 float32 // β2, 1−β2
	clip        float32
	step        float32 // lr/bias1
	invBias2    float32 // 1/bias2
	eps         float32
	decay       float32 // lr·wd
	zero        uint32  // all ones: replace non-finite gradients by 0
}

func (h *AdamW) args() adamwArgs {
	a := adamwArgs{
		beta1: h.Beta1, omb1: float32(1 - float64(h.Beta1)),
		beta2: h.Beta2, omb2: float32(1 - float64(h.Beta2)),
		clip:     h.Clip,
		step:     float32(float64(h.LR) / float64(h.Bias1)),
		invBias2: float32(1 / float64(h.Bias2)),
		eps:      h.Eps,
		decay:    float32(float64(h.LR) * float64(h.WeightDecay)),
	}
	if h.ZeroNonFinite {
		a.zero = ^uint32(0)
	}
	return a
}

// AdamW updates weights w and moments m and v from the gradient g. All have the same length.
func (k Kernels) AdamW(w, g, m, v []float32, h AdamW) {
	n := len(w)
	g, m, v = g[:n], m[:n], v[:n]
	a := h.args()
	for lo := 0; lo < n; lo += chunk {
		hi := min(n, lo+chunk)
		k.adamw(w[lo:hi], g[lo:hi], m[lo:hi], v[lo:hi], &a)
	}
}
