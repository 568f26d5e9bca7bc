package kern

// Rope rotates, in place, every head of one position's row x (heads, D) by the angles whose cosines
// and sines are given (D/2), pairing i with i + D/2 (Su et al. 2021, in Hugging Face's half-split
// form):
//
//	x[i]     ← x[i]·cos[i] − x[i+D/2]·sin[i]
//	x[i+D/2] ← x[i+D/2]·cos[i] + x[i]·sin[i]
//
// inverse rotates the other way, which is the backward pass. D is 2·len(cos); a remainder of x
// shorter than a head is left alone.
func (k Kernels) Rope(x, cos, sin []float32, inverse bool) {
	half := len(cos)
	sin = sin[:half]
	if half == 0 {
		return
	}
	sign := float32(1)
	if inverse {
		sign = -1
	}
	for d := 2 * half; len(x) >= d; x = x[d:] {
		k.rope(x[:half], x[half:d], cos, sin, sign)
	}
}
