package webgpu

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/op/webgpu/matrix"
	"tezgah/tensor"
)

// pretend is a backend on a device that does nothing, with matrix units for both
// types that nobody looked at.
func pretend(t *testing.T, kind gpu.Kind, o Options) *Backend {
	t.Helper()
	info := gpu.AdapterInfo{Name: "Pretender 9000", Kind: kind, Backend: gpu.BackendVulkan, Driver: "1"}
	limits := gpu.DefaultLimits()
	limits.StorageBuffers = 16
	limits.BufferSize, limits.BindingSize, limits.WorkgroupMemory, limits.Invocations, limits.WorkgroupSizeX = 1<<32-4, 1<<32-4, 48<<10, 1024, 1024
	b, err := New(gpu.NewRehearsal(info, limits, gpu.Features{F16: true, Subgroups: true, SubgroupSize: 32}), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	for _, input := range []tensor.DType{tensor.BF16, tensor.F16} {
		b.matrix.fragments[input] = matrix.Fragment{M: 16, N: 16, K: 16, Threads: 32}
	}
	b.dropSlowUnits()
	return b
}

// ownCache lets a test keep files for itself; a browser has none.
func ownCache(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "js" {
		t.Skip("a browser has no files")
	}
	t.Setenv("TEZGAH_CACHE", t.TempDir())
}

// racing returns a race with a result and counts how often it is run.
func racing(n *int, units, plain float64) func(tensor.DType) (unitsRace, error) {
	return func(tensor.DType) (unitsRace, error) {
		*n++
		return unitsRace{Size: 1024, Units: units, Plain: plain}, nil
	}
}

// TestSlowUnitsAreNotUsed: a type whose product is faster in float32 disappears,
// with both figures, and at later starts at once. The other type stays.
func TestSlowUnitsAreNotUsed(t *testing.T) {
	ownCache(t)
	b, races := pretend(t, gpu.Discrete, Options{}), 0
	err := b.checkSpeed(tensor.BF16, racing(&races, 0.0031, 0.0024))
	for _, say := range []string{"BF16", "3.1 ms", "2.4 ms", "1024", "Pretender 9000"} {
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("got %v, want an error that says %q", err, say)
		}
	}
	if err := b.checkSpeed(tensor.F16, racing(&races, 0.0005, 0.0024)); err != nil {
		t.Error(err)
	}
	if races != 2 || !slices.Equal(b.Rounding(), []tensor.DType{tensor.F16}) {
		t.Errorf("%d races, types %v", races, b.Rounding())
	}
	if err := b.RoundProducts(tensor.BF16); err == nil {
		t.Error("a type that was given up is taken")
	}

	again := pretend(t, gpu.Discrete, Options{})
	if !slices.Equal(again.Rounding(), []tensor.DType{tensor.F16}) || !strings.Contains(again.Notice(), "2.4 ms") {
		t.Errorf("the next start has %v and says %q", again.Rounding(), again.Notice())
	}
	if err := again.checkSpeed(tensor.F16, racing(&races, 1, 0)); err != nil || races != 2 {
		t.Errorf("the next start: %v, %d races, want the result on disk", err, races-2)
	}
}

