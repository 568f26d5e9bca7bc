package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"tezgah/op/cpu/internal/kern"
)

// bench holds the contenders.
type bench struct {
	kernels  kern.Kernels
	pool     *kern.Pool
	engine   *kern.Engine
	a, b, c  []float32
	blas     *exec.Cmd
	blasIn   io.WriteCloser
	blasOut  *bufio.Scanner
	blasInfo string
}

func newBench(k kern.Kernels, threads int, blas string) (*bench, error) {
	pool := kern.NewPool(threads)
	b := &bench{kernels: k, pool: pool, engine: kern.NewEngine(k, pool)}
	if blas == "" {
		return b, nil
	}
	b.blas = exec.Command(blas, strconv.Itoa(threads))
	b.blas.Stderr = os.Stderr
	out, err := b.blas.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if b.blasIn, err = b.blas.StdinPipe(); err != nil {
		return nil, err
	}
	if err := b.blas.Start(); err != nil {
		return nil, err
	}
	b.blasOut = bufio.NewScanner(out)
	b.blasInfo = b.blasLine()
	return b, nil
}

func (b *bench) close() {
	b.pool.Close()
	if b.blas != nil {
		b.blasIn.Close()
		b.blas.Wait()
	}
}

func (b *bench) blasLine() string {
	if !b.blasOut.Scan() {
		log.Fatalf("openblas program ended: %v", b.blasOut.Err())
	}
	return b.blasOut.Text()
}

// calls is how many products are timed together: about 10 ms of them at 100 GFLOP/s a thread.
func (b *bench) calls(s shape) int {
	return max(1, int(1e9*float64(b.pool.Threads())/s.flops()))
}

// prepare makes operands large enough for the shape, filled with small numbers.
func (b *bench) prepare(s shape) {
	for _, x := range []struct {
		buf *[]float32
		n   int
	}{{&b.a, s.M * s.K}, {&b.b, s.K * s.N}, {&b.c, s.M * s.N}} {
		if len(*x.buf) >= x.n {
			continue
		}
		*x.buf = make([]float32, x.n)
		for i := range *x.buf {
			(*x.buf)[i] = float32(uint32(i)*2654435761>>8%1000)/500 - 1
		}
	}
}

// runOurs returns the seconds of one product, after one that is not timed.
func (b *bench) runOurs(s shape) float64 {
	lda, ldb := s.K, s.N
	if s.Form == "TN" {
		lda = s.M
	}
	if s.Form == "NT" {
		ldb = s.K
	}
	one := func() { b.engine.Gemm(s.form(), s.M, s.N, s.K, b.a, lda, b.b, ldb, b.c, s.N, false) }
	one()
	calls := b.calls(s)
	start := time.Now()
	for range calls {
		one()
	}
	return time.Since(start).Seconds() / float64(calls)
}

// runBLAS is the same for OpenBLAS.
func (b *bench) runBLAS(s shape) float64 {
	fmt.Fprintf(b.blasIn, "%s %d\n", s, b.calls(s))
	sec, err := strconv.ParseFloat(b.blasLine(), 64)
	if err != nil || sec <= 0 {
		log.Fatalf("openblas program answered %q for %s", b.blasOut.Text(), s)
	}
	return sec
}

func goVersion() string { return runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH }

// cpuName is the processor's name and model where Linux tells them.
func cpuName() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	var name, model string
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "model name":
			name = strings.TrimSpace(value)
		case "model":
			model = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%s (model %s), %d logical processors", name, model, runtime.NumCPU())
}
