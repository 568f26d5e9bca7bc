//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"errors"
	"unsafe"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// ErrNoTimestamps says that the GPU's queue has no clock.
var ErrNoTimestamps = errors.New("this GPU's queue has no timestamps")

// timing is a query pool being filled, two stamps for each dispatch.
type timing struct {
	pool   vk.QueryPool
	result *Buffer
	most   int
	used   int
}

// StartTiming makes each of the next n dispatches note when it begins and ends.
// Every one waits for those before it meanwhile.
func (d *Device) StartTiming(n int) error {
	if !d.a.Timestamps {
		return ErrNoTimestamps
	}
	t := &timing{most: n}
	info := vk.QueryPoolCreateInfo{SType: vk.StructureTypeQueryPoolCreateInfo, QueryType: vk.QueryTypeTimestamp, QueryCount: uint32(2 * n)}
	if err := check("vkCreateQueryPool", d.cmds.CreateQueryPool(d.handle, &info, nil, &t.pool)); err != nil {
		return err
	}
	result, err := d.newBuffer(uint64(16*n), hostCached, hostVisible|coherent)
	if err != nil {
		t.free(d)
		return err
	}
	t.result = result
	b, err := d.begin()
	if err != nil {
		t.free(d)
		return err
	}
	d.cmds.CmdResetQueryPool(b.commands, t.pool, 0, uint32(2*n))
	d.timing = t
	return nil
}

func (t *timing) free(d *Device) {
	if t == nil {
		return
	}
	if t.result != nil {
		d.FreeBuffer(t.result)
	}
	d.cmds.DestroyQueryPool(d.handle, t.pool, nil)
}

// before notes the start of a dispatch, after all earlier work.
func (t *timing) before(d *Device, b *batch) {
	if t == nil || t.used >= t.most {
		return
	}
	d.cmds.CmdPipelineBarrier(b.commands, allStages, allStages, 0, 1, &barrier, 0, nil, 0, nil)
	d.cmds.CmdWriteTimestamp(b.commands, vk.PipelineStageComputeShaderBit, t.pool, uint32(2*t.used))
}

// after notes its end.
func (t *timing) after(d *Device, b *batch) {
	if t == nil || t.used >= t.most {
		return
	}
	d.cmds.CmdWriteTimestamp(b.commands, vk.PipelineStageComputeShaderBit, t.pool, uint32(2*t.used+1))
	t.used++
}

// StopTiming waits and returns the stamps in nanoseconds since the first, in
// pairs.
func (d *Device) StopTiming() ([]float64, error) {
	t := d.timing
	d.timing = nil
	defer t.free(d)
	if t == nil || t.used == 0 {
		return nil, d.Wait()
	}
	b, err := d.begin()
	if err != nil {
		return nil, err
	}
	const wide, wait = vk.QueryResultFlags(vk.QueryResult64Bit), vk.QueryResultFlags(vk.QueryResultWaitBit)
	d.cmds.CmdCopyQueryPoolResults(b.commands, t.pool, 0, uint32(2*t.used), t.result.handle, 0, 8, wide|wait)
	d.cmds.CmdPipelineBarrier(b.commands, vk.PipelineStageFlags(vk.PipelineStageTransferBit), vk.PipelineStageFlags(vk.PipelineStageHostBit),
		0, 1, &hostBarrier, 0, nil, 0, nil)
	if err := d.Wait(); err != nil {
		return nil, err
	}
	ticks := unsafe.Slice((*uint64)(unsafe.Add(t.result.memory.block.host, t.result.memory.off)), 2*t.used)
	stamps := make([]float64, len(ticks))
	for i, v := range ticks {
		stamps[i] = float64(int64(v-ticks[0])) * float64(d.a.period)
	}
	return stamps, nil
}
