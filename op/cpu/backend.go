// Package cpu is the fast CPU backend: op.Backend on the kernels of
// internal/kern (AVX-512, AVX2 or portable Go, chosen at run time) and one pool
// of threads. It builds for every platform, js/wasm among them, without cgo.
//
// Results have the same bits for any number of threads: work is cut into pieces
// by the shapes alone, each piece is done by one thread in a fixed order, and
// sums over pieces are taken in the order of the pieces. They differ in the last
// bits between levels, whose vectors have different lengths.
//
// In steady state a call allocates nothing: each op keeps its arguments in a
// task that lives in the Backend, and scratch grows to what the largest call
// needs. Every call is finished when it returns.
//
// This file has the life of a backend, memory.go its buffers, tasks.go how work
// is handed to threads; each op has a file of its own. Open rmsnorm.go for a
// first example, attention.go for the largest.
package cpu

import (
	"fmt"

	"tezgah/op"
	"tezgah/op/cpu/internal/kern"
)

// Options choose how a backend computes.
type Options struct {
	Threads int    // number of threads; 0 means all that Go may use (GOMAXPROCS)
	Level   string // "avx512", "avx2" or "portable"; "" means $TEZGAH_CPU, or else the fastest
	Between func() // with one thread, called between the pieces of an operation, for a program that has no other; may be nil
}

// maxThreads guards against a mistyped number.
const maxThreads = 1024

// Backend implements op.Backend on this machine's processor. One goroutine uses
// it at a time.
type Backend struct {
	k       kern.Kernels
	pool    *kern.Pool
	engine  *kern.Engine
	workers []worker // one per thread
	memory  memory
	tasks   tasks
	shared  shared
}

// worker is the scratch of one thread.
type worker struct {
	tile attnTile
	row  []float32 // a row of scores, or of converted weights
	_    [64]byte  // keep two threads' fields off one cache line
}

// shared is scratch that the tasks of one op share. It grows and is kept.
type shared struct {
	kt, vt   []float32 // keys and values transposed, for attention
	partial  []float32 // sums per piece, before they are added in order
	partial2 []float64
	weights  []float32 // float16 weights, converted
}

var _ op.Backend = (*Backend)(nil)

// New starts a backend. Close ends its threads.
func New(o Options) (*Backend, error) {
	k, err := selectLevel(o.Level)
	if err != nil {
		return nil, fmt.Errorf("cpu: %w", err)
	}
	if o.Threads < 0 || o.Threads > maxThreads {
		return nil, fmt.Errorf("cpu: %d threads, want 1 to %d, or 0 for all", o.Threads, maxThreads)
	}
	pool := kern.NewPool(o.Threads)
	pool.Between = o.Between
	b := &Backend{k: k, pool: pool, engine: kern.NewEngine(k, pool), workers: make([]worker, pool.Threads())}
	b.memory.limit = availableBytes()
	b.tasks.b = b
	return b, nil
}

func selectLevel(name string) (kern.Kernels, error) {
	if name == "" {
		return kern.Select()
	}
	l, err := kern.ParseLevel(name)
	if err != nil {
		return kern.Kernels{}, err
	}
	return kern.For(l)
}

// Levels lists the levels that this machine can run, the fastest last.
func Levels() []string {
	var names []string
	for _, l := range kern.Available() {
		names = append(names, l.String())
	}
	return names
}

// Name returns "cpu".
func (b *Backend) Name() string { return "cpu" }

// Device says which processor, level and number of threads are used.
func (b *Backend) Device() string {
	return fmt.Sprintf("%s, %s, %d threads", processorName(), b.k.Level(), b.pool.Threads())
}

// Threads returns the number of threads.
func (b *Backend) Threads() int { return b.pool.Threads() }

// Level returns the name of the kernels' level.
func (b *Backend) Level() string { return b.k.Level().String() }

// Limits has no limit on sizes but the memory that is available. Float16
// weights are converted as they are read, which saves memory and costs time.
func (b *Backend) Limits() op.Limits {
	return op.Limits{F16: true, FreeBytes: b.memory.free()}
}

// Flush does nothing: every call is finished when it returns.
func (b *Backend) Flush() error { return nil }

// Sync does nothing: every call is finished when it returns.
func (b *Backend) Sync() error { return nil }

// Close ends the threads. Closing twice is harmless.
func (b *Backend) Close() error {
	b.pool.Close()
	return nil
}

// grow returns s with length n, newly allocated only when it was too small; the
// contents are unspecified.
func grow(s []float32, n int) []float32 {
	if cap(s) >= n {
		return s[:n]
	}
	return make([]float32, n)
}
