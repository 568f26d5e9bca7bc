package optest

import (
	"fmt"

	"tezgah/op"
	"tezgah/tensor"
)

// matrixCases are products on matrix units (op.Rounder). Their inputs are drawn
// so that rounding changes nothing; what is left are the sums, which are float32
// as in any other product.
func matrixCases() []Case {
	sizes := [][3]int{{64, 64, 32}, {33, 70, 45}, {128, 96, 160}, {40, 200, 1100}}
	var cs []Case
	for _, t := range []tensor.DType{tensor.BF16, tensor.F16} {
		for _, z := range sizes {
			for _, f := range matmulForms()[:10] {
				c := matmulCase(z, f, 1, false)
				c.Name = fmt.Sprintf("%s %v units", c.Name, t)
				c.Op, c.Round = fmt.Sprintf("%s %v units", c.Op, t), t
				cs = append(cs, c)
			}
		}
	}
	return cs
}

// rounder returns the backend's matrix units when they round to t.
func rounder(b op.Backend, t tensor.DType) (op.Rounder, bool) {
	r, ok := b.(op.Rounder)
	if !ok {
		return nil, false
	}
	for _, has := range r.Rounding() {
		if has == t {
			return r, true
		}
	}
	return nil, false
}

// rounded rounds v to t in place.
func rounded(v []float32, t tensor.DType) []float32 {
	for i, x := range v {
		v[i] = roundTo(t, x)
	}
	return v
}