// TestRaceAgain lists what makes units race again in spite of a result on disk.
func TestRaceAgain(t *testing.T) {
	ownCache(t)
	kernel := fingerprint(tensor.F16, "matmul")
	for name, kept := range map[string]any{
		"another kernel": map[string]unitsRace{tensor.F16.String(): {Kernel: "0123", Units: 2, Plain: 1}},
		"no time":        map[string]unitsRace{tensor.F16.String(): {Kernel: kernel, Plain: 1}},
		"not a number":   map[string]map[string]any{tensor.F16.String(): {"Kernel": kernel, "Units": "x"}},
		"a list":         []int{1, 2},
		"null":           nil,
	} {
		b, races := pretend(t, gpu.Discrete, Options{}), 0
		if err := b.dev.SaveCache(raceSubject, kept); err != nil {
			t.Fatal(err)
		}
		b = pretend(t, gpu.Discrete, Options{})
		if err := b.checkSpeed(tensor.F16, racing(&races, 1, 2)); err != nil || races != 1 {
			t.Errorf("%s: %v, %d races, want 1", name, err, races)
		}
		if err := b.checkSpeed(tensor.F16, racing(&races, 1, 2)); err != nil || races != 1 {
			t.Errorf("%s: %v, %d races in all after asking twice", name, err, races)
		}
	}
	b, races := pretend(t, gpu.Discrete, Options{}), 0
	_ = b.dev.SaveCache(raceSubject, nil)
	broken := errors.New("no clock")
	if err := b.checkSpeed(tensor.F16, func(tensor.DType) (unitsRace, error) { return unitsRace{}, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want that the units cannot be timed", err)
	}
	if err := b.checkSpeed(tensor.F16, racing(&races, 1, 2)); err != nil || races != 1 {
		t.Errorf("after a race that failed: %v, %d races", err, races)
	}
}

// TestUnmeasuredUnitsAreTaken: software adapters are there for tests, and TuneOff
// measures nothing.
func TestUnmeasuredUnitsAreTaken(t *testing.T) {
	ownCache(t)
	for name, b := range map[string]*Backend{
		"software": pretend(t, gpu.Software, Options{}),
		"TuneOff":  pretend(t, gpu.Discrete, Options{Tune: TuneOff}),
	} {
		races := 0
		if err := b.checkSpeed(tensor.F16, racing(&races, 2, 1)); err != nil || races != 0 || len(b.Rounding()) != 2 {
			t.Errorf("%s: %v, %d races, types %v", name, err, races, b.Rounding())
		}
	}
	b, races := pretend(t, gpu.Software, Options{Tune: TuneOn}), 0
	if err := b.checkSpeed(tensor.F16, racing(&races, 2, 1)); err == nil || races != 1 {
		t.Errorf("TuneOn: %v, %d races, want the units to lose one", err, races)
	}
}

func TestRaceSize(t *testing.T) {
	for kind, want := range map[gpu.Kind]int{gpu.Discrete: 1024, gpu.Integrated: 512, gpu.Software: 128} {
		if got := raceSize(dispatchBudget(kind)); got != want {
			t.Errorf("%v: a product of %d, want %d", kind, got, want)
		}
	}
}

// TestRaceUnits times a real race: both ways take time, whatever wins, and the
// backend is as it was.
func TestRaceUnits(t *testing.T) {
	b := matrixBackend(t)
	input := b.Rounding()[0]
	b.tuner.tiles = b.tuner.tiles[len(b.tuner.tiles)-1:] // few to compile
	r, err := b.raceUnits(input)
	if err != nil || !(r.Units > 0 && r.Units < 60 && r.Plain > 0 && r.Plain < 60) || r.Size < 128 {
		t.Fatalf("%+v, %v", r, err)
	}
	t.Logf("%d × %d × %d: %.3g ms on the units, %.3g ms in float32", r.Size, r.Size, r.Size, 1e3*r.Units, 1e3*r.Plain)
	if now, _ := b.MemoryBytes(); now != 0 || b.matrix.rounding != tensor.F32 || b.tuner.busy {
		t.Errorf("left behind: %d bytes, rounding %v, busy %v", now, b.matrix.rounding, b.tuner.busy)
	}
}

// TestAttentionVerdict: attention that a probe finds wrong is not used, by itself,
// with a notice, also at the next start; what says nothing about the kernels is not
// kept.
func TestAttentionVerdict(t *testing.T) {
	ownCache(t)
	p := attentionProbe{tensor.BF16, 64, true, true}
	tries := 0
	try := func(err error) func(attentionProbe) error {
		return func(attentionProbe) error { tries++; return err }
	}
	b := pretend(t, gpu.Discrete, Options{})
	if b.judgeAttention(p, try(fmt.Errorf("reset: %w", gpu.ErrLost))) {
		t.Error("attention of a lost device is used")
	}
	b = pretend(t, gpu.Discrete, Options{})
	if b.judgeAttention(p, try(errors.New("dk[3] is 7, want 5"))) || tries != 2 {
		t.Errorf("wrong attention is used, or was not tried (%d)", tries)
	}
	if n := b.Notice(); !strings.Contains(n, "dk[3] is 7, want 5") || !strings.Contains(n, "heads of 64") || !strings.Contains(n, "BF16") {
		t.Errorf("the notice is %q", n)
	}
	b.matrix.rounding = tensor.BF16
	if b.matrixAttends(64, true, true) || len(b.Rounding()) != 2 {
		t.Errorf("attends %v, types %v: want products alone", b.matrixAttends(64, true, true), b.Rounding())
	}
	again := pretend(t, gpu.Discrete, Options{})
	if again.judgeAttention(p, try(nil)) || tries != 2 || again.Notice() == "" {
		t.Errorf("the next start tries again (%d) or says nothing: %q", tries, again.Notice())
	}
	p.doc = false
	if !again.judgeAttention(p, try(nil)) || tries != 3 {
		t.Errorf("another mask: %d tries", tries)
	}
	if again := pretend(t, gpu.Discrete, Options{}); !again.judgeAttention(p, try(nil)) || tries != 3 {
		t.Errorf("the next start tried again (%d)", tries)
	}
}

// TestAttentionProbe runs the probe for real: it passes, and finds a result that
// differs, one that was not written, and one that a wrong mask gives.
func TestAttentionProbe(t *testing.T) {
	b := matrixBackend(t)
	for _, input := range b.Rounding() {
		b.matrix.rounding = input
		for _, doc := range []bool{false, true} {
			if err := b.tryAttention(attentionProbe{input, 16, doc, doc}); err != nil {
				t.Errorf("%v, mask and 16-bit tensors %v: %v", input, doc, err)
			}
		}
	}
	b.matrix.rounding = tensor.F32
}

func TestAttentionProbeBites(t *testing.T) {
	masked, plain := newAttentionCase(attentionProbe{tensor.BF16, 16, true, true}), newAttentionCase(attentionProbe{tensor.BF16, 16, false, true})
	for name, want := range masked.want {
		got := make([]float32, len(want.value))
		for i, v := range want.value {
			got[i] = float32(v)
		}
		if err := masked.check(name, got); err != nil {
			t.Errorf("the result itself: %v", err)
		}
		if plain.check(name, got) == nil {
			t.Errorf("%s: a missing mask is not found", name)
		}
		for i := range got {
			old := got[i]
			for _, wrong := range []float32{old + float32(2.5*want.bound[i]) + 1e-5, float32(math.NaN()), 0} {
				if got[i] = wrong; (wrong != 0 || max(old, -old) > float32(want.bound[i])+1e-5) && masked.check(name, got) == nil {
					t.Fatalf("%s[%d]: %v instead of %v ± %v is not found", name, i, wrong, old, want.bound[i])
				}
			}
			got[i] = old
		}
		if name != "lse" && masked.check(name, make([]float32, len(got))) == nil {
			t.Errorf("%s: zeros pass", name)
		}
	}
}

// TestProductsRoundToNearest stores sums that are hard to round in 16 bits, to bfloat16
// in both ways. Some drivers' own conversions cut bits off.
func TestProductsRoundToNearest(t *testing.T) {
	b := matrixBackend(t)
	defer b.Close()
	found := b.matrix.splits
	t.Logf("bfloat16 is rounded by splitting: %v", found)
	for _, input := range b.Rounding() {
		for _, splits := range []bool{false, found} {
			b.matrix.splits = splits
			if err := b.tryRounding(input); err != nil {
				t.Errorf("by splitting %v: %v", splits, err)
			}
		}
	}
}

// TestRoundingProbeBites: other ways of rounding do not pass.
func TestRoundingProbeBites(t *testing.T) {
	parts := hardToRound(0x1p-8, 0x1.FEp111)
	for name, round := range map[string]func(x float32) uint16{
		"cut off":      func(x float32) uint16 { return uint16(math.Float32bits(x) >> 16) },
		"ties upwards": func(x float32) uint16 { return uint16((math.Float32bits(x) + 0x8000) >> 16) },
		"NaN hidden": func(x float32) uint16 {
			if x != x {
				return 0
			}
			return tensor.ToBF16(x)
		},
		"": tensor.ToBF16,
	} {
		var got []float32
		for _, p := range parts {
			got = append(got, tensor.FromBF16(round(p[0]+p[1])))
		}
		if err := checkRounding(tensor.BF16, parts, got); (err == nil) != (name == "") {
			t.Errorf("rounding %q: %v", name, err)
		}
	}
}
