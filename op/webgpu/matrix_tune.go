package webgpu

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// matrixShape is what a tile is chosen for. How the tiles of a product fill the
// device depends on its exact size.
type matrixShape struct {
	input            tensor.DType
	turnedA, turnedB bool
	m, n, k, splits  int
	grain            int // the deepest slices along K, 32 or 64, that need no more padding than 32
}

// shapeOf is the shape of products of one form: m rows, n columns in all, k in all,
// in parts along K.
func shapeOf(f productForm, m, n, k, splits int) matrixShape {
	s := matrixShape{f.input, f.turnedA, f.turnedB, m, n, k, splits, 32}
	if roundUp(k, 32*splits)%(64*splits) == 0 {
		s.grain = 64
	}
	return s
}

func (s matrixShape) String() string {
	mark := map[bool]string{false: "n", true: "t"}
	return fmt.Sprintf("%v-%s%s-%dx%dx%d-%d-%d", s.input, mark[s.turnedA], mark[s.turnedB], s.m, s.n, s.k, s.splits, s.grain)
}

const matrixSubject = "matrix-tiles-v4"

// matrixTile returns the tile for a shape: the one that ran fastest here when it was
// measured, or the first that is not larger than the result. Tiles add along K in the
// same order, so the choice changes no bit.
func (b *Backend) matrixTile(shape matrixShape) matrix.Tile {
	u := &b.matrix
	if t, ok := u.tiles[shape]; ok {
		return t
	}
	m, n := shape.m, shape.n
	fit := slices.DeleteFunc(b.matrixTiles(u.fragments[shape.input]), func(t matrix.Tile) bool { return t.BK > shape.grain })
	best := fit[len(fit)-1] // the least to compile, for software
	if i := slices.IndexFunc(fit, func(t matrix.Tile) bool { return t.BM <= roundUp(m, 32) && t.BN <= roundUp(n, 32) }); i >= 0 && b.dev.Info().Kind != gpu.Software {
		best = fit[i]
	}
	if b.tuner.busy {
		return best
	}
	if b.tuner.mode != TuneOff && float64(m)*float64(n)*float64(shape.k) >= 1e8 {
		best = b.tunedMatrixTile(fit, shape, best)
	}
	if u.tiles == nil {
		u.tiles = map[matrixShape]matrix.Tile{}
	}
	u.tiles[shape] = best
	return best
}

// tunedMatrixTile is the tile that ran fastest here, now or in an earlier run;
// otherwise where it cannot be measured.
func (b *Backend) tunedMatrixTile(fit []matrix.Tile, shape matrixShape, otherwise matrix.Tile) matrix.Tile {
	u := &b.matrix
	if u.disk == nil {
		u.disk = map[string]string{}
		b.dev.LoadCache(matrixSubject, &u.disk)
	}
	if i := slices.IndexFunc(fit, func(t matrix.Tile) bool { return t.String() == u.disk[shape.String()] }); i >= 0 {
		return fit[i]
	}
	best, ok := b.measureMatrixTiles(fit, shape)
	if !ok {
		return otherwise
	}
	u.disk[shape.String()] = best.String()
	_ = b.dev.SaveCache(matrixSubject, u.disk)
	return best
}

// measureMatrixTiles runs every tile on operands of its own, in rounds, and
// returns the one with the shortest time. ok is false when that failed; the
// caller's own call will then show why.
func (b *Backend) measureMatrixTiles(fit []matrix.Tile, s matrixShape) (best matrix.Tile, ok bool) {
	b.tuner.busy = true
	defer func() { b.tuner.busy = false }()
	p, err := b.newTrial(matmulForm{transA: s.turnedA, transB: s.turnedB}, s.m, s.n, s.k)
	defer p.free(b)
	if err != nil {
		return best, false
	}
	product := []op.MatMul{{A: p.a, TransA: s.turnedA, B: p.b, TransB: s.turnedB, C: p.c}}
	run := func(t matrix.Tile) error { return b.runMatrixGroup(product, t, s.splits) }
	fit = slices.DeleteFunc(slices.Clone(fit), func(t matrix.Tile) bool {
		return t.BM >= 2*roundUp(s.m, 32) || t.BN >= 2*roundUp(s.n, 32) // most of it would be padding
	})
	var kernels []*kernel
	for _, t := range fit {
		kernels = append(kernels, b.matrixKernel(t, b.formOf(product[0])))
	}
	b.prepare(kernels)
	return fastest(b, fit, run)
}

