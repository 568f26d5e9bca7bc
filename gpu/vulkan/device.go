//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"fmt"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// Device is an open adapter with one queue. One goroutine at a time may use it.
type Device struct {
	a      Adapter
	handle vk.Device
	queue  vk.Queue
	cmds   vk.Commands

	memory allocator
	cache  pipelineCache
	sets   setPools

	list     list // recorded and not yet submitted
	hazards  hazards
	idle     []*batch // used longest ago first, those that hold nothing before all
	flying   []*batch // with the GPU, oldest first
	last     uint64   // number of the last submitted batch
	finished uint64
	recorded uint64 // batches, not counting those that were submitted again
	stale    bool   // objects were freed that batches may name
	timing   *timing
	hung     bool // the GPU may still be at work, and will not say when it is done

	up   []*staging
	down *staging
}

// Options of Open.
type Options struct {
	// CacheFile keeps compiled pipelines between starts; "" keeps none.
	CacheFile string
}

// Open opens an adapter with exactly the features that its fields announce.
func Open(a Adapter, o Options) (*Device, error) {
	d := &Device{a: a, cmds: a.inst.cmds}
	if err := d.create(); err != nil {
		return nil, err
	}
	if err := d.cmds.LoadDevice(d.handle); err != nil {
		return nil, fmt.Errorf("the driver lacks functions of Vulkan 1.3: %w", err)
	}
	d.cmds.GetDeviceQueue(d.handle, a.family, 0, &d.queue)
	d.memory.init(d)
	d.cache.open(d, o.CacheFile)
	return d, nil
}

func (d *Device) create() error {
	a := &d.a
	var f features
	var names []string
	matrix := len(a.Matrix) > 0
	f.chain(matrix, a.Matrix2, a.BF16)
	enable := func(on bool, b *vk.Bool32) {
		if on {
			*b = 1
		}
	}
	enable(true, &f.core.Features.RobustBufferAccess) // costs nothing measurable, and kernels stay inside their bindings
	enable(a.F16, &f.v11.StorageBuffer16BitAccess)
	enable(a.F16, &f.v11.UniformAndStorageBuffer16BitAccess) // the WGSL compiler declares it
	enable(a.F16, &f.v12.ShaderFloat16)
	enable(a.fixed, &f.v13.SubgroupSizeControl)
	enable(a.fixed, &f.v13.ComputeFullSubgroups)
	enable(true, &f.v13.Maintenance4)
	if matrix {
		enable(true, &f.v12.VulkanMemoryModel)
		enable(true, &f.v12.VulkanMemoryModelDeviceScope)
		enable(true, &f.matrix.CooperativeMatrix)
		names = append(names, extMatrix)
	}
	if a.Matrix2 {
		for _, b := range f.wanted() {
			enable(true, b)
		}
		names = append(names, extMat2)
	}
	if a.BF16 {
		enable(true, &f.bf16.ShaderBFloat16Type)
		enable(true, &f.bf16.ShaderBFloat16CooperativeMatrix)
		names = append(names, extBF16)
	}
	if a.budget {
		names = append(names, extBudget)
	}
	var keep pinned
	defer keep.unpin()
	priority := float32(1)
	queue := vk.DeviceQueueCreateInfo{SType: vk.StructureTypeDeviceQueueCreateInfo, QueueFamilyIndex: a.family, QueueCount: 1, PQueuePriorities: &priority}
	info := vk.DeviceCreateInfo{
		SType: vk.StructureTypeDeviceCreateInfo, PNext: next(&f.core),
		QueueCreateInfoCount: 1, PQueueCreateInfos: &queue,
		EnabledExtensionCount: uint32(len(names)), PpEnabledExtensionNames: keep.texts(names),
	}
	return check("vkCreateDevice", d.cmds.CreateDevice(a.physical, &info, nil, &d.handle))
}

// Adapter describes what was opened.
func (d *Device) Adapter() Adapter { return d.a }

// Close waits for the GPU and frees everything, what callers forgot to free
// included. The device must not be used afterwards. What a GPU that hangs may
// still be using is left to the end of the process.
func (d *Device) Close() {
	_ = d.Wait()
	if d.hung {
		return
	}
	d.cmds.DeviceWaitIdle(d.handle)
	d.timing.free(d)
	for _, b := range append(d.idle, d.flying...) {
		b.free(d)
	}
	for _, s := range append(d.up, d.down) {
		s.free(d)
	}
	d.sets.free(d)
	d.cache.close(d)
	d.memory.free()
	d.cmds.DestroyDevice(d.handle, nil)
}
