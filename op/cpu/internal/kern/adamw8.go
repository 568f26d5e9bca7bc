package kern

import "fmt"

// BlockSize is the number of 8-bit moments that share one scale.
const BlockSize = 256

// Blocks returns how many scales n 8-bit moments need.
func Blocks(n int) int { return (n + BlockSize - 1) / BlockSize }

// AdamW8 is Kernels.AdamW with both moments held in 8 bits: 2.03 bytes a parameter instead of 8
// (after Dettmers et al. 2021, with linear codes).
//
// Block b covers elements [256b, 256b+256). With its two scales,
//
//	m = m8·mScale          m8 in −127…127, mScale = max|m| / 127
//	√v = v8·vScale         v8 in 0…255,    vScale = max √v / 255
//
// so v is kept through its root, which is what the update divides by and needs half the range. A
// block whose values are all zero has scale 0. Codes are rounded at random, up with probability
// equal to the fraction, because rounding to nearest would leave small moments where they are: β1
// times 4 is 3.6, which is 4 again. The random bits are a hash of the element's new weight and
// moment, so the result depends on the data alone. A v above 0 never gets code 0, which would let
// its weight jump by m/eps.
//
// m8 and v8 are as long as w and g; mScale and vScale have Blocks(len(w)) elements. A caller that
// cuts a tensor in pieces must cut at multiples of BlockSize.
func (k Kernels) AdamW8(w, g []float32, m8 []int8, v8 []uint8, mScale, vScale []float32, h AdamW) {
	n := len(w)
	g, m8, v8 = g[:n], m8[:n], v8[:n]
	if len(mScale) < Blocks(n) || len(vScale) < Blocks(n) {
		panic(fmt.Sprintf("adamw8: %d and %d scales, want %d for %d weights in blocks of %d",
			len(mScale), len(vScale), Blocks(n), n, BlockSize))
	}
	a := h.args()
	var m, v [BlockSize]float32
	for b := 0; b*BlockSize < n; b++ {
		lo := b * BlockSize
		hi := min(n, lo+BlockSize)
		k.adamw8(w[lo:hi], g[lo:hi], m8[lo:hi], v8[lo:hi], &mScale[b], &vScale[b], &a, &m, &v)
	}
}
