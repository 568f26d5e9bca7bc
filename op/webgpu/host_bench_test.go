//go:build linux

package webgpu

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// BenchmarkHost reports what a training step costs the host: 12 layers whose
// kernels have next to nothing to do, forward, backward and optimizer, per
// dispatch. It is the time of the calls that record and submit, without those
// that wait for the GPU: by the clock of the thread, which a software GPU on the
// same processors disturbs least, and by the clock on the wall. The shortest step
// counts. Objects are those that these calls allocate, of the step with the fewest.
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
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s := newHostStep(tb, b)
	dispatches := s.dispatches()
	for range 3 {
		s.run()
	}
	var busy, wall []time.Duration
	objects := ^uint64(0)
	for tb.Loop() {
		s.run()
		objects = min(objects, s.watch.objects)
		busy, wall = append(busy, s.watch.busy), append(wall, s.watch.wall)
	}
	tb.ReportMetric(float64(dispatches), "dispatches")
	tb.ReportMetric(slices.Min(busy).Seconds()*1e6/float64(dispatches), "thread-µs/dispatch")
	tb.ReportMetric(slices.Min(wall).Seconds()*1e6/float64(dispatches), "µs/dispatch")
	tb.ReportMetric(float64(objects), "objects/step")
}

// hostStep is a training step of a small model.
type hostStep struct {
	tb      testing.TB
	b       *Backend
	graph   *model.Graph
	adam    *optim.AdamW
	watch   *watch
	tokens  []int32
	targets []int32
	steps   int
}

func newHostStep(tb testing.TB, b *Backend) *hostStep {
	const rows = 32
	s := &hostStep{tb: tb, b: b, watch: &watch{tb: tb}, tokens: make([]int32, rows), targets: make([]int32, rows)}
	r := op.NewRunner(watched{b, s.watch})
	cfg := model.Config{VocabSize: 256, Context: rows, DModel: 64, Layers: 12, Heads: 4, KVHeads: 2, FFN: 96, Tied: true}
	round := b.Rounds()
	p, err := model.NewParams(r, cfg, model.ParamOptions{Grads: true, Moments: true,
		Mirror: round == tensor.F32 && b.Limits().F16, Rounded: model.RoundedOn(b.Limits(), round)})
	s.ok(err)
	tb.Cleanup(func() { p.Close() })
	s.ok(p.Init(1))
	s.graph, err = model.NewGraph(r, p, model.TrainOptions{Batch: 1})
	s.ok(err)
	tb.Cleanup(s.graph.Close)
	s.adam, err = optim.New(r, p, optim.Defaults())
	s.ok(err)
	return s
}

func (s *hostStep) ok(err error) {
	if err != nil {
		s.tb.Helper()
		s.tb.Fatal(err)
	}
}

// run takes one step, as the trainer does, and leaves its times in the watch.
func (s *hostStep) run() {
	s.steps++
	for i := range s.tokens {
		s.tokens[i], s.targets[i] = int32((s.steps+i)*37%256), int32((s.steps+i+1)*37%256)
	}
	*s.watch = watch{tb: s.tb}
	s.watch.start()
	s.ok(s.graph.MicroStep(s.tokens, s.targets, nil, 1/float32(len(s.targets))))
	_, err := s.graph.LossSum()
	s.ok(err)
	_, err = s.adam.Step(1e-3 / float64(s.steps))
	s.ok(err)
	s.watch.stop()
}

// dispatches counts those of a step with the device's clock.
func (s *hostStep) dispatches() int {
	if ok, err := s.b.StartTiming(); err != nil || !ok {
		s.tb.Fatalf("no timestamps: %v", err)
	}
	s.run()
	n := s.b.Started()
	_, err := s.b.StopTiming()
	s.ok(err)
	return n
}

// watch adds up what is not waiting.
type watch struct {
	tb         testing.TB
	busy, wall time.Duration // by the thread's clock and the one on the wall
	busyAt     time.Duration
	wallAt     time.Time
	objects    uint64
}

func (w *watch) start() {
	w.objects -= objectsMade()
	w.wallAt, w.busyAt = time.Now(), threadTime(w.tb)
}

func (w *watch) stop() {
	w.busy += threadTime(w.tb) - w.busyAt
	w.wall += time.Since(w.wallAt)
	w.objects += objectsMade()
}

// watched is a backend whose watch stands still while it reads. What was recorded
// is handed over before, so that only the wait and the copying are left out.
type watched struct {
	*Backend
	watch *watch
}

func (b watched) Read(p []byte, src op.Tensor) error {
	if err := b.Flush(); err != nil {
		return err
	}
	b.watch.stop()
	defer b.watch.start()
	return b.Backend.Read(p, src)
}

// threadTime is the processor time of the calling thread; getrusage knows it in
// ticks only.
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
