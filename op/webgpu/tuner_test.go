package webgpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
	"tezgah/op"
	"tezgah/tensor"
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

// TestRefusedKernels acts as if the driver's compiler had refused kernels: the
// backend goes on with what is left, and says so.
func TestRefusedKernels(t *testing.T) {
	b := newBoard(t, gpu.Options{})
	refused := &gpu.ShaderError{Kernel: "matmul", Driver: "some driver", Message: "too many registers"}
	for len(b.tuner.tiles) > 1 {
		tile := b.tile(matmulForm{vec: true}, 4096, 4096, 4096)
		if !b.dropTile(tile, fmt.Errorf("matmul: %w", refused)) {
			t.Fatalf("%v is not dropped", tile)
		}
		if slices.Contains(b.tuner.tiles, tile) || !strings.Contains(b.Notice(), tile.String()) {
			t.Fatalf("after %v was refused: tiles %v, notice %q", tile, b.tuner.tiles, b.Notice())
		}
	}
	if last := b.tuner.tiles[0]; b.dropTile(last, refused) {
		t.Error("the last tile is dropped")
	}
	if b.dropTile(b.tuner.tiles[0], gpu.ErrLost) {
		t.Error("a tile is dropped for a lost device")
	}
	b.refuseHalf(refused)
	if _, err := b.Alloc("x", tensor.F16, 1); err == nil || b.Limits().F16 || !strings.Contains(b.Notice(), "f32") {
		t.Errorf("without f16: alloc says %v, limits %+v, notice %q", err, b.Limits(), b.Notice())
	}
	x, y := b.floats(numbers(0, 256)...).Reshape(16, 16), b.floats(numbers(0, 256)...).Reshape(16, 16)
	z := b.floats(make([]float32, 256)...).Reshape(16, 16)
	b.r.MatMul(op.MatMul{A: x, B: y, C: z})
	if got := b.read(z)[17]; got != 50936 { // Σ (16+k)·(16k+1)
		t.Errorf("a product with what is left: element (1, 1) is %v, want 50936", got)
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
	if len(p.Copies) < 3 || p.Copies[len(p.Copies)-1].BytesPerSec != p.BytesPerSec {
		t.Errorf("copies %+v, want several, the large one of %v bytes per second last", p.Copies, p.BytesPerSec)
	}
	for i, c := range p.Copies {
		if c.BytesPerSec <= 0 || i > 0 && c.Bytes <= p.Copies[i-1].Bytes {
			t.Errorf("copies %+v, want positive rates of rising sizes", p.Copies)
		}
	}
	rate, tile, err := b.MatMulRate(64, 48, 40, false, true, b.Limits().F16, "")
	if err != nil || rate <= 0 || tile.BM == 0 {
		t.Errorf("a product: %v FLOP/s with %v: %v", rate, tile, err)
	}
	if now, _ := b.MemoryBytes(); now != 0 {
		t.Errorf("%d bytes are left after measuring", now)
	}
}

// TestStaticTile: a large result gets the largest tile, a thin one none that is
// mostly outside of it, and a small one the smallest.
func TestStaticTile(t *testing.T) {
	b := open(t, gpu.Options{}, Options{Tune: TuneOff})
	defer b.Close()
	tiles := b.Tiles()
	smallest := tiles[len(tiles)-1]
	f := matmulForm{vec: true}
	if got := b.staticTile(f, 1<<16, 1024); got != tiles[0] {
		t.Errorf("65536×1024 gets %v, want %v", got, tiles[0])
	}
	for _, z := range [][2]int{{1 << 16, 16}, {16, 1 << 16}, {1 << 16, 4}} {
		if got := b.staticTile(f, z[0], z[1]); got != smallest && (got.BM >= 2*z[0] || got.BN >= 2*z[1]) {
			t.Errorf("%d×%d gets %v", z[0], z[1], got)
		}
	}
	if got := b.staticTile(f, 64, 64); got != smallest {
		t.Errorf("64×64 gets %v, want %v", got, smallest)
	}
}
