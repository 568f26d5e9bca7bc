//go:build !js

package webgpu

import (
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// product256 runs a product that is large enough to be tuned for.
func product256(b *board) {
	b.t.Helper()
	dims := []int{256, 256}
	x := op.Of(b.buffer(tensor.F32, 1<<16), 0, dims...)
	y, z := op.Of(b.buffer(tensor.F32, 1<<16), 0, dims...), op.Of(b.buffer(tensor.F32, 1<<16), 0, dims...)
	b.r.MatMul(op.MatMul{A: x, B: y, C: z})
	if err := b.r.Sync(); err != nil {
		b.t.Fatal(err)
	}
}

// TestTunerKeepsItsChoice measures two tiles, and expects the next backend to
// take the choice from the disk without measuring, and no memory to be left.
func TestTunerKeepsItsChoice(t *testing.T) {
	t.Setenv("TEZGAH_CACHE", t.TempDir())
	t.Setenv(tuneVariable, "on")
	open := func() *board {
		b := newBoard(t, gpu.Options{})
		b.tuner.tiles = b.tuner.tiles[len(b.tuner.tiles)-2:]
		return b
	}
	first := open()
	before := first.users
	product256(first)
	if len(first.tuner.disk) != 1 || len(first.tuner.chosen) != 1 {
		t.Fatalf("after one product the tuner knows %v and %v", first.tuner.disk, first.tuner.chosen)
	}
	if got := first.users - before; got != 3 {
		t.Errorf("%d buffers are allocated after the product, want its 3", got)
	}
	second := open()
	for class, name := range first.tuner.disk {
		if second.tuner.disk[class] != name {
			t.Errorf("%s: the second backend read %q, want %q", class, second.tuner.disk[class], name)
		}
	}
	compiled := second.Compiled()
	product256(second)
	if got := second.Compiled() - compiled; got != 1 {
		t.Errorf("the second backend compiled %d kernels for the product, want 1", got)
	}
	for class, tile := range first.tuner.chosen {
		if second.tuner.chosen[class] != tile {
			t.Errorf("%v: first %v, then %v", class, tile, second.tuner.chosen[class])
		}
	}
}
