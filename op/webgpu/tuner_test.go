package webgpu

import (
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
	"tezgah/op"
)

// TestTileIsFixed asks for a tile by environment and by option.
func TestTileIsFixed(t *testing.T) {
	const name = "32x32x16-4x4-b1-p1-u1"
	b := open(t, gpu.Options{}, Options{Tile: name})
	defer b.Close()
	if tile := b.tile(matmulForm{vec: true}, 4096, 4096, 4096); tile.String() != name {
		t.Errorf("got %v, want %s", tile, name)
	}
	d := gputest.Open(t, gpu.Options{})
	if _, err := New(d, Options{Tile: "1x1"}); err == nil || !strings.Contains(err.Error(), "have") {
		t.Errorf("an unknown tile: got %v, want an error that lists the tiles", err)
	}
	t.Setenv(tuneVariable, "sometimes")
	if _, err := New(d, Options{}); err == nil || !strings.Contains(err.Error(), "auto, off or on") {
		t.Errorf("%s=sometimes: got %v", tuneVariable, err)
	}
}

// TestLongProductsAreCut runs products whose work is above the budget of a
// dispatch: the pieces must give the same bits as the whole.
func TestLongProductsAreCut(t *testing.T) {
	result := func(o Options) []float32 {
		b := open(t, gpu.Options{}, o)
		defer b.Close()
		r := op.NewRunner(b)
		s := &stepBench{r: r, tb: t}
		a, w, c := s.f32(100, 36), s.f32(36, 44), s.f32(100, 44)
		s.random(a, 1, 1)
		s.random(w, 1, 2)
		r.MatMul(op.MatMul{A: a, B: w, C: c})
		q, k := s.f32(1, 70, 2, 8), s.f32(1, 70, 1, 8)
		s.random(q, 1, 3)
		s.random(k, 1, 4)
		out, lse := s.f32(1, 70, 2, 8), s.f32(1, 2, 70)
		r.Attention(op.Attention{Q: q, K: k, V: k, Out: out, LSE: lse, Scale: 0.3})
		var all []float32
		for _, x := range []op.Tensor{c, out, lse} {
			v := make([]float32, x.Len())
			if err := op.ReadSlice(r, v, x); err != nil {
				t.Fatal(err)
			}
			all = append(all, v...)
		}
		return all
	}
	whole, cut := result(Options{MaxDispatchFLOPs: 1e12}), result(Options{MaxDispatchFLOPs: 1})
	for i := range whole {
		if whole[i] != cut[i] {
			t.Fatalf("element %d is %v whole and %v in pieces", i, whole[i], cut[i])
		}
	}
}

// TestMeasure checks that the measurements give numbers, whatever they are.
func TestMeasure(t *testing.T) {
	b := newBoard(t, gpu.Options{})
	p, err := b.MeasurePeak()
	if err != nil || p.FLOPS <= 0 || p.BytesPerSec <= 0 || p.SubmitOverhead <= 0 {
		t.Errorf("peak %+v: %v", p, err)
	}
	rate, tile, err := b.MatMulRate(64, 48, 40, false, true, b.Limits().F16, "")
	if err != nil || rate <= 0 || tile.BM == 0 {
		t.Errorf("a product: %v FLOP/s with %v: %v", rate, tile, err)
	}
	if now, _ := b.MemoryBytes(); now != 0 {
		t.Errorf("%d bytes are left after measuring", now)
	}
}
