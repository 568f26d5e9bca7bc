//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"math/rand/v2"
	"testing"
)

// TestBlockGivesPiecesThatDoNotOverlap takes and releases pieces at random and
// compares the block with a map of its bytes.
func TestBlockGivesPiecesThatDoNotOverlap(t *testing.T) {
	const size = 4096
	b := &block{size: size, free: []span{{0, size}}}
	m := &allocator{}
	r := rand.New(rand.NewPCG(1, 2))
	var taken [size]bool
	var pieces []piece
	for range 5000 {
		if len(pieces) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(pieces))
			p := pieces[i]
			pieces = append(pieces[:i], pieces[i+1:]...)
			for k := p.off; k < p.off+p.size; k++ {
				taken[k] = false
			}
			if len(pieces) > 0 { // the last one would free the block
				m.release(p)
			} else {
				pieces = append(pieces, p)
				for k := p.off; k < p.off+p.size; k++ {
					taken[k] = true
				}
			}
			continue
		}
		align := uint64(1) << r.IntN(6)
		p, ok := b.take(uint64(1+r.IntN(300)), align)
		if !ok {
			continue
		}
		if p.off%align != 0 || p.off+p.size > size {
			t.Fatalf("piece %v with alignment %d in a block of %d", p.span, align, size)
		}
		for k := p.off; k < p.off+p.size; k++ {
			if taken[k] {
				t.Fatalf("byte %d was given twice", k)
			}
			taken[k] = true
		}
		pieces = append(pieces, p)
	}
	free, unused := uint64(0), uint64(0)
	for i, f := range b.free {
		free += f.size
		if i > 0 && b.free[i-1].off+b.free[i-1].size >= f.off {
			t.Errorf("free parts %v and %v touch or are out of order", b.free[i-1], f)
		}
	}
	for _, x := range taken {
		if !x {
			unused++
		}
	}
	if free != unused {
		t.Errorf("%d bytes are free, want %d", free, unused)
	}
}

func TestCacheFileOfAnotherDriverOrCutShortIsLeftAlone(t *testing.T) {
	key, other := [32]byte{1}, [32]byte{2}
	data := []byte("what a driver compiled")
	whole := wrap(data, key)
	if got := unwrap(whole, key); string(got) != string(data) {
		t.Fatalf("the cache came back as %q", got)
	}
	if unwrap(whole, other) != nil {
		t.Error("a cache of another driver was used")
	}
	for n := range whole {
		if unwrap(whole[:n], key) != nil {
			t.Errorf("a cache cut to %d of %d bytes was used", n, len(whole))
		}
	}
	for i := range whole {
		bad := append([]byte(nil), whole...)
		bad[i] ^= 0x40
		if unwrap(bad, key) != nil {
			t.Errorf("a cache with byte %d changed was used", i)
		}
	}
}
