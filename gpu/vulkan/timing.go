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
	d.add(command{kind: resetQueries, n: uint64(2 * n)})
	d.list.timing, d.timing = t, t
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

// next gives a dispatch of the list its number, from 1 on; 0 when it is not timed.
func (t *timing) next(l *list) uint64 {
	if t == nil || t.used >= t.most {
		return 0
	}
	l.timing = t
	t.used++
	return uint64(t.used)
}

// before notes the start of a dispatch, after all earlier work.
func (t *timing) before(d *Device, b *batch, c *command) {
	if c.n > 0 {
		d.wait(b.commands)
		d.cmds.CmdWriteTimestamp(b.commands, vk.PipelineStageComputeShaderBit, t.pool, uint32(2*c.n-2))
	}
}

// after notes its end.
func (t *timing) after(d *Device, b *batch, c *command) {
	if c.n > 0 {
		d.cmds.CmdWriteTimestamp(b.commands, vk.PipelineStageComputeShaderBit, t.pool, uint32(2*c.n-1))
	}
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
	d.add(command{kind: readQueries, dst: t.result, n: uint64(2 * t.used)})
	d.add(command{kind: toHost})
	d.list.timing = t
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
