package corpus

// mix64 is the finalizer of SplitMix64 (Steele, Lea and Flood 2014): a bijection of 64-bit words in which every input
// bit changes about half of the output bits.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// permutation is a pseudo-random order of the numbers below n that needs no table: a Feistel network over the smallest
// even number of bits that holds n, applied again while its result is not below n ("cycle walking", Black and Rogaway
// 2002). At most three of four results are thrown away, so it takes four rounds of the network on average at worst.
type permutation struct {
	n    uint64
	half uint // bits of each half
	mask uint64
	keys [6]uint64
}

func newPermutation(n uint64, seed, stream uint64) permutation {
	p := permutation{n: n, half: 1}
	for p.half < 32 && uint64(1)<<(2*p.half) < n {
		p.half++
	}
	p.mask = 1<<p.half - 1
	key := mix64(mix64(seed) ^ stream)
	for i := range p.keys {
		key = mix64(key)
		p.keys[i] = key
	}
	return p
}

// at returns the number at place i < n of the order.
func (p *permutation) at(i uint64) uint64 {
	for {
		left, right := i>>p.half, i&p.mask
		for _, key := range p.keys {
			left, right = right, left^mix64(right^key)&p.mask
		}
		if i = left<<p.half | right; i < p.n {
			return i
		}
	}
}
