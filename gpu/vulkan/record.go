//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"runtime"
	"time"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// batch is a command buffer with a fence: what is handed to the GPU at once.
type batch struct {
	pool     vk.CommandPool
	commands vk.CommandBuffer
	fence    vk.Fence
	number   uint64
}

// maxFlying bounds how many batches the host may be ahead of the GPU.
const maxFlying = 32

// bound is what the open command buffer has bound.
type bound struct {
	pipeline *Pipeline
	group    *Group
}

func (d *Device) newBatch() (*batch, error) {
	b := &batch{}
	pool := vk.CommandPoolCreateInfo{SType: vk.StructureTypeCommandPoolCreateInfo, QueueFamilyIndex: d.a.family,
		Flags: vk.CommandPoolCreateFlags(vk.CommandPoolCreateTransientBit)}
	err := check("vkCreateCommandPool", d.cmds.CreateCommandPool(d.handle, &pool, nil, &b.pool))
	if err == nil {
		info := vk.CommandBufferAllocateInfo{SType: vk.StructureTypeCommandBufferAllocateInfo, CommandPool: b.pool, CommandBufferCount: 1}
		err = check("vkAllocateCommandBuffers", d.cmds.AllocateCommandBuffers(d.handle, &info, &b.commands))
	}
	if err == nil {
		fence := vk.FenceCreateInfo{SType: vk.StructureTypeFenceCreateInfo}
		err = check("vkCreateFence", d.cmds.CreateFence(d.handle, &fence, nil, &b.fence))
	}
	if err != nil {
		b.free(d)
		return nil, err
	}
	return b, nil
}

func (b *batch) free(d *Device) {
	if b == nil {
		return
	}
	if b.fence != 0 {
		d.cmds.DestroyFence(d.handle, b.fence, nil)
	}
	if b.pool != 0 {
		d.cmds.DestroyCommandPool(d.handle, b.pool, nil)
	}
}

// begin returns the batch that commands go into.
func (d *Device) begin() (*batch, error) {
	if d.recording != nil {
		return d.recording, nil
	}
	var b *batch
	if n := len(d.idle); n > 0 {
		b, d.idle = d.idle[n-1], d.idle[:n-1]
	} else {
		var err error
		if b, err = d.newBatch(); err != nil {
			return nil, err
		}
	}
	info := vk.CommandBufferBeginInfo{SType: vk.StructureTypeCommandBufferBeginInfo, Flags: vk.CommandBufferUsageFlags(vk.CommandBufferUsageOneTimeSubmitBit)}
	if err := check("vkBeginCommandBuffer", d.cmds.BeginCommandBuffer(b.commands, &info)); err != nil {
		b.free(d)
		return nil, err
	}
	d.recording, d.bound = b, bound{}
	return b, nil
}

// Dispatch records x·y·z workgroups of a kernel. It sees all that earlier
// commands wrote.
func (d *Device) Dispatch(p *Pipeline, g *Group, x, y, z uint32) error {
	b, err := d.begin()
	if err != nil {
		return err
	}
	d.order(b, g.accesses)
	if d.bound.pipeline != p {
		d.cmds.CmdBindPipeline(b.commands, vk.PipelineBindPointCompute, p.handle)
		d.bound = bound{pipeline: p}
	}
	if d.bound.group != g {
		d.cmds.CmdBindDescriptorSets(b.commands, vk.PipelineBindPointCompute, p.layout, 0, 1, &g.set, 0, nil)
		d.bound.group = g
	}
	d.timing.before(d, b)
	d.cmds.CmdDispatch(b.commands, x, y, z)
	d.timing.after(d, b)
	return nil
}

