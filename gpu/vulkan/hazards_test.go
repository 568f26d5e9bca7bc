//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"math/rand/v2"
	"testing"
)

func reads(x *Buffer, off, end uint64) access  { return access{x, off, end, false} }
func writes(x *Buffer, off, end uint64) access { return access{x, off, end, true} }

func TestHazards(t *testing.T) {
	for _, c := range []struct {
		what        string
		since, next func(a, b *Buffer) []access
		want        bool
	}{
		{"nothing before", func(a, b *Buffer) []access { return nil }, func(a, b *Buffer) []access { return []access{writes(a, 0, 8)} }, false},
		{"two reads", func(a, b *Buffer) []access { return []access{reads(a, 0, 8)} }, func(a, b *Buffer) []access { return []access{reads(a, 0, 8)} }, false},
		{"read after write", func(a, b *Buffer) []access { return []access{writes(a, 0, 8)} }, func(a, b *Buffer) []access { return []access{reads(a, 4, 12)} }, true},
		{"write after read", func(a, b *Buffer) []access { return []access{reads(a, 0, 8)} }, func(a, b *Buffer) []access { return []access{writes(a, 7, 8)} }, true},
		{"write after write", func(a, b *Buffer) []access { return []access{writes(a, 0, 8)} }, func(a, b *Buffer) []access { return []access{writes(a, 0, 8)} }, true},
		{"ranges that touch", func(a, b *Buffer) []access { return []access{writes(a, 0, 8)} }, func(a, b *Buffer) []access { return []access{writes(a, 8, 16)} }, false},
		{"another buffer", func(a, b *Buffer) []access { return []access{writes(a, 0, 8)} }, func(a, b *Buffer) []access { return []access{writes(b, 0, 8)} }, false},
		{"one of several", func(a, b *Buffer) []access { return []access{writes(b, 0, 4), writes(a, 0, 8)} },
			func(a, b *Buffer) []access { return []access{reads(b, 8, 9), reads(a, 1, 2)} }, true},
	} {
		var h hazards
		a, b := &Buffer{}, &Buffer{}
		if h.order(c.since(a, b)) {
			t.Errorf("%s: the first command waits", c.what)
		}
		if got := h.order(c.next(a, b)); got != c.want {
			t.Errorf("%s: waits %v, want %v", c.what, got, c.want)
		}
		if h.order(c.next(a, b)) != (c.next(a, b)[0].write) {
			t.Errorf("%s: the same once more must wait if it writes", c.what)
		}
	}
	var h hazards
	h.order([]access{reads(&Buffer{}, 0, 1)})
	h.lost = true
	if !h.order(nil) || h.order(nil) {
		t.Error("the first command after lost ones must wait, and no other")
	}
}

// TestHazardsLikeAList compares with a plain list of the accesses since the last
// barrier, on many random commands over a few buffers.
func TestHazardsLikeAList(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var h hazards
	buffers := []*Buffer{{}, {}, {}, {}}
	var since []access
	waits := 0
	for i := range 20_000 {
		var next []access
		for range 1 + r.IntN(4) {
			off := uint64(r.IntN(60))
			next = append(next, access{buffers[r.IntN(len(buffers))], off, off + 1 + uint64(r.IntN(6)), r.IntN(8) == 0})
		}
		want := false
		for _, n := range next {
			for _, s := range since {
				want = want || s.buffer == n.buffer && (s.write || n.write) && s.off < n.end && n.off < s.end
			}
		}
		if got := h.order(append([]access(nil), next...)); got != want {
			t.Fatalf("command %d, %v after %v: waits %v, want %v", i, next, since, got, want)
		}
		if want {
			since, waits = since[:0], waits+1
		}
		since = append(since, next...)
	}
	if waits < 1000 || waits > 19_000 {
		t.Fatalf("%d of 20000 commands wait: the test tests little", waits)
	}
}

// TestManyUses goes past what a buffer remembers exactly: a read then may make a
// write wait that need not, never the other way round.
func TestManyUses(t *testing.T) {
	for _, order := range []func(i uint64) uint64{
		func(i uint64) uint64 { return i }, func(i uint64) uint64 { return 1000 - i }, func(i uint64) uint64 { return i * 37 % 1001 },
	} {
		for probe := range uint64(3 * maxUses) {
			var h hazards
			x := &Buffer{}
			for i := range uint64(3 * maxUses) {
				if h.order([]access{reads(x, 4*order(i), 4*order(i)+4)}) {
					t.Fatal("a read waits for reads")
				}
			}
			if !h.order([]access{writes(x, 4*order(probe)+3, 4*order(probe)+4)}) {
				t.Fatalf("a write does not wait for read %d of many", probe)
			}
		}
	}
	var h hazards
	x := &Buffer{}
	for i := range uint64(maxUses) {
		if h.order([]access{writes(x, 4*i, 4*i+4)}) {
			t.Fatal("writes of different ranges wait")
		}
	}
	if !h.order([]access{writes(x, 4*maxUses, 4*maxUses+4)}) {
		t.Error("a full list of writes must end in a barrier")
	}
}
