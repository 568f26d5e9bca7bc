package kern

// SiluMul sets out[i] = silu(gate[i])·up[i] with silu(x) = x·σ(x) (SwiGLU; Shazeer 2020). out may
// be gate or up.
func (k Kernels) SiluMul(out, gate, up []float32) {
	out, up = out[:len(gate)], up[:len(gate)]
	for len(gate) > 0 {
		c := min(len(gate), chunk)
		k.siluMul(out[:c], gate[:c], up[:c])
		out, gate, up = out[c:], gate[c:], up[c:]
	}
}

// SiluMulBackward undoes SiluMul: it writes (=) dgate = dout·up·σ(g)·(1 + g·(1−σ(g))) and
// dup = dout·silu(g), where g is gate. dgate may be gate, dup may be up, either may be dout.
func (k Kernels) SiluMulBackward(dgate, dup, dout, gate, up []float32) {
	n := len(gate)
	dgate, dup, dout, up = dgate[:n], dup[:n], dout[:n], up[:n]
	for lo := 0; lo < n; lo += chunk {
		hi := min(n, lo+chunk)
		k.siluMulBackward(dgate[lo:hi], dup[lo:hi], dout[lo:hi], gate[lo:hi], up[lo:hi])
	}
}

// GeluMul sets out[i] = gelu(gate[i])·up[i] with the tanh form gelu(x) =
// ½x(1 + tanh(√(2/π)(x + 0.044715x³))) (Hendrycks and Gimpel 2016), computed as x·σ(2z), which is
// the same. out may be gate or up.
func (k Kernels) GeluMul(out, gate, up []float32) {
	out, up = out[:len(gate)], up[:len(gate)]
	for len(gate) > 0 {
		c := min(len(gate), chunk)
		k.geluMul(out[:c], gate[:c], up[:c])
		out, gate, up = out[c:], gate[c:], up[c:]
	}
}

// GeluMulBackward undoes GeluMul: it writes (=) dgate = dout·up·gelu'(gate) and
// dup = dout·gelu(gate). The same arguments may coincide as in SiluMulBackward.
func (k Kernels) GeluMulBackward(dgate, dup, dout, gate, up []float32) {
	n := len(gate)
	dgate, dup, dout, up = dgate[:n], dup[:n], dout[:n], up[:n]
	for lo := 0; lo < n; lo += chunk {
		hi := min(n, lo+chunk)
		k.geluMulBackward(dgate[lo:hi], dup[lo:hi], dout[lo:hi], gate[lo:hi], up[lo:hi])
	}
}
