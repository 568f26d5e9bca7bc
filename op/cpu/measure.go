package cpu

import (
	"time"

	"tezgah/op"
)

var _ op.Measurer = (*Backend)(nil)

// triadElems is the length of the measured arrays: 64 MiB each, beyond most
// caches.
const triadElems = 1 << 24

// MeasurePeak measures the rate of fused multiply-adds in registers, the
// bandwidth of dst += src over arrays larger than the caches (12 bytes an
// element, two read and one written) and over parts of them, and the cost of handing
// an empty call to the threads.
func (b *Backend) MeasurePeak() (op.Peak, error) {
	var p op.Peak
	p.FLOPS = 1e9 * b.k.PeakGFLOPS(b.pool.Threads(), 300*time.Millisecond)
	bytes := int64(2 * 4 * triadElems)
	if err := b.memory.fits("the arrays of the bandwidth measurement", bytes); err != nil {
		return p, err
	}
	dst, src := make([]float32, triadElems), make([]float32, triadElems+staggerBytes/4)[staggerBytes/4:]
	b.addTo(dst, src) // touch the pages
	best := time.Duration(1 << 62)
	for range 5 {
		start := time.Now()
		b.addTo(dst, src)
		best = min(best, time.Since(start))
	}
	p.BytesPerSec = 12 * triadElems / best.Seconds()
	p.Copies = append(b.smallTriads(dst, src), op.CopyRate{Bytes: 12 * triadElems, BytesPerSec: p.BytesPerSec})
	const calls = 200
	start := time.Now()
	for range calls {
		b.addTo(dst[:2*elementBlock], src[:2*elementBlock]) // from cache
	}
	p.SubmitOverhead = time.Since(start) / calls
	return p, nil
}

// smallTriads measures the bandwidth of dst += src for smaller sizes, the best of
// some runs over the same elements: in a training step, too, caches hold what fits
// into them.
func (b *Backend) smallTriads(dst, src []float32) (rates []op.CopyRate) {
	for _, bytes := range op.CopyBytes() {
		n := int(bytes / 12)
		if n >= len(dst) {
			break
		}
		best := time.Duration(1 << 62)
		for range 10 {
			start := time.Now()
			b.addTo(dst[:n], src[:n])
			best = min(best, max(time.Since(start), time.Nanosecond))
		}
		rates = append(rates, op.CopyRate{Bytes: bytes, BytesPerSec: 12 * float64(n) / best.Seconds()})
	}
	return rates
}
