package webgpu

import (
	"errors"
	"time"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/tensor"
)

// MeasurePeak measures what the device reaches on the simplest work: chains of
// fused multiply-adds in registers, copies by a kernel, and an empty submit with
// its wait. Times are the shortest of several runs.
func (b *Backend) MeasurePeak() (op.Peak, error) {
	overhead, err := b.submitOverhead()
	if err != nil {
		return op.Peak{}, err
	}
	copies, err := b.copyRates(overhead)
	if err != nil {
		return op.Peak{}, err
	}
	flops, err := b.fmaPeak(overhead)
	if err != nil {
		return op.Peak{}, err
	}
	units, err := b.matrixPeak()
	return op.Peak{FLOPS: flops, MatrixFLOPS: units, BytesPerSec: copies[len(copies)-1].BytesPerSec, SubmitOverhead: overhead, Copies: copies}, err
}

// warmTime is how long work runs before it is timed: GPUs lower their clocks
// within milliseconds of idling and take longer to raise them.
const warmTime = 150 * time.Millisecond

// shortest runs work until the device is warm, then several times, each with a
// wait, and returns the shortest time. It stops early once a second has gone by.
func (b *Backend) shortest(runs int, work func() error) (time.Duration, error) {
	timed := func() (time.Duration, error) {
		start := time.Now()
		if err := work(); err != nil {
			return 0, err
		}
		err := b.Sync()
		return time.Since(start), err
	}
	if _, err := timed(); err != nil { // compiles
		return 0, err
	}
	best, begun := time.Duration(1<<63-1), time.Now()
	for n := 0; n < runs; n++ {
		d, err := timed()
		if err != nil {
			return 0, err
		}
		best = min(best, d)
		if since := time.Since(begun); since < b.warmTime() {
			n = -1
		} else if since > time.Second {
			break
		}
	}
	return best, nil
}

// warmTime is short where clocks do not matter.
func (b *Backend) warmTime() time.Duration {
	if b.dev.Info().Kind == gpu.Software {
		return 0
	}
	return warmTime
}

// submitOverhead is the time of the smallest dispatch and its wait, measured once.
func (b *Backend) submitOverhead() (time.Duration, error) {
	if b.overhead > 0 {
		return b.overhead, nil
	}
	mem, err := b.Alloc("empty dispatch", tensor.F32, 64)
	if err != nil {
		return 0, err
	}
	defer b.Free(mem)
	b.overhead, err = b.shortest(50, func() error { return b.fill(op.Of(mem, 0, 64), 0) })
	return b.overhead, err
}

// fill sets every word of t.
func (b *Backend) fill(t op.Tensor, word uint32) error {
	mem, offset, n := place(t)
	c := b.begin(b.plain("fill"))
	c.memory(mem, offset, n&^3, true)
	c.words(uint32(n/4), word)
	return c.threads(int(n / 4))
}

// fmaPeak is FLOPs per second of fused multiply-adds in registers.
func (b *Backend) fmaPeak(overhead time.Duration) (float64, error) {
	groups, rounds := 64, 4
	if b.tuner.budget >= 1e10 {
		groups, rounds = 4096, 64
	}
	mem, err := b.Alloc("fma peak", tensor.F32, groups*256)
	if err != nil {
		return 0, err
	}
	defer b.Free(mem)
	d, err := b.shortest(5, func() error {
		c := b.begin(b.plain("fma_peak"))
		c.out(op.Of(mem, 0, groups*256))
		c.words(uint32(rounds), floatBits(0.5))
		return c.groups(groups)
	})
	perThread := float64(rounds) * 16 * 8 * 4 * 2
	return perThread * float64(groups) * 256 / seconds(d-overhead), err
}

func seconds(d time.Duration) float64 { return max(d, time.Microsecond).Seconds() }

// MatMulRate measures a product alone: FLOPs per second at the given sizes with
// the tile that the tuner or the table gives, or with one by name.
func (b *Backend) MatMulRate(m, n, k int, transA, transB, half bool, tile string) (rate float64, used Tile, err error) {
	f := matmulForm{transA: transA, transB: transB, half: half, check: true}
	f.vec = n%4 == 0 && (transA && m%4 == 0 || !transA && k%4 == 0)
	used = b.tile(f, m, n, k)
	if tile != "" {
		if used, err = findTile(b.tuner.tiles, b.dev.Limits(), tile); err != nil {
			return 0, used, err
		}
	}
	p, err := b.newTrial(f, m, n, k)
	defer p.free(b)
	if err != nil {
		return 0, used, err
	}
	overhead, err := b.submitOverhead()
	if err != nil {
		return 0, used, err
	}
	d, err := b.shortest(8, func() error { return p.run(b, used) })
	return 2 * float64(m) * float64(n) * float64(k) / seconds(d-overhead), used, err
}

// StartTiming begins to note the times of kernels, where the device can.
func (b *Backend) StartTiming() (bool, error) {
	err := b.dev.StartTiming(gpu.MaxTimed)
	if errors.Is(err, gpu.ErrNoTimestamps) {
		return false, nil
	}
	return err == nil, err
}

// Started is the number of kernels since StartTiming.
func (b *Backend) Started() int { return b.dev.Timed() }

// StopTiming waits and returns the kernels' times.
func (b *Backend) StopTiming() ([]op.KernelTime, error) {
	stamps, err := b.dev.StopTiming()
	times := make([]op.KernelTime, len(stamps))
	for i, s := range stamps {
		times[i] = op.KernelTime{Kernel: s.Kernel, Time: time.Duration(s.Nanoseconds)}
	}
	return times, err
}
