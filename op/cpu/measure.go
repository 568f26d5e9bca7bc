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
// element, two read and one written), and the cost of handing an empty call to
// the threads.
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
	const calls = 200
	start := time.Now()
	for range calls {
		b.addTo(dst[:2*elementBlock], src[:2*elementBlock]) // from cache
	}
	p.SubmitOverhead = time.Since(start) / calls
	return p, nil
}
