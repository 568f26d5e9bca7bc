package bench

import (
	"math"
	"testing"
	"time"

	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
)

// TestEveryMeasurement runs each measurement on a tiny model and checks that
// the numbers belong together.
func TestEveryMeasurement(t *testing.T) {
	backend, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	r := op.NewRunner(backend)
	var seen int
	b, err := New(r, Options{Each: time.Nanosecond, Report: func(Result) { seen++ }})
	if err != nil {
		t.Fatal(err)
	}
	cfg := model.Config{VocabSize: 300, Context: 16, DModel: 32, Layers: 1, Heads: 2, KVHeads: 1, FFN: 64, Tied: true}.WithDefaults()
	before, _ := backend.MemoryBytes()
	for name, run := range map[string]func() error{
		"matmuls": func() error { return b.MatMuls(cfg, StepOptions{Batch: 2, Context: 16}) },
		"adamw":   func() error { return b.AdamW(5000) },
		"step":    func() error { return b.Step("tiny", cfg, StepOptions{Batch: 2, Context: 16}) },
		"moments": func() error { return b.Step("tiny", cfg, StepOptions{Batch: 2, Context: 16, Moments8: true}) },
		"decode":  func() error { return b.Decode("tiny", cfg, 4, false) },
	} {
		if err := run(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	rep := b.Report()
	if len(rep.Results) != 3*5+4 || seen != len(rep.Results) || rep.PeakGFLOPS <= 0 || rep.PeakGBPerSec <= 0 {
		t.Fatalf("report %+v, %d results were announced", rep, seen)
	}
	for _, res := range rep.Results {
		if (res.OfCopy > 0) != (res.GBPerSec > 0) {
			t.Errorf("%s: %v of a copy at %v GB/s", res.Name, res.OfCopy, res.GBPerSec)
		}
		if res.MedianMs <= 0 || res.Share <= 0 || res.Reps < 5 || (res.GFLOPS > 0) == (res.GBPerSec > 0) {
			t.Errorf("result %+v", res)
		}
	}
	if after, _ := backend.MemoryBytes(); after != before {
		t.Errorf("measuring left %d bytes allocated", after-before)
	}
}

// TestProfileStep: the rows cover the step's operations, in descending time.
func TestProfileStep(t *testing.T) {
	backend, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	cfg := model.Config{VocabSize: 300, Context: 16, DModel: 32, Layers: 2, Heads: 2, KVHeads: 1, FFN: 64, Tied: true}.WithDefaults()
	p, err := ProfileStep(op.NewRunner(backend), cfg, StepOptions{Batch: 2, Context: 16}, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	rows := p.Rows()
	for i, row := range rows {
		calls[row.Label] = row.Calls
		if i > 0 && row.Time > rows[i-1].Time {
			t.Errorf("%s took longer than the row above it", row.Label)
		}
	}
	// Two layers, three steps: attention runs 6 times, the norm 15, AdamW once
	// for each of the two blocks.
	for label, want := range map[string]int{"attention_forward": 6, "attention_backward": 6, "rmsnorm_forward": 15, "adamw_update": 6, "cross_entropy": 3} {
		if calls[label] != want {
			t.Errorf("%s ran %d times, want %d", label, calls[label], want)
		}
	}
}

// TestOfCopy: what is bound by memory is held against a copy of as many bytes as one
// call moves, too; what is bound by arithmetic is not.
func TestOfCopy(t *testing.T) {
	r := op.NewRunner(newNotebook())
	cfg := model.Config{VocabSize: 300, Context: 16, DModel: 32, Layers: 1, Heads: 2, FFN: 64, Tied: true}.WithDefaults()
	p, err := ProfileStep(r, cfg, StepOptions{Batch: 1, Context: 16}, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A copy of any size reaches half the peak, and what does more than 0.8 FLOPs a byte is
	// bound by arithmetic: products are, AdamW is not.
	peak := op.Peak{FLOPS: 8e11, BytesPerSec: 1e12, Copies: []op.CopyRate{{Bytes: 1, BytesPerSec: 5e11}}}
	rows, _ := p.OpRows(peak)
	byMemory := 0
	for _, row := range rows {
		want := 0.0
		if row.ByMemory {
			want = 2 * row.OfPeak
			byMemory++
		}
		if math.Abs(row.OfCopy-want) > 1e-9*want {
			t.Errorf("%s: %v of a copy, want %v", row.Name, row.OfCopy, want)
		}
		if row.Name == "matmul" && (row.ByMemory || row.OfPeak == 0) {
			t.Errorf("%+v, want a product bound by arithmetic", row)
		}
	}
	if byMemory == 0 {
		t.Errorf("nothing is bound by memory in %+v", rows)
	}
}
