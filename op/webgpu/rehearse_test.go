package webgpu

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"tezgah/gpu"
	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// trainStep makes a model on a backend, takes steps, and returns what everything
// occupies before the first and after the last.
func trainStep(b op.Backend, cfg model.Config, p model.ParamOptions, o model.TrainOptions, steps int) (buffers, now, peak int64, err error) {
	r := op.NewRunner(b)
	params, err := model.NewParams(r, cfg, p)
	if err != nil {
		return
	}
	defer params.Close()
	g, err := model.NewGraph(r, params, o)
	if err != nil {
		return
	}
	defer g.Close()
	adam, err := optim.New(r, params, optim.Defaults())
	if err != nil {
		return
	}
	if err = params.Init(1); err != nil {
		return
	}
	buffers, _ = b.MemoryBytes()
	tokens, targets := make([]int32, g.Rows()), make([]int32, g.Rows())
	for i := range tokens {
		tokens[i], targets[i] = int32(i%cfg.VocabSize), int32((i*7+1)%cfg.VocabSize)
	}
	var doc []int32
	if o.DocMask {
		doc = make([]int32, g.Rows())
	}
	for range steps {
		if err = g.MicroStep(tokens, targets, doc, 1/float32(len(tokens))); err != nil {
			return
		}
		if _, err = g.LossSum(); err != nil {
			return
		}
		if _, err = adam.Step(1e-3); err != nil {
			return
		}
	}
	if err = r.Sync(); err != nil {
		return
	}
	now, peak = b.MemoryBytes()
	return
}

// TestRehearsalPredictsMemory compares what a rehearsal counts with what the same
// steps occupy in earnest, in every precision that the device has: never less, and
// at most a tenth more.
func TestRehearsalPredictsMemory(t *testing.T) {
	cfg := model.Config{VocabSize: 130, Context: 40, DModel: 48, Layers: 2, Heads: 3, KVHeads: 1, HeadDim: 16, FFN: 80, Tied: true}.WithDefaults()
	full := model.ParamOptions{Grads: true, Moments: true}
	b := open(t, gpu.Options{}, Options{})
	defer b.Close()
	for _, c := range []struct {
		name string
		p    model.ParamOptions
		o    model.TrainOptions
	}{
		{"plain", full, model.TrainOptions{Batch: 3}},
		{"mask and recompute", full, model.TrainOptions{Batch: 2, Context: 37, DocMask: true, Recompute: true, LossChunkRows: 256}},
		{"8-bit moments, adapters", model.ParamOptions{Grads: true, Moments8: true, LoRA: model.LoRA{Rank: 4}}, model.TrainOptions{Batch: 3}},
	} {
		if runtime.GOOS == "js" && c.name != "plain" {
			continue // half a minute of compiling, and the launchers that count are the same everywhere
		}
		for _, round := range append([]tensor.DType{tensor.F32}, b.Rounding()...) {
			t.Run(fmt.Sprintf("%s %v", c.name, round), func(t *testing.T) {
				if err := b.RoundProducts(round); err != nil {
					t.Fatal(err)
				}
				c.p.Rounded = model.RoundedOn(b.Limits(), round)
				h, err := b.Rehearse()
				if err != nil {
					t.Fatal(err)
				}
				defer h.Close()
				planned, _, predicted, err := trainStep(h, cfg, c.p, c.o, 1)
				if err != nil {
					t.Fatal(err)
				}
				before, _ := b.MemoryBytes()
				buffers, now, _, err := trainStep(b, cfg, c.p, c.o, 2)
				if err != nil {
					t.Fatal(err)
				}
				if before != 0 || planned != buffers {
					t.Errorf("buffers take %d bytes in the rehearsal, %d in earnest (after %d)", planned, buffers, before)
				}
				if predicted < now || predicted-planned > (now-buffers)*11/10 || now == buffers {
					t.Errorf("scratch memory of %d bytes was predicted, %d are in use", predicted-planned, now-buffers)
				}
			})
		}
	}
}