// Copy records a copy of n bytes. Offsets and n are multiples of 4; within one
// buffer the ranges must not overlap.
func (d *Device) Copy(dst *Buffer, dstOffset uint64, src *Buffer, srcOffset, n uint64) error {
	b, err := d.begin()
	if err != nil {
		return err
	}
	d.order(b, []access{{src, srcOffset, srcOffset + n, false}, {dst, dstOffset, dstOffset + n, true}})
	region := vk.BufferCopy{SrcOffset: vk.DeviceSize(srcOffset), DstOffset: vk.DeviceSize(dstOffset), Size: vk.DeviceSize(n)}
	d.cmds.CmdCopyBuffer(b.commands, src.handle, dst.handle, 1, &region)
	return nil
}

// Clear records zeros for n bytes at offset, both multiples of 4.
func (d *Device) Clear(buffer *Buffer, offset, n uint64) error {
	b, err := d.begin()
	if err != nil {
		return err
	}
	d.order(b, []access{{buffer, offset, offset + n, true}})
	d.cmds.CmdFillBuffer(b.commands, buffer.handle, vk.DeviceSize(offset), vk.DeviceSize(n), 0)
	return nil
}

// Submit hands what is recorded to the GPU.
func (d *Device) Submit() error {
	b := d.recording
	if b == nil {
		return nil
	}
	d.recording = nil
	err := check("vkEndCommandBuffer", d.cmds.EndCommandBuffer(b.commands))
	if err == nil {
		info := vk.SubmitInfo{SType: vk.StructureTypeSubmitInfo, CommandBufferCount: 1, PCommandBuffers: &b.commands}
		err = check("vkQueueSubmit", d.cmds.QueueSubmit(d.queue, 1, &info, b.fence))
	}
	if err != nil {
		b.free(d)
		return err
	}
	d.last++
	b.number = d.last
	d.flying = append(d.flying, b)
	return d.waitUntilFlying(maxFlying)
}

// Wait submits and waits until the GPU has done everything.
func (d *Device) Wait() error {
	if err := d.Submit(); err != nil {
		return err
	}
	return d.waitUntilFlying(0)
}

// Pending is the number of the batch being recorded, or of the last one when
// nothing is; Done that of the last batch that the GPU has finished.
func (d *Device) Pending() uint64 {
	if d.recording != nil {
		return d.last + 1
	}
	return d.last
}

// Done looks what the GPU has finished.
func (d *Device) Done() uint64 {
	for len(d.flying) > 0 && d.cmds.GetFenceStatus(d.handle, d.flying[0].fence) == vk.Success {
		_ = d.land()
	}
	return d.finished
}

// land takes back the oldest batch, which is done.
func (d *Device) land() error {
	b := d.flying[0]
	d.flying = append(d.flying[:0], d.flying[1:]...)
	d.finished = b.number
	err := check("vkResetFences", d.cmds.ResetFences(d.handle, 1, &b.fence))
	if err == nil {
		err = check("vkResetCommandPool", d.cmds.ResetCommandPool(d.handle, b.pool, 0))
	}
	if err != nil {
		b.free(d)
		return err
	}
	d.idle = append(d.idle, b)
	return nil
}

// hangTime is after how long without progress a GPU counts as hung. Drivers
// reset one much earlier.
const hangTime = 2 * time.Minute

// waitUntilFlying waits until at most n batches are with the GPU. It looks
// often at first; then it lets the driver wait, in short turns, because Go's
// garbage collector cannot run while a thread is in the driver.
func (d *Device) waitUntilFlying(n int) error {
	start := time.Now()
	for tries := 0; len(d.flying) > n; tries++ {
		fence := &d.flying[0].fence
		var code vk.Result
		if tries < 50 {
			code = d.cmds.GetFenceStatus(d.handle, *fence)
		} else {
			code = d.cmds.WaitForFences(d.handle, 1, fence, 1, uint64(200*time.Microsecond))
		}
		switch code {
		case vk.Success:
			if err := d.land(); err != nil {
				return err
			}
			start, tries = time.Now(), -1
		case vk.NotReady, vk.Timeout:
			if time.Since(start) > hangTime {
				return &Error{"waiting for the GPU", vk.ErrorDeviceLost}
			}
			runtime.Gosched()
		default:
			return check("waiting for the GPU", code)
		}
	}
	return nil
}
