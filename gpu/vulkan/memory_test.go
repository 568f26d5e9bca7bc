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

func TestHazards(t *testing.T) {
	a, b := &Buffer{}, &Buffer{}
	read := func(x *Buffer, lo, hi uint64) access { return access{x, lo, hi, false} }
	write := func(x *Buffer, lo, hi uint64) access { return access{x, lo, hi, true} }
	for _, c := range []struct {
		what        string
		since, next []access
		want        bool
	}{
		{"nothing before", nil, []access{write(a, 0, 8)}, false},
		{"two reads", []access{read(a, 0, 8)}, []access{read(a, 0, 8)}, false},
		{"read after write", []access{write(a, 0, 8)}, []access{read(a, 4, 12)}, true},
		{"write after read", []access{read(a, 0, 8)}, []access{write(a, 7, 8)}, true},
		{"write after write", []access{write(a, 0, 8)}, []access{write(a, 0, 8)}, true},
		{"ranges that touch", []access{write(a, 0, 8)}, []access{write(a, 8, 16)}, false},
		{"another buffer", []access{write(a, 0, 8)}, []access{write(b, 0, 8)}, false},
		{"one of several", []access{write(b, 0, 4), write(a, 0, 8)}, []access{read(b, 8, 9), read(a, 1, 2)}, true},
	} {
		h := hazards{since: c.since}
		if got := h.conflicts(c.next); got != c.want {
			t.Errorf("%s: conflict %v, want %v", c.what, got, c.want)
		}
	}
	h := hazards{since: []access{write(a, 0, 8), read(b, 0, 8)}}
	h.forget(a)
	if h.conflicts([]access{write(a, 0, 8)}) || !h.conflicts([]access{write(b, 0, 8)}) {
		t.Error("forgetting a buffer must drop its accesses and no others")
	}
	h = hazards{since: make([]access, maxSince)}
	if !h.conflicts([]access{read(a, 0, 1)}) {
		t.Error("a full list must end in a barrier")
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
