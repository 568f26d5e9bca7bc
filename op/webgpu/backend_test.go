package webgpu

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
	"tezgah/op"
	"tezgah/op/optest"
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
	optest.Run(t, func() (op.Backend, error) { return b, nil }, optest.Options{Large: os.Getenv("TEZGAH_TEST_LARGE") == "1", Only: only})
}

// TestSuite is the suite with all that the device offers.
func TestSuite(t *testing.T) { suite(t, gpu.Options{}, Options{}, nil) }

// TestSuiteLeast is the suite on the least that WebGPU promises: no f16, no
// subgroups, default limits.
func TestSuiteLeast(t *testing.T) {
	var only func(name string) bool
	if runtime.GOOS == "js" { // there it takes minutes; these are the kernels that are others without subgroups
		only = func(name string) bool {
			for _, op := range []string{"sum", "rmsnorm", "cross_entropy", "attention", "reduce_norm_sq", "finalize_grad_stats", "adamw_8bit"} {
				if strings.HasPrefix(name, op) {
					return true
				}
			}
			return false
		}
	}
	suite(t, gpu.Options{DisableF16: true, DisableSubgroups: true, ForceDefaultLimits: true}, Options{}, only)
}
