package ref

import (
	"math"

	"tezgah/op"
)

// GLU is Out = act(Gate)·Up.
func (r *Backend[T]) GLU(a op.GLU) error {
	gate, up, out := r.float(a.Gate), r.float(a.Up), r.float(a.Out)
	for i, g := range gate {
		act, _ := activation(a.Act, g)
		out[i] = act * up[i]
	}
	r.store(a.Out)
	return nil
}

// GLUBackward undoes GLU: DUp = DOut·act(Gate), DGate = DOut·Up·act'(Gate).
func (r *Backend[T]) GLUBackward(a op.GLUBackward) error {
	gate, up, dout := r.float(a.Gate), r.float(a.Up), r.float(a.DOut)
	dgate, dup := r.float(a.DGate), r.float(a.DUp)
	for i, g := range gate {
		act, slope := activation(a.Act, g)
		d := dout[i] // read first: either output may be dout's memory
		dgate[i], dup[i] = d*up[i]*slope, d*act
	}
	r.store(a.DGate)
	r.store(a.DUp)
	return nil
}

// activation returns act(x) and act'(x).
//
//	silu(x) = x·σ(x)               silu'(x) = σ·(1 + x·(1 − σ))
//	gelu(x) = ½x·(1 + tanh z)      gelu'(x) = ½(1 + tanh z) + ½x·(1 − tanh² z)·z'
//	z = √(2/π)·(x + 0.044715·x³)   z' = √(2/π)·(1 + 3·0.044715·x²)
func activation[T Float](act op.Activation, x T) (y, slope T) {
	if act == op.SiLU {
		s := 1 / (1 + exp(-x))
		return x * s, s * (1 + x*(1-s))
	}
	c := T(math.Sqrt(2 / math.Pi))
	t := tanh(c * (x + 0.044715*x*x*x))
	return x * (1 + t) / 2, (1+t)/2 + x/2*(1-t*t)*c*(1+3*0.044715*x*x)
}
