package webgpu

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"os"
	"slices"
	"time"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// TuneMode says when tile shapes are measured.
type TuneMode int

const (
	// TuneAuto measures on real GPUs and uses the static table on software ones.
	TuneAuto TuneMode = iota
	// TuneOff always uses the static table.
	TuneOff
	// TuneOn always measures.
	TuneOn
)

// The environment variables that override Options.
const (
	tuneVariable = "TEZGAH_TUNE" // auto, off or on
	tileVariable = "TEZGAH_TILE" // the name of a tile for all products
)

// tuner picks tile shapes. The first product of a class (form, and sizes to the
// nearest power of two) runs every shape that fits on scratch tensors; the
// fastest is kept, on disk too, so that later runs start at once and choose the
// same. All shapes add in the same order: the choice changes no bit.
type tuner struct {
	mode   TuneMode
	tiles  []Tile
	fixed  *Tile
	budget float64 // most FLOPs of one dispatch

	chosen map[tileClass]Tile
	disk   map[string]string // class to tile name
	busy   bool              // measuring
}

// tileClass is what a choice is made for.
type tileClass struct {
	form    matmulForm
	m, n, k int // bits of the size
}

func (c tileClass) String() string {
	return fmt.Sprintf("%s-%d-%d-%d", c.form.name(), c.m, c.n, c.k)
}

// dispatchBudget is the most FLOPs of one dispatch by kind of adapter: about 100
// ms on the slowest of its kind that is worth using.
func dispatchBudget(k gpu.Kind) float64 {
	switch k {
	case gpu.Discrete:
		return 1.5e11
	case gpu.Integrated:
		return 1e10
	}
	return 3e8
}

const tuneSubject = "tiles-v2"

