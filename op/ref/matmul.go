package ref

import "tezgah/op"

// MatMul is C[i,j] = Σ_k op(A)[i,k]·op(B)[k,j], plus what C held with Acc, plus
// Residual when present, of inputs rounded as RoundProducts says. The gradients of the forward form are the other two:
// dA = dC·Bᵀ (TransB) and dB = Aᵀ·dC (TransA).
func (r *Backend[T]) MatMul(a op.MatMul) error {
	m, n, k := a.Sizes()
	x, y, out := r.rounded(a.A), r.rounded(a.B), r.float(a.C)
	ai, ak := k, 1 // strides of A over i and k
	if a.TransA {
		ai, ak = 1, m
	}
	bk, bj := n, 1 // strides of B over k and j
	if a.TransB {
		bk, bj = 1, k
	}
	for i := range m {
		for j := range n {
			var s T
			for l := range k {
				s += x[i*ai+l*ak] * y[l*bk+j*bj]
			}
			if a.Acc {
				s += out[i*n+j]
			}
			if a.Residual.Ok() {
				s += r.float(a.Residual)[i*n+j]
			}
			out[i*n+j] = s
		}
	}
	r.store(a.C)
	return nil
}
