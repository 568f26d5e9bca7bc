// Command gemmbench measures the matrix products of a training step: our GFLOP/s, OpenBLAS's and the
// fused multiply-add peak, with their ratios.
//
// Build OpenBLAS's side with
//
//	cc -O2 -o sgemm bench/openblas/sgemm.c -lopenblas
//
// and pass it with -openblas. OpenBLAS picks its kernel by the processor's model; where it does not
// know the model and falls back to an old one, OPENBLAS_CORETYPE=SkylakeX gives it its AVX-512 kernel.
//
// Every repetition of a shape runs all contenders one after another and takes the ratios within it;
// the table has the medians over repetitions, and the ratios of the best times as well, which on a
// machine that is doing other things are what the code can do. OpenBLAS runs in a process of its own (see
// bench/openblas), so that this program needs no cgo. Its threads spin for a while after each call,
// hence the pause behind it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"tezgah/op/cpu/internal/kern"
)

// settle is how long OpenBLAS's threads are given to stop spinning after a call on several threads.
const settle = 150 * time.Millisecond

// report is the JSON that goes into bench/.
type report struct {
	Date     string   `json:"date"`
	Command  string   `json:"command"`
	CPU      string   `json:"cpu"`
	Go       string   `json:"go"`
	Level    string   `json:"level"`
	OpenBLAS string   `json:"openblas,omitempty"`
	Threads  int      `json:"threads"`
	Reps     int      `json:"reps"`
	Rows     []result `json:"rows"`
	GeoMean  struct {
		OfOpenBLAS float64 `json:"of_openblas,omitempty"`
		OfPeak     float64 `json:"of_peak"`
		Best       ratios  `json:"best"`
	} `json:"geometric_mean"`
}

// result is one shape's medians.
type result struct {
	shape
	GFLOPS     float64 `json:"gflops"`
	OpenBLAS   float64 `json:"openblas_gflops,omitempty"`
	Peak       float64 `json:"peak_gflops"`
	OfOpenBLAS float64 `json:"of_openblas,omitempty"`
	OfPeak     float64 `json:"of_peak"`
	Best       ratios  `json:"best"`
}

// ratios are those of the best repetitions of each contender.
type ratios struct {
	OfOpenBLAS float64 `json:"of_openblas,omitempty"`
	OfPeak     float64 `json:"of_peak"`
}

func main() {
	log.SetFlags(0)
	threads := flag.Int("threads", 1, "threads")
	reps := flag.Int("reps", 7, "repetitions of each shape; three at most of those above 10 GFLOP")
	presets := flag.String("presets", "mini,small", "presets whose shapes are measured")
	rows := flag.String("rows", "2048,512", "numbers of rows (batch times time)")
	only := flag.String("only", "", "measure only shapes whose line contains this text")
	blas := flag.String("openblas", "", "program built from bench/openblas/sgemm.c; empty for none")
	out := flag.String("json", "", "write the results to this file")
	flag.Parse()
	k, err := kern.Select()
	if err != nil {
		log.Fatal(err)
	}
	shapes, err := shapesOf(*presets, *rows, *only)
	if err != nil {
		log.Fatal(err)
	}
	b, err := newBench(k, *threads, *blas)
	if err != nil {
		log.Fatal(err)
	}
	defer b.close()
	r := b.measureAll(shapes, *reps)
	r.Command = "gemmbench " + strings.Join(os.Args[1:], " ")
	if *out != "" {
		text, err := json.MarshalIndent(r, "", " ")
		if err == nil {
			err = os.WriteFile(*out, append(text, '\n'), 0o644)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

// measureAll prints a line for each shape as it goes.
func (b *bench) measureAll(shapes []shape, reps int) *report {
	r := &report{
		Date: time.Now().UTC().Format("2006-01-02"), CPU: cpuName(), Go: goVersion(),
		Level: b.kernels.Level().String(), OpenBLAS: b.blasInfo, Threads: b.pool.Threads(), Reps: reps,
	}
	fmt.Printf("%s, %s, level %s, %d threads\n", r.CPU, r.Go, r.Level, r.Threads)
	if r.OpenBLAS != "" {
		fmt.Println(r.OpenBLAS)
	}
	fmt.Printf("%-20s %8s %8s %8s %9s %6s %14s %6s\n", "form m n k", "ours", "openblas", "peak", "/openblas", "/peak", "best /openblas", "/peak")
	var ofBLAS, ofPeak, bestOfBLAS, bestOfPeak float64 // sums of logarithms
	for _, s := range shapes {
		x := b.measure(s, reps)
		r.Rows = append(r.Rows, x)
		ofBLAS += math.Log(x.OfOpenBLAS)
		ofPeak += math.Log(x.OfPeak)
		bestOfBLAS += math.Log(x.Best.OfOpenBLAS)
		bestOfPeak += math.Log(x.Best.OfPeak)
		fmt.Printf("%-20s %8.1f %8.1f %8.1f %9.3f %6.3f %14.3f %6.3f\n", s, x.GFLOPS, x.OpenBLAS, x.Peak,
			x.OfOpenBLAS, x.OfPeak, x.Best.OfOpenBLAS, x.Best.OfPeak)
	}
	n := float64(len(shapes))
	g := &r.GeoMean
	g.OfPeak, g.Best.OfPeak = math.Exp(ofPeak/n), math.Exp(bestOfPeak/n)
	if b.blas != nil {
		g.OfOpenBLAS, g.Best.OfOpenBLAS = math.Exp(ofBLAS/n), math.Exp(bestOfBLAS/n)
	}
	fmt.Printf("geometric mean: %.3f of OpenBLAS, %.3f of peak; best: %.3f, %.3f\n",
		g.OfOpenBLAS, g.OfPeak, g.Best.OfOpenBLAS, g.Best.OfPeak)
	return r
}

// measure runs the contenders reps times.
func (b *bench) measure(s shape, reps int) result {
	var ours, blas, peak, ofBLAS, ofPeak []float64
	b.prepare(s)
	if s.flops() > 1e10 {
		reps = min(reps, 3)
	}
	for range reps {
		p := b.peak()
		o := s.flops() / b.runOurs(s) * 1e-9
		p = max(p, b.peak()) // the first may find the processor at a low clock
		ours, peak, ofPeak = append(ours, o), append(peak, p), append(ofPeak, o/p)
		if b.blas != nil {
			x := s.flops() / b.runBLAS(s) * 1e-9
			blas, ofBLAS = append(blas, x), append(ofBLAS, o/x)
			if b.pool.Threads() > 1 {
				time.Sleep(settle)
			}
		}
	}
	r := result{shape: s, GFLOPS: median(ours), OpenBLAS: median(blas), Peak: median(peak), OfOpenBLAS: median(ofBLAS), OfPeak: median(ofPeak)}
	r.Best.OfPeak = slices.Max(ours) / slices.Max(peak)
	if b.blas != nil {
		r.Best.OfOpenBLAS = slices.Max(ours) / slices.Max(blas)
	}
	return r
}

// peak measures the fused multiply-add peak for a moment.
func (b *bench) peak() float64 {
	return b.kernels.PeakGFLOPS(b.pool.Threads(), 10*time.Millisecond)
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
