//go:build (linux || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/gogpu/gputypes"
	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/vulkan/memory"
)

// The native driver stands on the hardware layer of github.com/gogpu/wgpu and
// not on its WebGPU-shaped top: that one tracks every buffer of every dispatch
// (microseconds that the checks of this package make unnecessary) and cannot
// list adapters. The hardware layer gives each backend its barriers: after
// every dispatch, and between passes and copies.

// noAdapterHint is the advice for a machine without a GPU driver.
const noAdapterHint = "  install the GPU's Vulkan driver (Linux: the loader libvulkan1 and the vendor's driver, or mesa-vulkan-drivers), or use --device cpu"

// instances are made once and kept: drivers do not like it otherwise.
var instances struct {
	sync.Once
	search
}

// platformAdapters lists the adapters that a backend reaches, and what was
// looked at. Without a choice it is Vulkan itself, and the WebGPU layer for what
// Vulkan itself cannot use.
func platformAdapters(backend string) (s search) {
	defer func() { _, variable := driverDescriptions(); s.named = variable != "" }()
	if backend != BackendWebGPU {
		s = directAdapters()
		if backend == BackendVulkan || len(s.found) > 0 && len(s.refused) == 0 {
			s.probed = append(s.probed, driverFiles()...)
			return s
		}
	}
	return s.withLayered(halAdapters())
}

// otherWay is an adapter as the WebGPU layer reaches it.
func otherWay(a adapter) (adapter, bool) {
	for _, other := range sortAdapters(halAdapters().found) {
		if other.Name == a.Name && a.Backend == BackendVulkan {
			return other, true
		}
	}
	return adapter{}, false
}

// halAdapters lists the adapters of every backend of the WebGPU layer.
func halAdapters() search {
	instances.Do(func() {
		for _, b := range platformBackends {
			list, note := backendAdapters(b)
			instances.found = append(instances.found, list...)
			instances.probed = append(instances.probed, note)
		}
		instances.probed = append(instances.probed, driverFiles()...)
	})
	return instances.copied()
}

// copied is s with slices of its own, which callers sort and extend.
func (s search) copied() search {
	return search{slices.Clone(s.found), slices.Clone(s.refused), s.without, s.named, slices.Clone(s.probed)}
}

// backend is one of the system's ways to a GPU.
type backend struct {
	name string
	make func() hal.Backend
}

// backendAdapters lists the adapters of one backend and says how that went.
func backendAdapters(b backend) (found []adapter, note string) {
	defer func() {
		if r := recover(); r != nil {
			note = fmt.Sprintf("%s%s: the binding panicked: %v", b.name, BackendThrough, r)
		}
	}()
	inst, err := b.make().CreateInstance(&hal.InstanceDescriptor{})
	if err != nil {
		note := fmt.Sprintf("%s%s: %v", b.name, BackendThrough, strings.TrimPrefix(err.Error(), b.name+": "))
		if missingExtension.MatchString(note) {
			note += " (an extension is missing: this layer needs those for windows, such as VK_KHR_surface; Vulkan itself does without)"
		}
		return nil, note
	}
	for _, e := range inst.EnumerateAdapters(nil) {
		found = append(found, adapter{handle: e.Adapter, AdapterInfo: AdapterInfo{
			Name:    e.Info.Name,
			Vendor:  e.Info.Vendor,
			Kind:    kindOf(e.Info.DeviceType),
			Backend: b.name + BackendThrough,
			Driver:  e.Info.DriverInfo,
			Limits:  limitsOf(e.Capabilities.Limits).cap(),
		}})
	}
	return found, fmt.Sprintf("%s%s: loaded, %d adapters", b.name, BackendThrough, len(found))
}

// missingExtension is VK_ERROR_EXTENSION_NOT_PRESENT as the binding prints it.
var missingExtension = regexp.MustCompile(`vkCreateInstance failed: -7\b`)

func kindOf(t gputypes.DeviceType) Kind {
	switch t {
	case gputypes.DeviceTypeDiscreteGPU:
		return Discrete
	case gputypes.DeviceTypeIntegratedGPU:
		return Integrated
	case gputypes.DeviceTypeCPU:
		return Software
	}
	return Unknown
}

func limitsOf(l gputypes.Limits) Limits {
	return Limits{
		BufferSize:      l.MaxBufferSize,
		BindingSize:     l.MaxStorageBufferBindingSize,
		UniformSize:     l.MaxUniformBufferBindingSize,
		StorageAlign:    uint64(l.MinStorageBufferOffsetAlignment),
		StorageBuffers:  int(l.MaxStorageBuffersPerShaderStage),
		UniformBuffers:  int(l.MaxUniformBuffersPerShaderStage),
		WorkgroupMemory: int(l.MaxComputeWorkgroupStorageSize),
		Invocations:     int(l.MaxComputeInvocationsPerWorkgroup),
		WorkgroupSizeX:  int(l.MaxComputeWorkgroupSizeX),
		WorkgroupSizeY:  int(l.MaxComputeWorkgroupSizeY),
		Workgroups:      l.MaxComputeWorkgroupsPerDimension,
	}
}