// timeKernels is how long the kernels of some calls ran, by the device's clock
// where it has one.
func (b *Backend) timeKernels(calls func() error) (time.Duration, error) {
	start := time.Now()
	clock, err := b.StartTiming()
	if err == nil {
		err = calls()
	}
	if !clock {
		if err == nil {
			err = b.Sync()
		}
		return time.Since(start), err
	}
	times, stopErr := b.StopTiming()
	var sum time.Duration
	for _, t := range times {
		sum += t.Time
	}
	return sum, errors.Join(err, stopErr)
}

// matrixPeak is FLOPs per second of a large square product on the matrix units,
// without the conversion of its operands; 0 without units or without a clock.
func (b *Backend) matrixPeak() (float64, error) {
	types := b.Rounding()
	if len(types) == 0 {
		return 0, nil
	}
	n := 4096
	if b.tuner.budget < 1e10 {
		n = 128
	}
	p, err := b.newTrial(matmulForm{}, n, n, n)
	defer p.free(b)
	if err != nil {
		return 0, err
	}
	before := b.matrix.rounding
	defer func() { b.matrix.rounding = before }()
	b.matrix.rounding = types[0]
	product := op.MatMul{A: p.a, B: p.b, C: p.c}
	if err := b.MatMul(product); err != nil { // chooses a tile
		return 0, err
	}
	if clock, err := b.StartTiming(); err != nil || !clock {
		return 0, err
	}
	for range 12 {
		if err = b.MatMul(product); err != nil {
			break
		}
	}
	times, stopErr := b.StopTiming()
	shortest := time.Duration(math.MaxInt64)
	for _, t := range times {
		if strings.HasPrefix(t.Kernel, matrixProductName) {
			shortest = min(shortest, t.Time)
		}
	}
	return 2 * float64(n) * float64(n) * float64(n) / seconds(shortest), errors.Join(err, stopErr)
}

// matrixSlots is how many workgroups of 128 × 128 a large GPU runs at once.
const matrixSlots = 264

// matrixSplits is in how many parts along K products of m rows and n columns in
// all are cut, so that their tiles fill a large GPU in whole waves. It looks at
// the shape alone: parts decide the order of the sum.
func matrixSplits(m, n, k int, bindingBytes uint64) int {
	// The parts are written and read once and the result is written: 8·s + 4 bytes for
	// 2·k FLOPs an element. A large GPU does 200 TFLOP/s and 4 TB/s.
	const flopsPerByte = 200.0 / 4
	tiles := ceil(m, 128) * ceil(n, 128)
	best, bestGain := 1, 0.0
	for s := 1; s <= 16 && s*512 <= k && uint64(4*s)*uint64(roundUp(m, 256))*uint64(roundUp(n, 256)) <= min(bindingBytes, 256<<20); s++ {
		if k%32 == 0 && k%(32*s) != 0 {
			continue // the operands would need padding, and copies of their own
		}
		waves := float64(tiles*s) / matrixSlots
		gain := waves / math.Ceil(waves)
		if s > 1 {
			gain -= flopsPerByte * float64(8*s+4) / float64(2*k)
		}
		if gain > 1.2*bestGain { // tiles of other shapes fill the waves of fewer parts better
			best, bestGain = s, gain
		}
	}
	return best
}
