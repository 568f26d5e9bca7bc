package ref

import (
	"math"

	"tezgah/op"
)

// RoPE rotates the pairs (i, i + D/2) of every head by the angle of its
// position:
//
//	x_i       ← x_i·cos − x_{i+D/2}·sin
//	x_{i+D/2} ← x_{i+D/2}·cos + x_i·sin
//
// in Out's place where that is present, and likewise those of X2. A rotation's
// transpose is its inverse, so the backward pass is the same with the angle negated.
func (r *Backend[T]) RoPE(a op.RoPE) error {
	first, second := a.Split()
	r.rotate(first)
	if second.X.Ok() {
		r.rotate(second)
	}
	return nil
}

func (r *Backend[T]) rotate(a op.RoPE) {
	if !a.Out.Ok() {
		a.Out = a.X
	}
	copy(r.float(a.Out), r.float(a.X))
	x, table := r.float(a.Out), r.float(a.Table)
	seqs, steps, heads, d := a.X.Dims[0], a.X.Dims[1], a.X.Dims[2], a.X.Dims[3]
	half := d / 2
	for b := range seqs {
		for t := range steps {
			angles := table[(a.Pos0+t)*d : (a.Pos0+t+1)*d]
			for h := range heads {
				head := x[((b*steps+t)*heads+h)*d:][:d]
				for i := range half {
					c, s := angles[i], angles[half+i]
					if a.Inverse {
						s = -s
					}
					lo, hi := head[i], head[half+i]
					head[i], head[half+i] = lo*c-hi*s, hi*c+lo*s
				}
			}
		}
	}
	r.store(a.Out)
}

// RoPETable returns the (P, D) table of positions 0 … P−1 for op.RoPE: the
// cosines of the D/2 angles p·base^(−2i/D), then their sines, from float64.
func RoPETable(positions, d int, base float64) []float32 {
	table := make([]float32, positions*d)
	for p := range positions {
		for i := range d / 2 {
			angle := float64(p) * math.Pow(base, -2*float64(i)/float64(d))
			table[p*d+i] = float32(math.Cos(angle))
			table[p*d+d/2+i] = float32(math.Sin(angle))
		}
	}
	return table
}
