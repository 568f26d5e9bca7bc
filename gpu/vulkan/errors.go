//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"fmt"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// Error is a call that Vulkan did not do.
type Error struct {
	Call string
	Code vk.Result
}

// Error names the call, what happened and, where there is some, the advice.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s (VkResult %d)", e.Call, meaning(e.Code), int32(e.Code))
}

// Lost tells whether the device is gone for good.
func (e *Error) Lost() bool { return e.Code == vk.ErrorDeviceLost }

// OutOfMemory tells whether memory of the GPU or the host ran out.
func (e *Error) OutOfMemory() bool {
	switch e.Code {
	case vk.ErrorOutOfDeviceMemory, vk.ErrorOutOfHostMemory, vk.ErrorFragmentedPool, outOfPoolMemory, tooManyObjects:
		return true
	}
	return false
}

// Codes of VkResult that the errors below explain.
const (
	tooManyObjects  vk.Result = -10
	outOfPoolMemory vk.Result = -1000069000
)

func meaning(code vk.Result) string {
	switch code {
	case vk.ErrorOutOfHostMemory:
		return "out of host memory"
	case vk.ErrorOutOfDeviceMemory:
		return "out of GPU memory"
	case vk.ErrorInitializationFailed:
		return "the driver could not be initialised"
	case vk.ErrorDeviceLost:
		return "the GPU was lost: a driver reset, a hang or an unplugged device"
	case vk.ErrorLayerNotPresent:
		return "a layer is not installed"
	case vk.ErrorExtensionNotPresent:
		return "the driver lacks an extension"
	case vk.ErrorFeatureNotPresent:
		return "the driver lacks a feature"
	case vk.ErrorIncompatibleDriver:
		return "no driver that the loader finds works"
	case tooManyObjects:
		return "too many allocations"
	}
	return "the driver refused"
}

// check turns a result into an error.
func check(call string, code vk.Result) error {
	if code == vk.Success {
		return nil
	}
	return &Error{call, code}
}
