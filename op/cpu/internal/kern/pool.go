package kern

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// spinPauses is how many PAUSE instructions a thread waits before it parks: about 50 µs on Intel, 15 µs
// on AMD, which is about what waking a parked thread costs. Spinning without end would steal time
// from the other threads where two virtual processors share a core.
const spinPauses = 1000

// Task is work that a Pool splits into numbered items. Do is called once for every i in [0, n) by
// some worker in [0, Threads()); items run at the same time and in any order.
type Task interface {
	Do(worker, i int)
}

// funcTask lets a plain function be a Task; converting a func value costs no allocation here
// because the pool holds the one instance.
type funcTask struct{ f func(worker, i int) }

func (t *funcTask) Do(worker, i int) { t.f(worker, i) }

// Pool is a fixed set of threads. The goroutine that calls Run is one of them (worker 0); the
// others wait, spinning briefly and then parked. Calls from several goroutines take turns. A task
// must not call Run or RunTask of the pool it runs on.
type Pool struct {
	Between func() // called between items when the pool has one thread; may be nil. Set it before the first Run

	mu      sync.Mutex
	workers []poolWorker
	task    Task
	fn      funcTask
	n       int64
	closed  bool
	exited  sync.WaitGroup
	done    chan struct{}

	_       [64]byte // keep the hot counters on lines of their own
	next    atomic.Int64
	_       [56]byte
	epoch   atomic.Uint32 // changes when a job starts
	_       [60]byte
	pending atomic.Int32 // threads that have not finished the job, the caller among them until it parks on done
	_       [60]byte
}

// poolWorker is one background thread's parking place.
type poolWorker struct {
	parked atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

// NewPool starts a pool of that many threads; 0 or less means GOMAXPROCS. Close it when done.
func NewPool(threads int) *Pool {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	p := &Pool{workers: make([]poolWorker, threads), done: make(chan struct{}, 1)}
	p.exited.Add(threads - 1)
	for id := 1; id < threads; id++ {
		p.workers[id].wake = make(chan struct{}, 1)
		go p.serve(id)
	}
	return p
}

// Threads returns the number of workers, the caller of Run among them.
func (p *Pool) Threads() int { return len(p.workers) }

// Run calls f(worker, i) once for every i in [0, n) and returns when all calls have. It allocates
// nothing itself, but a function literal that captures variables is allocated by whoever writes it:
// keep f in a struct, or use RunTask, where that matters.
func (p *Pool) Run(n int, f func(worker, i int)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fn.f = f
	p.run(n, &p.fn)
	p.fn.f = nil
}

// RunTask is Run for a Task, which a caller can keep and reuse without allocating.
func (p *Pool) RunTask(n int, t Task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run(n, t)
}

// Close ends the background threads and waits for them. The pool must not be used afterwards;
// closing twice is harmless.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.release()
	p.exited.Wait()
}

// run executes one job with p.mu held.
func (p *Pool) run(n int, t Task) {
	if p.closed {
		panic("kern: Pool.Run after Close")
	}
	if n <= 1 || len(p.workers) == 1 {
		p.alone(n, t)
		return
	}
	p.task, p.n = t, int64(n)
	p.next.Store(0)
	p.pending.Store(int32(len(p.workers)))
	p.release()
	p.drain(0)
	p.join()
	p.task = nil
}

// alone does every item on the caller's thread.
func (p *Pool) alone(n int, t Task) {
	for i := 0; i < n; i++ {
		t.Do(0, i)
		if p.Between != nil && len(p.workers) == 1 {
			p.Between()
		}
	}
}

// release starts the job (or the shutdown) that the fields describe.
func (p *Pool) release() {
	p.epoch.Add(1)
	for id := 1; id < len(p.workers); id++ {
		if w := &p.workers[id]; w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// drain takes items from the counter until none is left.
func (p *Pool) drain(worker int) {
	for {
		i := p.next.Add(1) - 1
		if i >= p.n {
			return
		}
		p.task.Do(worker, int(i))
	}
}

// join waits until every background thread has finished the job. The one counter decides both
// whether the job is over and who says so: a caller that parks takes itself off first, and only then
// can a thread bring the counter to 0 and send on done. A flag of its own for "the caller is parked"
// let a thread that was slow to look at it end the next job too early.
func (p *Pool) join() {
	for i := 0; i < spinPauses; i++ {
		if p.pending.Load() == 1 {
			return
		}
		pause()
	}
	if p.pending.Add(-1) > 0 {
		<-p.done
	}
}

// serve is the life of a background thread.
func (p *Pool) serve(id int) {
	defer p.exited.Done()
	for seen := uint32(0); ; seen++ {
		p.await(&p.workers[id], seen)
		if p.closed {
			return
		}
		p.drain(id)
		if p.pending.Add(-1) == 0 {
			p.done <- struct{}{}
		}
	}
}

// await returns when the epoch is no longer seen: it spins, then parks. Whoever turns parked off,
// the worker itself or release, decides whether a wake-up message is sent. A message can be late: a
// release that is still on its way through the workers may find one that has done its share and
// parked again. So the epoch decides, after every message.
func (p *Pool) await(w *poolWorker, seen uint32) {
	for {
		for i := 0; i < spinPauses; i++ {
			if p.epoch.Load() != seen {
				return
			}
			pause()
		}
		w.parked.Store(true)
		if p.epoch.Load() != seen && w.parked.CompareAndSwap(true, false) {
			return
		}
		<-w.wake
	}
}
