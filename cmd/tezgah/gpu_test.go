package main

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
)

// gpuData prepares text, tokenizer and token file, and names the test GPU.
func gpuData(t *testing.T) (device, bin, dir string) {
	t.Helper()
	device = gputest.Name(t)
	text := writeCorpus(t)
	dir = t.TempDir()
	tok, bin := filepath.Join(dir, "t.json"), filepath.Join(dir, "d.bin")
	must(t, "tokenizer", "train", "--vocab-size", "400", "--out", tok, text)
	must(t, "data", "build", "--tokenizer", tok, "--out", bin, text)
	return device, bin, dir
}

// gpuTrain are the flags of a run small enough for a GPU that a CPU imitates.
func gpuTrain(device, bin, out string, more ...string) []string {
	return append([]string{"train", "--data", bin, "--out", out, "--device", device, "--d-model", "32", "--layers", "1", "--heads", "2",
		"--kv-heads", "1", "--ffn", "48", "--context", "24", "--batch", "2", "--checkpoint-every", "8", "--eval-every=-1",
		"--eval-tokens", "96", "--seed", "3", "--json"}, more...)
}

// stepLosses reads the losses out of run-log lines.
func stepLosses(t *testing.T, lines string) []float64 {
	t.Helper()
	var out []float64
	for _, l := range strings.Split(strings.TrimSpace(lines), "\n") {
		var rec struct {
			Type string
			Loss float64
		}
		if err := json.Unmarshal([]byte(l), &rec); err != nil {
			t.Fatalf("line %q: %v", l, err)
		}
		if rec.Type == "step" {
			out = append(out, rec.Loss)
		}
	}
	return out
}

// TestGPUParity trains 200 steps on the CPU and on the GPU from one seed. Both
// compute in float32 and differ in the order of sums alone, a relative error
// of about 1e-6 in a gradient. AdamW divides by √v, so where a gradient is
// nearly 0 its sign decides an update of about the learning rate, and two
// runs part slowly: measured 1e-6 nats within 200 steps on llvmpipe. The bound
// is a thousand times that, room for drivers with other exponentials, and a
// thousandth of what a run learns.
func TestGPUParity(t *testing.T) {
	device, bin, dir := gpuData(t)
	a := stepLosses(t, must(t, gpuTrain("cpu", bin, filepath.Join(dir, "cpu"), "--max-steps", "200")...))
	b := stepLosses(t, must(t, gpuTrain(device, bin, filepath.Join(dir, "gpu"), "--max-steps", "200")...))
	if len(a) != 200 || len(b) != 200 {
		t.Fatalf("%d and %d steps", len(a), len(b))
	}
	worst := 0.0
	for i := range a {
		worst = max(worst, math.Abs(a[i]-b[i]))
		if i < 3 && math.Abs(a[i]-b[i]) > 1e-4 {
			t.Errorf("step %d: loss %v on the CPU, %v on the GPU", i+1, a[i], b[i])
		}
	}
	if worst > 1e-3 {
		t.Errorf("losses part by %v", worst)
	}
	if a[199] > a[0]-1 {
		t.Errorf("the CPU run did not learn: %v to %v", a[0], a[199])
	}
	t.Logf("largest difference of a loss over 200 steps: %.2g", worst)
}

// TestGPUExact: two runs of one seed have the same bits, and so has a run that
// was interrupted and resumed.
func TestGPUExact(t *testing.T) {
	device, bin, dir := gpuData(t)
	for _, precision := range []string{"f32", "mixed"} {
		run := func(name string) string { return filepath.Join(dir, precision+name) }
		flags := []string{"--max-steps", "20", "--precision", precision}
		must(t, gpuTrain(device, bin, run("a"), flags...)...)
		must(t, gpuTrain(device, bin, run("b"), flags...)...)
		sameModel(t, run("a"), run("b"))

		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, errOut, code := invoke(t, ctx, gpuTrain(device, bin, run("c"), flags...)...); code != exitInterrupted {
			t.Fatalf("exit code %d: %s", code, errOut)
		}
		must(t, "train", "--resume", run("c"), "--device", device, "--max-time", "1ns")
		must(t, "train", "--resume", run("c"), "--device", device, "--max-time", "1ms")
		must(t, "train", "--resume", run("c"), "--device", device, "--max-time", "0")
		sameModel(t, run("a"), run("c"))
	}
}

