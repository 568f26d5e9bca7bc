package kern

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestPoolRunsEveryItemOnce(t *testing.T) {
	for threads := 1; threads <= 5; threads++ {
		p := NewPool(threads)
		if p.Threads() != threads {
			t.Fatalf("Threads() is %d, want %d", p.Threads(), threads)
		}
		for _, n := range []int{0, 1, 2, 3, 7, 100, 1000} {
			counts := make([]atomic.Int32, n)
			p.Run(n, func(worker, i int) {
				if worker < 0 || worker >= threads {
					t.Errorf("worker %d of %d", worker, threads)
				}
				counts[i].Add(1)
			})
			for i := range counts {
				if c := counts[i].Load(); c != 1 {
					t.Fatalf("%d threads, %d items: item %d ran %d times", threads, n, i, c)
				}
			}
		}
		p.Close()
		p.Close()
	}
}

// TestPoolWakesParkedWorkers leaves the workers time to park between jobs, and checks that a job
// whose two items wait for each other ends, which needs two threads awake.
func TestPoolWakesParkedWorkers(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	for range 20 {
		time.Sleep(time.Millisecond)
		var meet sync.WaitGroup
		meet.Add(2)
		p.Run(2, func(_, _ int) {
			meet.Done()
			meet.Wait()
		})
	}
}

func TestPoolManyCallers(t *testing.T) {
	p := NewPool(3)
	defer p.Close()
	var total atomic.Int64
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 200 {
				p.Run(10, func(_, i int) { total.Add(int64(i)) })
			}
		})
	}
	callers.Wait()
	if got := total.Load(); got != 4*200*45 {
		t.Fatalf("sum of items is %d, want %d", got, 4*200*45)
	}
}

func TestPoolDoesNotAllocate(t *testing.T) {
	p := NewPool(2)
	defer p.Close()
	var sum atomic.Int64
	f := func(_, i int) { sum.Add(int64(i)) }
	if n := testing.AllocsPerRun(100, func() { p.Run(64, f) }); n >= 1 {
		t.Errorf("Run allocates %g times", n)
	}
	job := &funcTask{f}
	if n := testing.AllocsPerRun(100, func() { p.RunTask(64, job) }); n >= 1 {
		t.Errorf("RunTask allocates %g times", n)
	}
}

func TestPoolAfterClose(t *testing.T) {
	p := NewPool(2)
	p.Close()
	defer func() {
		if recover() == nil {
			t.Error("Run after Close did not panic")
		}
	}()
	p.Run(2, func(_, _ int) {})
}

// TestPoolManyJobs runs many short jobs on more system threads than there are
// processors, so that the system stops threads at every point of the hand-over,
// and checks after each that all of its items are done.
func TestPoolManyJobs(t *testing.T) {
	const threads, items = 16, 40
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	p := NewPool(threads)
	defer p.Close()
	done := make([]int, items*16) // a line to each item, without atomics
	work := func(_, i int) {
		for range 9 * (i % 7) {
			pause()
		}
		done[16*i]++
	}
	for job := 1; job <= 20000; job++ {
		p.Run(items, work)
		for i := range items {
			if done[16*i] != job {
				t.Fatalf("job %d returned with item %d done %d times", job, i, done[16*i])
			}
		}
	}
}

// TestPoolBetween: with one thread the hook runs after every item, with more it
// does not, since another thread would then do the rest.
func TestPoolBetween(t *testing.T) {
	for _, threads := range []int{1, 2} {
		p := NewPool(threads)
		between := 0
		p.Between = func() { between++ }
		var done atomic.Int64
		p.Run(10, func(int, int) { done.Add(1) })
		p.Run(1, func(int, int) { done.Add(1) })
		p.Close()
		want := 0
		if threads == 1 {
			want = 11
		}
		if done.Load() != 11 || between != want {
			t.Errorf("%d threads: %d items and %d calls between, want 11 and %d", threads, done.Load(), between, want)
		}
	}
}