// TestRehearsalCountsSplitProducts has the shapes of a large model, which a
// rehearsal takes as it takes small ones.
func TestRehearsalCountsSplitProducts(t *testing.T) {
	b := pretend(t, gpu.Discrete, Options{})
	h, err := b.Rehearse()
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	const m, n, k = 768, 768, 8192 // a weight's gradient
	splits, _ := splitK(m, n, k, b.dev.Limits().BindingSize)
	alloc := func(rows, cols int) op.Tensor {
		buf, err := h.Alloc("x", tensor.F32, rows*cols)
		if err != nil {
			t.Fatal(err)
		}
		return op.Of(buf, 0, rows, cols)
	}
	r := op.NewRunner(h)
	r.MatMul(op.MatMul{A: alloc(k, m), TransA: true, B: alloc(k, n), C: alloc(m, n)})
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	now, peak := h.MemoryBytes()
	if want := int64(4 * (k*m + k*n + m*n + splits*m*n)); splits < 2 || now != want || peak != want {
		t.Errorf("%d bytes, at most %d, want %d for a product in %d parts", now, peak, want, splits)
	}
	if n := b.dev.Memory().Buffers; n != 2 {
		t.Errorf("the rehearsal left %d buffers on the device, want the backend's own 2", n)
	}
}

// TestEveryPresetRehearses plays a step of every preset through, in every precision:
// sizes that no test computes must not fail a check of the device layer.
func TestEveryPresetRehearses(t *testing.T) {
	b := pretend(t, gpu.Discrete, Options{Tune: TuneOff})
	for _, name := range model.Presets() {
		for _, round := range []tensor.DType{tensor.F32, tensor.BF16} {
			if err := b.RoundProducts(round); err != nil {
				t.Fatal(err)
			}
			h, err := b.Rehearse()
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := model.Preset(name)
			if err != nil {
				t.Fatal(err)
			}
			r := op.NewRunner(h)
			params, err := model.NewParams(r, cfg, model.ParamOptions{Grads: true, Moments8: true, Rounded: round})
			if err != nil {
				t.Fatal(err)
			}
			g, err := model.NewGraph(r, params, model.TrainOptions{Batch: 8})
			if err != nil {
				t.Fatal(err)
			}
			buffers, _ := h.MemoryBytes()
			zeros := make([]int32, g.Rows())
			if err := g.MicroStep(zeros, zeros, nil, 1); err != nil {
				t.Errorf("%s in %v: %v", name, round, err)
			}
			_, peak := h.MemoryBytes()
			t.Logf("%-6s %-4v %6d MiB of buffers, %5d MiB of scratch", name, round, buffers>>20, (peak-buffers)>>20)
			h.Close()
		}
	}
}

// TestRehearsalOutlivesItsDevice: what is rehearsed on a rehearsal, after the device is
// closed and by several goroutines at once, counts what the device's own does.
func TestRehearsalOutlivesItsDevice(t *testing.T) {
	cfg := model.Config{VocabSize: 130, Context: 40, DModel: 48, Layers: 1, Heads: 3, KVHeads: 1, HeadDim: 16, FFN: 80, Tied: true}.WithDefaults()
	count := func(b *Backend) (int64, error) {
		h, err := b.Rehearse()
		if err != nil {
			return 0, err
		}
		defer h.Close()
		_, _, peak, err := trainStep(h, cfg, model.ParamOptions{Grads: true, Moments: true}, model.TrainOptions{Batch: 3}, 1)
		return peak, err
	}
	b := open(t, gpu.Options{}, Options{})
	want, err := count(b)
	if err != nil {
		t.Fatal(err)
	}
	h, err := b.Rehearse()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if got, err := count(h.(*Backend)); got != want || err != nil {
				t.Errorf("%d bytes and error %v, want %d", got, err, want)
			}
		})
	}
	group.Wait()
}
