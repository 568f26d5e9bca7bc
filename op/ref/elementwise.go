package ref

import (
	"tezgah/op"
	"tezgah/tensor"
)

// Zero clears x.
func (r *Backend[T]) Zero(x op.Tensor) error {
	switch x.Type() {
	case tensor.I32:
		clear(r.int32(x))
	case tensor.I8:
		clear(r.int8(x))
	default:
		clear(r.float(x))
	}
	return nil
}

// Copy copies src to dst.
func (r *Backend[T]) Copy(dst, src op.Tensor) error {
	switch src.Type() {
	case tensor.I32:
		copy(r.int32(dst), r.int32(src))
	case tensor.I8:
		copy(r.int8(dst), r.int8(src))
	default:
		copy(r.float(dst), r.float(src))
	}
	return nil
}

// Add is Dst += Src.
func (r *Backend[T]) Add(a op.Add) error {
	dst := r.float(a.Dst)
	for i, v := range r.float(a.Src) {
		dst[i] += v
	}
	return nil
}

// Scale is Dst = Factor·Src.
func (r *Backend[T]) Scale(a op.Scale) error {
	dst := r.float(a.Dst)
	for i, v := range r.float(a.Src) {
		dst[i] = T(a.Factor) * v
	}
	return nil
}

// Cast converts between F32 and F16, which saturates, or BF16.
func (r *Backend[T]) Cast(a op.Cast) error {
	dst := r.float(a.Dst)
	for i, v := range r.float(a.Src) {
		dst[i] = cast16(a.Dst.Type(), v)
	}
	return nil
}

// Sum is Out[0] = Scale·ΣX, or += with Acc.
func (r *Backend[T]) Sum(a op.Sum) error {
	var s T
	for _, v := range r.float(a.X) {
		s += v
	}
	out := r.float(a.Out)
	if !a.Acc {
		out[0] = 0
	}
	out[0] += T(a.Scale) * s
	return nil
}