func (t *tuner) init(b *Backend, o Options) error {
	for _, tile := range allTiles {
		if tile.fits(b.dev.Limits()) {
			t.tiles = append(t.tiles, tile)
		}
	}
	if len(t.tiles) == 0 {
		return fmt.Errorf("webgpu: %s allows %d threads and %d bytes per workgroup, too few for any matrix kernel: use --device cpu",
			b.dev.Info().Name, b.dev.Limits().Invocations, b.dev.Limits().WorkgroupMemory)
	}
	t.mode, t.chosen, t.disk = o.Tune, map[tileClass]Tile{}, map[string]string{}
	switch mode := os.Getenv(tuneVariable); mode {
	case "", "auto":
	case "off":
		t.mode = TuneOff
	case "on":
		t.mode = TuneOn
	default:
		return fmt.Errorf("webgpu: %s is %q, want auto, off or on", tuneVariable, mode)
	}
	if name := cmpOr(os.Getenv(tileVariable), o.Tile); name != "" {
		tile, err := findTile(t.tiles, b.dev.Limits(), name)
		if err != nil {
			return err
		}
		t.fixed = &tile
	}
	t.budget = o.MaxDispatchFLOPs
	kind := b.dev.Info().Kind
	if t.budget <= 0 {
		t.budget = dispatchBudget(kind)
	}
	if t.mode == TuneAuto && kind == gpu.Software {
		t.mode = TuneOff
	}
	if t.mode != TuneOff {
		b.dev.LoadCache(tuneSubject, &t.disk)
	}
	return nil
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// smallest is the tile that asks least of a device.
func (t *tuner) smallest() Tile { return t.tiles[len(t.tiles)-1] }

// tile returns the shape for a product.
func (b *Backend) tile(f matmulForm, m, n, k int) Tile {
	t := &b.tuner
	if t.fixed != nil {
		if f.paired && t.fixed.NQ%2 != 0 {
			return b.staticTile(f, m, n)
		}
		return *t.fixed
	}
	f.check, f.acc, f.residual = true, false, false
	class := tileClass{f, bits.Len(uint(m)), bits.Len(uint(n)), bits.Len(uint(k))}
	if tile, ok := t.chosen[class]; ok {
		return tile
	}
	tile := b.staticTile(f, m, n)
	if worth := float64(m) * float64(n) * float64(k); t.mode != TuneOff && !t.busy && f.vec && worth > 1e7 {
		if known, err := findTile(t.tiles, b.dev.Limits(), t.disk[class.String()]); err == nil && t.disk[class.String()] != "" {
			tile = known
		} else if best, ok := b.measureTiles(f, m, n, k); ok {
			tile = best
			t.disk[class.String()] = tile.String()
			_ = b.dev.SaveCache(tuneSubject, t.disk)
		}
	}
	if !t.busy {
		t.chosen[class] = tile
	}
	return tile
}

// dropTile reports whether a product that failed is worth trying again: a tile
// that the driver's compiler refuses is not used any more, with a notice, unless
// it is the last or was asked for.
func (b *Backend) dropTile(tile Tile, err error) bool {
	t := &b.tuner
	var shader *gpu.ShaderError
	if !errors.As(err, &shader) || t.fixed != nil {
		return false
	}
	i := slices.Index(t.tiles, tile)
	if i < 0 || len(t.tiles) == 1 {
		return false
	}
	t.tiles = slices.Delete(slices.Clone(t.tiles), i, i+1)
	maps.DeleteFunc(t.chosen, func(_ tileClass, c Tile) bool { return c == tile })
	maps.DeleteFunc(t.disk, func(_, name string) bool { return name == tile.String() })
	b.notice = joinNotice(b.notice, fmt.Sprintf("NOTE: tile %v is left out: %v", tile, err))
	return true
}

// staticTile is the choice without measuring: the largest tile that still makes
// enough workgroups to fill a GPU and is not more than half outside the result,
// as products with a low rank would have it.
func (b *Backend) staticTile(f matmulForm, m, n int) Tile {
	best := Tile{}
	for _, tile := range b.tuner.tiles {
		if f.paired && tile.NQ%2 != 0 {
			continue
		}
		if best.BM == 0 || tile.BM*tile.BN < best.BM*best.BN {
			best = tile
		}
		if tile.BM < 2*m && tile.BN < 2*n && ceil(m, tile.BM)*ceil(n, tile.BN) >= 160 {
			return tile
		}
	}
	return best
}

func ceil(a, b int) int { return (a + b - 1) / b }

// measureTiles runs every tile on tensors of the product's size. ok is false
// when that failed; the caller's own call will then show why.
func (b *Backend) measureTiles(f matmulForm, m, n, k int) (best Tile, ok bool) {
	t := &b.tuner
	t.busy = true
	defer func() { t.busy = false }()
	if most := int(t.budget / (2 * float64(n) * float64(k))); m > most {
		m = max(256, most/256*256)
	}
	p, err := b.newTrial(f, m, n, k)
	defer p.free(b)
	if err != nil {
		return best, false
	}
	b.prepare(b.tileKernels(f, m, n, k))
	tiles := slices.DeleteFunc(slices.Clone(t.tiles), func(tile Tile) bool { return f.paired && tile.NQ%2 != 0 })
	return fastest(b, tiles, func(tile Tile) error { return p.run(b, tile) })
}

// busyTime is how long the device works on one tile without a pause. GPUs lower their
// clock between short pieces of work, and then not the fastest tile wins but the one
// that asks least of the memory.
const busyTime = time.Millisecond

// fastest runs every tile that compiles, in rounds, so that a slow moment does not
// hit one alone, and returns the one with the shortest time.
func fastest[T any](b *Backend, fit []T, run func(T) error) (best T, ok bool) {
	timed := func(t T, times int) (time.Duration, error) {
		start := time.Now()
		for range times {
			if err := run(t); err != nil {
				return 0, err
			}
		}
		err := b.Sync()
		return time.Since(start), err
	}
	fit = slices.DeleteFunc(slices.Clone(fit), func(t T) bool {
		_, err := timed(t, 1) // compiles
		return err != nil
	})
	if len(fit) == 0 {
		return best, false
	}
	once := time.Duration(math.MaxInt64)
	for begun := time.Now(); time.Since(begun) < b.warmTime()/3 || once == math.MaxInt64; { // clocks fell while the host compiled
		d, err := timed(fit[0], 4)
		if err != nil {
			return best, false
		}
		once = min(once, d/4)
	}
	times := int(max(1, min(64, busyTime/max(once, 1))))
	shortest := make([]time.Duration, len(fit))
	for round := range 5 {
		for i, t := range fit {
			d, err := timed(t, times)
			if err != nil {
				return best, false
			}
			if round == 0 || d < shortest[i] {
				shortest[i] = d
			}
		}
	}
	return fit[slices.Index(shortest, slices.Min(shortest))], true
}

// tileKernels are the kernels that measureTiles will run, but for those of products
// whose parts along K have ragged ends.
func (b *Backend) tileKernels(f matmulForm, m, n, k int) (kernels []*kernel) {
	for _, t := range b.tuner.tiles {
		if f.paired && t.NQ%2 != 0 {
			continue
		}
		g := f
		g.check = !f.vec || m%t.BM != 0 || n%t.BN != 0 || k%t.BK != 0
		kernels = append(kernels, b.matmulKernel(g, t))
	}
	return kernels
}

// trial is a product on tensors of its own.
type trial struct {
	form    matmulForm
	buffers []op.Buffer
	m, n, k int
	a, b, c op.Tensor
	b2, c2  op.Tensor // for the paired and group forms
	c3      op.Tensor
}

func (b *Backend) newTrial(f matmulForm, m, n, k int) (*trial, error) {
	p := &trial{form: f, m: m, n: n, k: k}
	var err error
	alloc := func(label string, half bool, rows, cols int) op.Tensor {
		typ := tensor.F32
		if half {
			typ = tensor.F16
		}
		if err != nil {
			return op.Tensor{}
		}
		var buf op.Buffer
		if buf, err = b.Alloc("tuner "+label, typ, rows*cols); err != nil {
			return op.Tensor{}
		}
		p.buffers = append(p.buffers, buf)
		return op.Of(buf, 0, rows, cols)
	}
	p.a, p.b, p.c = alloc("a", false, m, k), alloc("b", f.half, k, n), alloc("c", false, m, n)
	if f.transA {
		p.a = p.a.Reshape(k, m)
	}
	if f.transB {
		p.b = p.b.Reshape(n, k)
	}
	if f.paired || f.group {
		p.b2, p.c2, p.c3 = alloc("b2", f.half, k, n), alloc("c2", false, m, n), alloc("c3", false, m, n)
	}
	if err == nil {
		err = b.fillTrial(p)
	}
	return p, err
}

// fillTrial writes numbers that are no zeros: those can be faster to multiply.
func (b *Backend) fillTrial(p *trial) error {
	for _, t := range []op.Tensor{p.a, p.b, p.b2} {
		if !t.Ok() {
			continue
		}
		value := floatBits(0.7431)
		if isHalf(t) {
			value = 0x39f239f2
		}
		mem, offset, n := place(t)
		c := b.begin(b.plain("fill"))
		c.memory(mem, offset, (n+3)&^3, true)
		c.words(uint32(n/4), value)
		if err := c.threads(int(n / 4)); err != nil {
			return err
		}
	}
	return nil
}

func (p *trial) run(b *Backend, tile Tile) error {
	switch {
	case p.form.paired:
		return b.runGateUp(op.GateUp{X: p.a, WGate: p.b, WUp: p.b2, Gate: p.c, Up: p.c2, Out: p.c3}, p.form, tile)
	case p.form.group:
		return b.runGroup([]op.MatMul{{A: p.a, B: p.b, C: p.c}, {A: p.a, B: p.b2, C: p.c2}}, p.form, tile)
	}
	return b.runMatMul(op.MatMul{A: p.a, B: p.b, C: p.c, TransA: p.form.transA, TransB: p.form.transB}, p.form, tile)
}

func (p *trial) free(b *Backend) {
	for _, buf := range p.buffers {
		b.Free(buf)
	}
}
