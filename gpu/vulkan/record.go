//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// batch is a command buffer with a fence: what is handed to the GPU at once.
type batch struct {
	pool     vk.CommandPool
	commands vk.CommandBuffer
	fence    vk.Fence
	submit   vk.SubmitInfo
	number   uint64
	own      *staging // what its uploads copy from; nil while it had none
	// holds is what the command buffer does when it is submitted again, empty
	// when that must not be.
	holds []command
}

func (d *Device) newBatch() (*batch, error) {
	b := &batch{}
	pool := vk.CommandPoolCreateInfo{SType: vk.StructureTypeCommandPoolCreateInfo, QueueFamilyIndex: d.a.family}
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
	b.submit = vk.SubmitInfo{SType: vk.StructureTypeSubmitInfo, CommandBufferCount: 1, PCommandBuffers: &b.commands}
	return b, nil
}

func (b *batch) free(d *Device) {
	b.own.free(d)
	if b.fence != 0 {
		d.cmds.DestroyFence(d.handle, b.fence, nil)
	}
	if b.pool != 0 {
		d.cmds.DestroyCommandPool(d.handle, b.pool, nil)
	}
}

// record makes Vulkan's commands of a list. On an error the batch holds nothing.
func (b *batch) record(d *Device, l *list) error {
	b.holds = b.holds[:0]
	if err := b.makeRoom(d, len(l.uploads)); err != nil {
		return err
	}
	if err := check("vkResetCommandPool", d.cmds.ResetCommandPool(d.handle, b.pool, 0)); err != nil {
		return err
	}
	info := vk.CommandBufferBeginInfo{SType: vk.StructureTypeCommandBufferBeginInfo}
	if !l.again() {
		info.Flags = vk.CommandBufferUsageFlags(vk.CommandBufferUsageOneTimeSubmitBit)
	}
	if err := check("vkBeginCommandBuffer", d.cmds.BeginCommandBuffer(b.commands, &info)); err != nil {
		return err
	}
	var now bound
	for i := range l.commands {
		b.command(d, &l.commands[i], &now, l.timing)
	}
	if err := check("vkEndCommandBuffer", d.cmds.EndCommandBuffer(b.commands)); err != nil {
		return err
	}
	if l.again() {
		b.holds = append(b.holds, l.commands...)
	}
	return nil
}

// makeRoom sees to staging memory for n bytes of uploads.
func (b *batch) makeRoom(d *Device, n int) error {
	if n == 0 || b.own != nil && len(b.own.memory) >= n {
		return nil
	}
	size := uint64(1 << 10)
	for size < uint64(n) {
		size *= 2
	}
	s, err := d.newStaging(size)
	if err != nil {
		return err
	}
	b.own.free(d)
	b.own = s
	return nil
}

// bound is what a command buffer has bound.
type bound struct {
	pipeline *Pipeline
	group    *Group
}

// command records one command.
func (b *batch) command(d *Device, c *command, now *bound, t *timing) {
	if c.barrier {
		d.wait(b.commands)
	}
	switch c.kind {
	case dispatch:
		b.dispatch(d, c, now, t)
	case transfer:
		b.copy(d, c, c.src)
	case upload:
		b.copy(d, c, b.own.buffer)
	case clearing:
		d.cmds.CmdFillBuffer(b.commands, c.dst.handle, vk.DeviceSize(c.to), vk.DeviceSize(c.n), 0)
	case toHost:
		d.cmds.CmdPipelineBarrier(b.commands, vk.PipelineStageFlags(vk.PipelineStageTransferBit), vk.PipelineStageFlags(vk.PipelineStageHostBit),
			0, 1, &hostBarrier, 0, nil, 0, nil)
	case resetQueries:
		d.cmds.CmdResetQueryPool(b.commands, t.pool, 0, uint32(c.n))
	case readQueries:
		const wide, wait = vk.QueryResultFlags(vk.QueryResult64Bit), vk.QueryResultFlags(vk.QueryResultWaitBit)
		d.cmds.CmdCopyQueryPoolResults(b.commands, t.pool, 0, uint32(c.n), c.dst.handle, 0, 8, wide|wait)
	}
}

func (b *batch) dispatch(d *Device, c *command, now *bound, t *timing) {
	if now.pipeline != c.pipeline {
		d.cmds.CmdBindPipeline(b.commands, vk.PipelineBindPointCompute, c.pipeline.handle)
		*now = bound{pipeline: c.pipeline}
	}
	if now.group != c.group {
		d.cmds.CmdBindDescriptorSets(b.commands, vk.PipelineBindPointCompute, c.pipeline.layout, 0, 1, &c.group.set, 0, nil)
		now.group = c.group
	}
	t.before(d, b, c)
	d.cmds.CmdDispatch(b.commands, c.x, c.y, c.z)
	t.after(d, b, c)
}

func (b *batch) copy(d *Device, c *command, src *Buffer) {
	region := vk.BufferCopy{SrcOffset: vk.DeviceSize(c.from), DstOffset: vk.DeviceSize(c.to), Size: vk.DeviceSize(c.n)}
	d.cmds.CmdCopyBuffer(b.commands, src.handle, c.dst.handle, 1, &region)
}
