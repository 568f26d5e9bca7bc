//go:build (linux || windows) && (amd64 || arm64)

package gpu

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gogpu/wgpu/hal/vulkan/vk"

	"tezgah/gpu/vulkan"
)

// TestDirectErrors: what Vulkan returns becomes this package's kinds of errors, also
// from deep inside, and keeps its words.
func TestDirectErrors(t *testing.T) {
	for code, want := range map[vk.Result]error{
		vk.ErrorDeviceLost:        ErrLost,
		vk.ErrorOutOfDeviceMemory: ErrOutOfMemory,
		vk.ErrorOutOfHostMemory:   ErrOutOfMemory,
		vk.ErrorFeatureNotPresent: nil,
	} {
		err := directError(fmt.Errorf("deep inside: %w", &vulkan.Error{Call: "vkTest", Code: code}))
		if want != nil && !errors.Is(err, want) || want == nil && (isLost(err) || !isShaderFault(err)) || !strings.Contains(err.Error(), "vkTest: ") {
			t.Errorf("%d became %v, want %v", code, err, want)
		}
	}
	if directError(nil) != nil {
		t.Error("nil became an error")
	}
}

// TestDirectSearch: adapters that Vulkan refuses are listed with the reason, and a
// machine without a loader says so.
func TestDirectSearch(t *testing.T) {
	list := []vulkan.Adapter{{Name: "RTX", Kind: vulkan.Discrete, Matrix: []vulkan.MatrixShape{{M: 16, N: 16, K: 16, Input: "f16"}}}}
	s := directSearch(list, []vulkan.Refused{{Name: "Old", Why: errors.New("its driver knows Vulkan 1.1.0")}}, nil)
	if len(s.found) != 1 || s.found[0].Backend != BackendVulkan || s.found[0].Kind != Discrete || len(s.found[0].Matrix) != 1 {
		t.Errorf("found %+v", s.found)
	}
	if len(s.refused) != 1 || s.refused[0].name != "Old" || !strings.Contains(strings.Join(s.probed, "\n"), "Old: its driver knows Vulkan 1.1.0") {
		t.Errorf("refused %+v, probed %q", s.refused, s.probed)
	}
	s = directSearch(nil, nil, errors.New("no Vulkan loader: libvulkan.so.1"))
	if len(s.found)+len(s.refused) != 0 || !strings.Contains(s.err().Error(), "libvulkan.so.1") || errors.Is(s.err(), ErrUnusable) {
		t.Errorf("without a loader: %v", s.err())
	}
}
