package gpu_test

import (
	"testing"
	"time"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
)

// hostCost times the recording alone: 48 dispatches, then a wait that is not
// counted, because a software adapter runs on the same processors.
func hostCost(b *testing.B, record func(d *gpu.Device, i int) error) {
	b.Helper()
	const batch = 48
	d := gputest.Open(b, gpu.Options{BatchSize: 10 * batch})
	var spent time.Duration
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		for i := range batch {
			if err := record(d, n+i); err != nil {
				b.Fatal(err)
			}
		}
		spent += time.Since(start)
		n += batch
		if err := d.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(n), "host-ns/dispatch")
}

// The host's cost of a dispatch whose pipeline, bind group and uniform are
// known and bound already.
func BenchmarkDispatchSame(b *testing.B) {
	var s scaleSetup
	hostCost(b, func(d *gpu.Device, i int) error {
		s.once(b, d)
		params := scaleParams{1, 2}
		return d.Dispatch(s.scale, 1, 1, 1, gpu.Buf(s.x), gpu.Buf(s.y), gpu.UniformOf(&params))
	})
}

// Two kernels in turn, so that each sets its pipeline and bind group.
func BenchmarkDispatchAlternating(b *testing.B) {
	var s scaleSetup
	hostCost(b, func(d *gpu.Device, i int) error {
		s.once(b, d)
		if i&1 == 0 {
			params := scaleParams{1, 2}
			return d.Dispatch(s.scale, 1, 1, 1, gpu.Buf(s.x), gpu.Buf(s.y), gpu.UniformOf(&params))
		}
		one := float32(1)
		return d.Dispatch(s.add, 1, 1, 1, gpu.Buf(s.y), gpu.UniformOf(&one))
	})
}

// A uniform that never occurred before: an upload and a new bind group.
func BenchmarkDispatchNewUniform(b *testing.B) {
	var s scaleSetup
	hostCost(b, func(d *gpu.Device, i int) error {
		s.once(b, d)
		params := scaleParams{1, float32(i)}
		return d.Dispatch(s.scale, 1, 1, 1, gpu.Buf(s.x), gpu.Buf(s.y), gpu.UniformOf(&params))
	})
}

// scaleSetup holds what the dispatch benchmarks use.
type scaleSetup struct {
	scale, add *gpu.Pipeline
	x, y       *gpu.Buffer
}

func (s *scaleSetup) once(b *testing.B, d *gpu.Device) {
	if s.x == nil {
		s.scale, s.add = pipeline(b, d, "scale", scaleKernel), pipeline(b, d, "add", addKernel)
		s.x, s.y = floats(b, d, "x", []float32{1}), floats(b, d, "y", []float32{0})
	}
}

func BenchmarkSubmitAndWait(b *testing.B) {
	d := gputest.Open(b, gpu.Options{})
	p := pipeline(b, d, "add", addKernel)
	y, one := floats(b, d, "y", []float32{0}), float32(1)
	for b.Loop() {
		if err := d.Dispatch(p, 1, 1, 1, gpu.Buf(y), gpu.UniformOf(&one)); err != nil {
			b.Fatal(err)
		}
		if err := d.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUpload64MiB(b *testing.B)   { benchmarkTransfer(b, 64<<20, true) }
func BenchmarkDownload64MiB(b *testing.B) { benchmarkTransfer(b, 64<<20, false) }
func BenchmarkDownload4B(b *testing.B)    { benchmarkTransfer(b, 4, false) }

func benchmarkTransfer(b *testing.B, n int, up bool) {
	d := gputest.Open(b, gpu.Options{})
	buf, err := d.NewBuffer("transfer", uint64(n))
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, n)
	b.SetBytes(int64(n))
	for b.Loop() {
		if up {
			err = d.Upload(buf, 0, data)
		} else {
			err = d.Download(buf, 0, data)
		}
		if err == nil {
			err = d.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
