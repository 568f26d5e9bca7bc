//go:build !js

package webgpu

import (
	"errors"
	"regexp"
	"testing"

	"github.com/gogpu/naga"

	"tezgah/op/webgpu/internal/wgsl"
)

// TestKernelsCompile compiles every kernel, as its file has it and with its
// marked loops written out, for every set of features.
func TestKernelsCompile(t *testing.T) {
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []wgsl.Features{{}, {F16: true}, {Subgroups: true}, {F16: true, Subgroups: true}} {
		for _, name := range lib.Kernels() {
			source, err := assemble(name, f, nil, 0)
			if errors.Is(err, wgsl.ErrUnsupported) && !f.F16 {
				continue
			}
			if err != nil {
				t.Errorf("%+v: %v", f, err)
				continue
			}
			if _, err := naga.Compile(source); err != nil {
				t.Errorf("%s %+v: %v", name, f, err)
			}
			plain, err := lib.Source(name, f)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := naga.Compile(plain); err != nil {
				t.Errorf("%s %+v, loops not written out: %v", name, f, err)
			}
		}
	}
}

// TestNoUnsetVariables holds the kernels to write an initial value for every
// local variable: the native shader compiler does not clear those without one,
// as WGSL says, and they then hold junk on some GPUs and zeros on others.
func TestNoUnsetVariables(t *testing.T) {
	unset := regexp.MustCompile(`(?m)^\s+var \w+\s*:[^=;]*;`)
	lib, err := library()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lib.Kernels() {
		source, err := lib.Source(name, wgsl.Features{F16: true, Subgroups: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range unset.FindAllString(source, -1) {
			t.Errorf("%s: %q has no initial value", name, line)
		}
	}
}
