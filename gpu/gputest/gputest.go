// Package gputest opens the GPU that tests run on. It is for tests alone.
//
// Environment: TEZGAH_TEST_DEVICE chooses the adapter (as gpu.Options.Device
// does); without it the best GPU is taken, a software one if there is no
// other. TEZGAH_REQUIRE_GPU=1 turns a missing adapter from a skip into a
// failure, so that a test machine cannot pass by having none.
package gputest

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"tezgah/gpu"
)

// Open opens the test device and closes it when the test ends.
func Open(t testing.TB, o gpu.Options) *gpu.Device {
	t.Helper()
	if o.Device == "" {
		o.Device = Name(t)
	}
	d, err := gpu.Open(o)
	if errors.Is(err, gpu.ErrNoAdapter) {
		skip(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// Name is the name of the test device; the test ends here if there is none.
func Name(t testing.TB) string {
	t.Helper()
	if name := os.Getenv("TEZGAH_TEST_DEVICE"); name != "" {
		return name
	}
	all, err := gpu.Adapters()
	if err != nil {
		skip(t, err)
	}
	return "gpu:" + strconv.Itoa(all[0].Index)
}

func skip(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("TEZGAH_REQUIRE_GPU") == "1" {
		t.Fatalf("TEZGAH_REQUIRE_GPU=1, but: %v", err)
	}
	t.Skipf("no GPU: %v", err)
}