// sameModel compares the finished models of two runs: every byte behind the
// header, which holds times and speeds.
func sameModel(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(filepath.Join(a, "model.llm"))
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(filepath.Join(b, "model.llm"))
	if err != nil {
		t.Fatal(err)
	}
	data := func(p []byte) string {
		n := 0
		for i := 7; i >= 0; i-- {
			n = n<<8 | int(p[i])
		}
		return string(p[8+n:])
	}
	if data(x) != data(y) {
		t.Errorf("the models of %s and %s differ", filepath.Base(a), filepath.Base(b))
	}
}

// TestGPUMovesToCPU begins a run on one device and ends it on the other, both
// ways. In float32 the course is that of an unmoved run; see TestGPUParity for
// the bound.
func TestGPUMovesToCPU(t *testing.T) {
	device, bin, dir := gpuData(t)
	whole := stepLosses(t, must(t, gpuTrain("cpu", bin, filepath.Join(dir, "whole"), "--max-steps", "24")...))
	for _, pair := range [][2]string{{device, "cpu"}, {"cpu", device}} {
		run := filepath.Join(dir, "from-"+strings.ReplaceAll(pair[0], ":", ""))
		moved := stepLosses(t, must(t, gpuTrain(pair[0], bin, run, "--max-steps", "24", "--max-time", "1ms")...))
		if len(moved) == 0 || len(moved) == 24 {
			t.Fatalf("%v: the first part has %d steps", pair, len(moved))
		}
		moved = append(moved, stepLosses(t, must(t, "train", "--resume", run, "--device", pair[1], "--max-time", "0", "--json"))...)
		if len(moved) != 24 {
			t.Fatalf("%v: %d steps in all", pair, len(moved))
		}
		for i, l := range moved {
			if !(math.Abs(l-whole[i]) <= 1e-3) {
				t.Errorf("%v: step %d has loss %v, the unmoved run %v", pair, 1+i, l, whole[i])
			}
		}
	}
}

// TestGPUMixedToCPU: a run with 16-bit weights goes on in f32 on a device
// without them, and says so where that is so.
func TestGPUMixedToCPU(t *testing.T) {
	device, bin, dir := gpuData(t)
	run := filepath.Join(dir, "run")
	first := stepLosses(t, must(t, gpuTrain(device, bin, run, "--max-steps", "24", "--max-time", "1ms", "--precision", "mixed")...))
	rest := stepLosses(t, must(t, "train", "--resume", run, "--device", "cpu", "--max-time", "0", "--json"))
	whole := stepLosses(t, must(t, gpuTrain("cpu", bin, filepath.Join(dir, "whole"), "--max-steps", "24")...))
	for i, l := range append(first, rest...) {
		// A weight's rounding to 11 bits moves a logit by about 2⁻¹¹ of its size,
		// and a loss near 6 by less than a hundredth.
		if !(math.Abs(l-whole[i]) <= 1e-2) {
			t.Errorf("step %d has loss %v, in f32 %v", 1+i, l, whole[i])
		}
	}
}

// TestGPUGenerate: greedy text is the same on both devices.
func TestGPUGenerate(t *testing.T) {
	device, bin, dir := gpuData(t)
	run := filepath.Join(dir, "run")
	must(t, gpuTrain("cpu", bin, run, "--max-steps", "60")...)
	args := []string{"generate", run, "--prompt", "the loom", "--max-tokens", "30", "--temperature", "0", "--device"}
	a, b := must(t, append(args, "cpu")...), must(t, append(args, device)...)
	if a != b {
		t.Errorf("the CPU says %q, the GPU %q", a, b)
	}
}

func TestGPUMissing(t *testing.T) {
	_, errOut, code := invoke(t, context.Background(), "bench", "--device", "gpu:77")
	if code != exitFailed || strings.Count(strings.TrimSpace(errOut), "\n") > 0 || !strings.Contains(errOut, "77") {
		t.Errorf("exit code %d: %q", code, errOut)
	}
	if _, err := gpu.Open(gpu.Options{Device: "no such adapter"}); !errors.Is(err, gpu.ErrNoAdapter) {
		t.Errorf("got %v", err)
	}
}