// halDriver is the native driver.
type halDriver struct {
	name  string // adapter, backend, driver: for shader errors
	dev   hal.Device
	queue hal.Queue

	limits Limits
	spirv  bool // the backend takes SPIR-V

	// DirectX 12 tracks the state of a buffer per command list and cannot
	// fill: there a copy and a later dispatch go into different lists, and
	// clearing copies zeros.
	splitAfterCopy, clearByCopy bool
	copied                      bool // the open list has a copy

	enc          hal.CommandEncoder // nil when nothing is recorded
	pass         hal.ComputePassEncoder
	lastPipeline *halPipeline
	lastGroup    hal.BindGroup
	idle         []hal.CommandEncoder

	batch    uint64 // number of the last submitted batch
	finished uint64
	flying   []flight

	timing *halTiming // nil when not timing

	up    []*chunk // staging for uploads
	down  *chunk   // staging for downloads
	zeros hal.Buffer
}

// flight is a batch that the GPU may still be working on.
type flight struct {
	batch, index uint64 // our number, and the queue's
	enc          hal.CommandEncoder
	cmd          hal.CommandBuffer
}

// openDriver opens an adapter. The WebGPU layer ignores requested limits; the
// Device and compile keep them.
func openDriver(a adapter, l Limits) (driver, error) {
	if a.Backend == BackendVulkan {
		return openDirect(a, l)
	}
	open, err := a.handle.(hal.Adapter).Open(0, gputypes.Limits{})
	if err != nil {
		return nil, classify(err)
	}
	dx12 := a.Backend == "dx12"+BackendThrough
	return &halDriver{
		name:           fmt.Sprintf("%s (%s, %s, %s)", a.Name, a.Backend, a.Driver, runtime.GOOS),
		dev:            open.Device,
		queue:          open.Queue,
		limits:         l,
		spirv:          a.Backend == "vulkan"+BackendThrough,
		splitAfterCopy: dx12,
		clearByCopy:    dx12,
	}, nil
}

// Vulkan's codes for a lost device and for exhausted memory, as the binding
// prints them.
var (
	lostCode   = regexp.MustCompile(`(failed|returned):? -4\b|DEVICE_(REMOVED|HUNG|RESET)`)
	memoryCode = regexp.MustCompile(`(failed|returned):? -[12]\b|E_OUTOFMEMORY`)
)

// classify wraps an error of the binding in ErrLost or ErrOutOfMemory where
// it is one of these.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, hal.ErrDeviceLost), lostCode.MatchString(err.Error()):
		return fmt.Errorf("%w: %v", ErrLost, err)
	case errors.Is(err, hal.ErrDeviceOutOfMemory), errors.Is(err, memory.ErrAllocationFailed),
		errors.Is(err, memory.ErrAllocationTooLarge), memoryCode.MatchString(err.Error()):
		return fmt.Errorf("%w: %v", ErrOutOfMemory, err)
	}
	return err
}

func (h *halDriver) close() {
	for _, c := range h.up {
		h.dev.DestroyBuffer(c.buffer)
	}
	if h.down != nil {
		h.dev.DestroyBuffer(h.down.buffer)
	}
	if h.zeros != nil {
		h.dev.DestroyBuffer(h.zeros)
	}
	if h.enc != nil {
		h.enc.DiscardEncoding()
		h.idle = append(h.idle, h.enc)
	}
	for _, f := range h.flying {
		h.idle = append(h.idle, f.enc)
	}
	for _, e := range h.idle {
		e.Destroy()
	}
	h.dev.Destroy()
}

// driverFiles says which driver descriptions Vulkan's loader looks at, a line each.
func driverFiles() (lines []string) {
	files, variable := driverDescriptions()
	if variable != "" {
		variable += " names "
	}
	for _, f := range files {
		line := "vulkan driver: " + variable + f
		if _, err := os.Stat(f); err != nil {
			line += ", which cannot be read"
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 && noDrivers != "" {
		lines = []string{noDrivers}
	}
	return lines
}

// driverVersion changes when the GPU driver does, as far as files tell: the
// hardware layer reports only the version of the API.
func driverVersion() string {
	version := ""
	files, _ := driverDescriptions()
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			version += fmt.Sprintf("%s %d %d\n", f, info.Size(), info.ModTime().Unix())
		}
	}
	if data, err := os.ReadFile("/proc/driver/nvidia/version"); err == nil {
		version += string(data)
	}
	return version
}
