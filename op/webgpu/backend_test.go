package webgpu

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
	"tezgah/op"
	"tezgah/op/optest"
	"tezgah/tensor"
)

// open returns a backend on the test device; TEZGAH_REQUIRE_GPU=1 makes a
// missing one a failure.
func open(t testing.TB, o gpu.Options, bo Options) *Backend {
	t.Helper()
	o.Device = gputest.Name(t)
	d, err := gpu.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(d, bo)
	if err != nil {
		d.Close()
		t.Fatal(err)
	}
	return b
}

// suite runs optest on a device opened with o. TEZGAH_TEST_LARGE=1 adds the
// cases that are too slow for a software GPU.
func suite(t *testing.T, o gpu.Options, bo Options, only func(name string) bool) {
	b := open(t, o, bo)
	t.Log(b.Device())
	wanted := func(name string) bool {
		return !(runtime.GOOS == "js" && slowInBrowser(name)) && (only == nil || only(name))
	}
	optest.Run(t, func() (op.Backend, error) { return b, nil }, optest.Options{Large: os.Getenv("TEZGAH_TEST_LARGE") == "1", Only: wanted})
}

// slowInBrowser reports whether a case of attention is left out in a browser, which
// keeps no compiled kernel from the run before and takes several seconds for each
// head size, a third of the suite's time for these. They are kernels that other cases
// compile with another constant: with documents there are D 2, 16 and 64, without D 2,
// 16 and 128. All head sizes run on Vulkan.
func slowInBrowser(name string) bool {
	if !strings.HasPrefix(name, "attention") {
		return false
	}
	for _, heads := range []string{" D8 ", " D32 ", " D48 ", " D80 ", " D96 ", " D64 docs 0 "} {
		if strings.Contains(name, heads) {
			return true
		}
	}
	return false
}

// TestSlowInBrowser: what is left out are cases that exist, and no form of attention
// is without a large and a small head, with documents and without.
func TestSlowInBrowser(t *testing.T) {
	left, kept := 0, map[string]bool{}
	for _, c := range optest.Cases() {
		if c.Round != tensor.F32 || c.Operands != tensor.F32 || !strings.HasPrefix(c.Name, "attention") {
			continue
		}
		if slowInBrowser(c.Name) {
			left++
			continue
		}
		docs := !strings.Contains(c.Name, " docs 0 ")
		for _, d := range []string{"16", "64", "128"} {
			if strings.Contains(c.Name, " D"+d+" ") {
				kept[fmt.Sprint(c.Op, d, docs)] = true
			}
		}
	}
	if left < 8 {
		t.Errorf("%d cases are left out, want at least 8", left)
	}
	for _, form := range []string{"attention_forward", "attention_backward"} {
		for _, want := range []string{"16false", "16true", "64true", "128false"} {
			if !kept[form+want] {
				t.Errorf("%s has no case %s (head size, documents): %v", form, want, kept)
			}
		}
	}
}

// TestSuite is the suite with all that the device offers.
func TestSuite(t *testing.T) { suite(t, gpu.Options{}, Options{}, nil) }

// TestSuiteLeast is the suite on the least that WebGPU promises: no f16, no
// subgroups, default limits.
func TestSuiteLeast(t *testing.T) {
	var only func(name string) bool
	if runtime.GOOS == "js" { // there it takes minutes; these are the kernels that are others without subgroups
		only = func(name string) bool {
			for _, op := range []string{"sum/", "rmsnorm", "loss/", "attention", "grad ", "adamw8/"} {
				if strings.HasPrefix(name, op) {
					return true
				}
			}
			return false
		}
	}
	suite(t, gpu.Options{DisableF16: true, DisableSubgroups: true, ForceDefaultLimits: true}, Options{}, only)
}
