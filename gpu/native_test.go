//go:build linux && (amd64 || arm64)

package gpu

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gogpu/wgpu/hal"
)

// Vulkan's loader is asked once per process, so a machine without a driver is
// played by a process of its own.
func TestNoDriver(t *testing.T) {
	if os.Getenv("TEZGAH_TEST_CHILD") == "1" {
		_, err := Open(Options{})
		fmt.Printf("none=%v told=%v\n%v\n", errors.Is(err, ErrNoAdapter), errors.Is(err, ErrUnusable), err)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestNoDriver$")
	child.Env = append(os.Environ(), "TEZGAH_TEST_CHILD=1", "TEZGAH_BACKEND=", "VK_ICD_FILENAMES=/nowhere.json", "VK_DRIVER_FILES=/nowhere.json")
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"none=true told=true", "vulkan:", "VK_DRIVER_FILES names /nowhere.json, which cannot be read", "--device cpu"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the message lacks %q:\n%s", want, out)
		}
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string]error{
		"vulkan: vkQueueSubmit failed: -4":             ErrLost,
		"vulkan: vkDeviceWaitIdle failed: -4":          ErrLost,
		"vulkan: vkCreateBuffer failed: -2":            ErrOutOfMemory,
		"vkAllocateDescriptorSets failed: -1":          ErrOutOfMemory,
		"dx12: DXGI_ERROR_DEVICE_REMOVED (0x887A0005)": ErrLost,
	} {
		if got := classify(errors.New(text)); !errors.Is(got, want) || !strings.Contains(got.Error(), text) {
			t.Errorf("%q became %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"vulkan: vkCreateDevice failed: -13", "vulkan: failed: -42"} {
		if got := classify(errors.New(text)); errors.Is(got, ErrLost) || errors.Is(got, ErrOutOfMemory) {
			t.Errorf("%q became %v", text, got)
		}
	}
	if got := classify(fmt.Errorf("wait: %w", hal.ErrDeviceLost)); !errors.Is(got, ErrLost) {
		t.Errorf("the binding's own error became %v", got)
	}
	if classify(nil) != nil {
		t.Error("nil became an error")
	}
}
