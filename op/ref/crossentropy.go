package ref

import "tezgah/op"

// CrossEntropy computes each row's loss and, with Grad, the gradients of the logits
// l, in their place where DLogits is absent. With lse = log Σ exp l, p = exp(l − lse), target t:
//
//	loss = lse − (1−α)·l_t − α·mean(l) + β·lse²
//	dl   = [p − (1−α)·onehot − α/V + 2β·lse·p]·GradScale
//
// because ∂lse/∂l = p. A row whose target is Ignore has loss and gradient 0.
func (r *Backend[T]) CrossEntropy(a op.CrossEntropy) error {
	if a.Grad && !a.DLogits.Ok() {
		a.DLogits = a.Logits
	}
	loss, v := r.float(a.Loss), a.Logits.Cols()
	alpha, beta := T(a.LabelSmoothing), T(a.ZLoss)
	for n, target := range r.int32(a.Targets) {
		l := r.float(a.Logits)[n*v : (n+1)*v]
		if target == a.Ignore {
			loss[n] = 0
			if a.Grad {
				clear(r.float(a.DLogits)[n*v : (n+1)*v])
			}
			continue
		}
		if err := inVocabulary("target", n, target, v); err != nil {
			return err
		}
		lse := logSumExp(l)
		var mean T
		for _, x := range l {
			mean += x / T(v)
		}
		loss[n] = lse - (1-alpha)*l[target] - alpha*mean + beta*lse*lse
		if !a.Grad {
			continue
		}
		dl := r.float(a.DLogits)[n*v : (n+1)*v]
		for i, x := range l {
			p := exp(x - lse)
			d := p - alpha/T(v) + 2*beta*lse*p
			if i == int(target) {
				d -= 1 - alpha
			}
			dl[i] = d * T(a.GradScale)
		}
	}
	if a.Grad {
		r.store(a.DLogits)
	}
	return nil
}
