//go:build linux

package webgpu

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"tezgah/op"
	"tezgah/tensor"
)

// hostStep is a model of many layers whose kernels have next to nothing to do.
var hostStep = stepConfig{b: 1, t: 32, c: 64, l: 12, h: 4, kvh: 4, f: 96, v: 256, headRows: 32}

// BenchmarkHost reports what recording a training step costs the host, per
// dispatch: the processor time of the thread that records, so that a software
// GPU on the same cores counts as little as possible, and the objects that it
// allocates. Waiting is not part of it.
//
//	go test ./op/webgpu -run '^$' -bench Host -benchtime 200x
func BenchmarkHost(tb *testing.B) {
	b, _ := benchBackend(tb)
	for _, input := range append([]tensor.DType{tensor.F32}, b.Rounding()...) {
		tb.Run(input.String(), func(tb *testing.B) {
			if err := b.RoundProducts(input); err != nil {
				tb.Fatal(err)
			}
			benchHost(tb, b)
		})
	}
}

func benchHost(tb *testing.B, b *Backend) {
	s := newStepBench(tb, b, hostStep, true)
	stats := make([]float32, 4)
	var busy, wall []time.Duration
	var objects uint64
	step := func() {
		before, begun, start := objectsMade(), threadTime(tb), time.Now()
		if err := s.run(); err != nil {
			tb.Fatal(err)
		}
		s.r.Flush()
		wall, busy = append(wall, time.Since(start)), append(busy, threadTime(tb)-begun)
		objects = objectsMade() - before
		if err := op.ReadSlice(s.r, stats, s.stats); err != nil {
			tb.Fatal(err)
		}
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := s.dispatches(tb)
	for range 3 {
		step()
	}
	busy, wall = busy[:0], wall[:0]
	for tb.Loop() {
		step()
	}
	perDispatch := func(list []time.Duration, q float64) float64 {
		slices.Sort(list)
		return list[int(q*float64(len(list)-1))].Seconds() * 1e6 / float64(n)
	}
	tb.ReportMetric(float64(n), "dispatches")
	tb.ReportMetric(perDispatch(busy, 0.5), "cpu-µs/dispatch")
	tb.ReportMetric(perDispatch(busy, 0), "cpu-min-µs/dispatch")
	tb.ReportMetric(perDispatch(wall, 0), "wall-min-µs/dispatch")
	tb.ReportMetric(float64(objects), "objects/step")
}

// dispatches counts those of a step with the device's clock.
func (s *stepBench) dispatches(tb testing.TB) int {
	p := &op.Profile{}
	stop, ok, err := s.r.ProfileKernels(p)
	if err != nil || !ok {
		tb.Fatalf("no timestamps: %v", err)
	}
	n := 0
	if err = s.run(); err == nil {
		n, err = s.r.Backend().(op.Timer).Started(), stop()
	}
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// threadTime is the processor time of the calling thread. (getrusage knows it in
// ticks only.)
func threadTime(tb testing.TB) time.Duration {
	const clock = 3 // CLOCK_THREAD_CPUTIME_ID
	var t syscall.Timespec
	if _, _, e := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0); e != 0 {
		tb.Fatal(e)
	}
	return time.Duration(t.Nano())
}

func objectsMade() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
