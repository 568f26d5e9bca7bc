package ref

import "tezgah/op"

// RMSNorm is, row by row, y = x·rms_inv·w with rms_inv = (mean x² + eps)^−½.
func (r *Backend[T]) RMSNorm(a op.RMSNorm) error {
	w, rms, c := r.float(a.W), r.float(a.RMSInv), a.X.Cols()
	for n := range rms {
		x, y := r.float(a.X)[n*c:(n+1)*c], r.float(a.Y)[n*c:(n+1)*c]
		var ss T
		for i := range c {
			ss += x[i] * x[i]
		}
		rms[n] = 1 / sqrt(ss/T(c)+T(a.Eps))
		for i := range c {
			y[i] = x[i] * rms[n] * w[i]
		}
	}
	r.store(a.Y)
	return nil
}

// RMSNormBackward undoes RMSNorm. From y_i = x_i·r·w_i and
// ∂r/∂x_i = −r³·x_i/C follows, with A = Σ w·x·dy,
//
//	dx_i = w_i·dy_i·r − x_i·r³·A/C
//	dw_i += Σ_rows x_i·r·dy_i   where DW is present
//
// and dx is copied to DXCopy where that is present.
func (r *Backend[T]) RMSNormBackward(a op.RMSNormBackward) error {
	w, rms, c := r.float(a.W), r.float(a.RMSInv), a.X.Cols()
	dw := make([]T, c)
	if a.DW.Ok() {
		dw = r.float(a.DW)
	}
	for n, s := range rms {
		x, dy, dx := r.float(a.X)[n*c:(n+1)*c], r.float(a.DY)[n*c:(n+1)*c], r.float(a.DX)[n*c:(n+1)*c]
		var sum T
		for i := range c {
			sum += w[i] * x[i] * dy[i]
		}
		for i := range c {
			g := dy[i] // read first: dx may be dy's memory
			dw[i] += x[i] * s * g
			d := w[i]*g*s - x[i]*s*s*s*sum/T(c)
			if a.AddDX {
				d += dx[i]
			}
			dx[i] = d
		}
	}
	if a.DXCopy.Ok() {
		copy(r.float(a.DXCopy), r.float(a.DX))
		r.store(a.DXCopy)
	}
	return nil
}
