//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// Buffer is memory of the GPU that kernels can bind and transfers can reach.
type Buffer struct {
	handle vk.Buffer
	memory piece
	size   uint64
	uses   uses
}

// NewBuffer makes a buffer of size bytes, a multiple of 4, filled with zeros.
func (d *Device) NewBuffer(size uint64) (*Buffer, error) {
	b, err := d.newBuffer(size, deviceLocal, 0)
	if err != nil {
		return nil, err
	}
	d.Clear(b, 0, size)
	return b, nil
}

// newBuffer makes a buffer with whatever its memory holds.
func (d *Device) newBuffer(size uint64, want, must vk.MemoryPropertyFlags) (*Buffer, error) {
	usage := vk.BufferUsageStorageBufferBit | vk.BufferUsageUniformBufferBit | vk.BufferUsageTransferSrcBit | vk.BufferUsageTransferDstBit
	info := vk.BufferCreateInfo{SType: vk.StructureTypeBufferCreateInfo, Size: vk.DeviceSize(size), Usage: vk.BufferUsageFlags(usage)}
	b := &Buffer{size: size}
	if err := check("vkCreateBuffer", d.cmds.CreateBuffer(d.handle, &info, nil, &b.handle)); err != nil {
		return nil, err
	}
	var need vk.MemoryRequirements
	d.cmds.GetBufferMemoryRequirements(d.handle, b.handle, &need)
	m, err := d.memory.alloc(need, must, want)
	if err != nil {
		d.cmds.DestroyBuffer(d.handle, b.handle, nil)
		return nil, err
	}
	b.memory = m
	if err := check("vkBindBufferMemory", d.cmds.BindBufferMemory(d.handle, b.handle, m.block.handle, vk.DeviceSize(m.off))); err != nil {
		d.FreeBuffer(b)
		return nil, err
	}
	return b, nil
}

// FreeBuffer frees a buffer that no recorded or running work uses.
func (d *Device) FreeBuffer(b *Buffer) {
	if d.hung {
		return
	}
	d.cmds.DestroyBuffer(d.handle, b.handle, nil)
	d.memory.release(b.memory)
	b.handle, d.stale = 0, true
}
