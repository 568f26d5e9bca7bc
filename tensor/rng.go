package tensor

import (
	"math"
	"math/bits"
)

// RNG is a counter-based generator: value i of stream s under a seed is a pure
// function of (seed, s, i), so that initial weights do not depend on threads
// and a resumed run continues with one integer. The function is Philox4x32-10
// (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
type RNG struct {
	seed   uint64
	stream uint64
}

// NewRNG returns the generator of one stream under seed. Two streams of a
// seed are independent.
func NewRNG(seed, stream uint64) RNG { return RNG{seed, stream} }

// Block returns four independent uniform 32-bit values for counter i.
func (r RNG) Block(i uint64) [4]uint32 {
	c := [4]uint32{uint32(i), uint32(i >> 32), uint32(r.stream), uint32(r.stream >> 32)}
	k0, k1 := uint32(r.seed), uint32(r.seed>>32)
	for range 10 {
		p0 := uint64(c[0]) * 0xD2511F53
		p1 := uint64(c[2]) * 0xCD9E8D57
		c = [4]uint32{uint32(p1>>32) ^ c[1] ^ k0, uint32(p1), uint32(p0>>32) ^ c[3] ^ k1, uint32(p0)}
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return c
}

// Uint64 returns the uniform 64-bit value at counter i.
func (r RNG) Uint64(i uint64) uint64 {
	b := r.Block(i)
	return uint64(b[0]) | uint64(b[1])<<32
}

// Float64 returns the uniform value in [0, 1) at counter i, with 53 random bits.
func (r RNG) Float64(i uint64) float64 { return float64(r.Uint64(i)>>11) / (1 << 53) }

// Intn returns a uniform integer in [0, n) at counter i; n must be positive.
// The bias of the multiplication method is below n/2^64.
func (r RNG) Intn(i uint64, n int) int {
	b := r.Block(i)
	x := uint64(b[0]) | uint64(b[1])<<32
	hi, _ := bits.Mul64(x, uint64(n))
	return int(hi)
}

// Normal fills dst with draws from a normal distribution of mean 0 and the
// given standard deviation (Box–Muller in float64); dst[j] is value first+j of
// the stream, so any split of a tensor gives the same numbers.
func (r RNG) Normal(dst []float32, first uint64, std float64) {
	for j := range dst {
		i := first + uint64(j)
		b := r.Block(i / 2)
		u := (float64(b[0]) + 0.5) / (1 << 32)
		v := (float64(b[1]) + float64(b[2])/(1<<32)) / (1 << 32)
		s, c := math.Sincos(2 * math.Pi * v)
		if i%2 == 0 {
			s = c
		}
		dst[j] = float32(std * math.Sqrt(-2*math.Log(u)) * s)
	}
}
