package kern

import (
	"sync"
	"time"
)

// PeakGFLOPS measures the rate of fused multiply-adds (two operations each) that stay in registers,
// on that many threads for about that long: what a matrix product is compared with. At the portable
// level it is the rate of scalar multiplies and adds.
func (k Kernels) PeakGFLOPS(threads int, duration time.Duration) float64 {
	rates := make([]float64, max(threads, 1))
	var all sync.WaitGroup
	for t := range rates {
		all.Go(func() { rates[t] = k.peakOfThread(duration) })
	}
	all.Wait()
	var sum float64
	for _, r := range rates {
		sum += r
	}
	return sum
}

// peakIters keeps one call of the loop well under a millisecond.
const peakIters = 2000

// peakOfThread returns this thread's rate. Threads are timed each by itself, so that starting them
// late costs nothing.
func (k Kernels) peakOfThread(d time.Duration) float64 {
	k.fmaLoop(peakIters)
	var flops float64
	start := time.Now()
	for {
		for range 10 {
			flops += k.fmaLoop(peakIters)
		}
		if t := time.Since(start); t >= d {
			return flops / t.Seconds() * 1e-9
		}
	}
}

// peakSink keeps the compiler from dropping the portable loop.
var peakSink [8]float32

// portableFMALoop multiplies and adds into eight independent scalars.
func portableFMALoop(iters int) (flops float64) {
	var a0, a1, a2, a3, a4, a5, a6, a7 float32
	x, y := float32(0.5), float32(1)
	for range iters {
		a0, a1, a2, a3 = a0*x+y, a1*x+y, a2*x+y, a3*x+y
		a4, a5, a6, a7 = a4*x+y, a5*x+y, a6*x+y, a7*x+y
	}
	if a0 < 0 { // never, but the compiler cannot tell
		peakSink = [8]float32{a0, a1, a2, a3, a4, a5, a6, a7}
	}
	return float64(iters) * 16
}
