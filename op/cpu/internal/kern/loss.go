package kern

import "math"

// CrossEntropy is what a row of the loss depends on besides its logits.
type CrossEntropy struct {
	Smoothing float32 // α, label smoothing: the share of probability spread over all classes
	ZLoss     float32 // β, weight of lse² (PaLM, Chowdhery et al. 2022)
}

// LogSumExp returns log Σ e^l[i] and Σ l[i] of one row of logits (V). It is −Inf for an empty row;
// a NaN or +Inf logit gives NaN.
func (k Kernels) LogSumExp(l []float32) (lse float32, sum float64) {
	if len(l) == 0 {
		return negInf, 0
	}
	m := k.Max(l)
	var e float64
	for len(l) > 0 {
		c := min(len(l), chunk)
		pe, ps := k.sumExpSum(l[:c], m)
		e += float64(pe)
		sum += ps
		l = l[c:]
	}
	return float32(float64(m) + math.Log(e)), sum
}

// Loss returns one row's loss in nats, lse − (1−α)·l_t − α·mean(l) + β·lse², for logits l (V) and
// target t in [0, V).
func (ce CrossEntropy) Loss(k Kernels, l []float32, target int) float32 {
	lse, sum := k.LogSumExp(l)
	return ce.loss(lse, l[target], sum/float64(len(l)))
}

func (ce CrossEntropy) loss(lse, target float32, mean float64) float32 {
	z, a := float64(lse), float64(ce.Smoothing)
	return float32(z - (1-a)*float64(target) - a*mean + float64(ce.ZLoss)*z*z)
}

// LossGrad returns what Loss returns and overwrites the logits with their gradient,
// dl = [p − (1−α)·onehot − α/V + 2β·lse·p]·scale, where p is the softmax of l and scale is usually
// one over the number of counted targets.
func (ce CrossEntropy) LossGrad(k Kernels, l []float32, target int, scale float32) float32 {
	lse, sum := k.LogSumExp(l)
	v := float64(len(l))
	loss := ce.loss(lse, l[target], sum/v)
	s, a := float64(scale), float64(ce.Smoothing)
	mul := float32(s * (1 + 2*float64(ce.ZLoss)*float64(lse)))
	k.ExpAffine(l, l, lse, mul, float32(-s*a/v))
	l[target] -= float32(s * (1 - a))
	return loss
}
