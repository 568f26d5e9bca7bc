//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// access is a range of a buffer that a command reads or writes.
type access struct {
	buffer   *Buffer
	off, end uint64
	write    bool
}

// hazards decides where barriers go. Two commands may run at the same time unless
// one writes what the other touches; then a barrier goes between them.
// Submissions do not change that: the queue keeps their order, and a barrier
// covers everything before it.
type hazards struct {
	barriers uint64 // so many were needed so far
	lost     bool   // recorded commands, barriers among them, did not reach the GPU
}

// uses are a buffer's accesses since the last barrier.
type uses struct {
	since         uint64 // the barrier's number; after another one there are none
	reads, writes []extent
}

type extent struct{ off, end uint64 }

// maxUses bounds the search in a buffer.
const maxUses = 64

// order reports whether the next command must wait for earlier ones, and notes
// what it does.
func (h *hazards) order(next []access) (wait bool) {
	if wait = h.lost || h.conflicts(next); wait {
		h.barriers++
		h.lost = false
	}
	for i := range next {
		next[i].buffer.uses.note(h.barriers, &next[i])
	}
	return wait
}

func (h *hazards) conflicts(next []access) bool {
	for i := range next {
		n := &next[i]
		u := &n.buffer.uses
		switch {
		case u.since != h.barriers:
		case touches(u.writes, n):
			return true
		case n.write && (touches(u.reads, n) || len(u.writes) == maxUses):
			return true
		}
	}
	return false
}

func touches(list []extent, n *access) bool {
	for _, e := range list {
		if e.off < n.end && n.off < e.end {
			return true
		}
	}
	return false
}

// note adds an access. When there are many reads the last one is widened, which
// can only make a later write wait without need.
func (u *uses) note(barriers uint64, n *access) {
	if u.since != barriers {
		u.since, u.reads, u.writes = barriers, u.reads[:0], u.writes[:0]
	}
	e := extent{n.off, n.end}
	last := len(u.reads) - 1
	switch {
	case n.write:
		u.writes = append(u.writes, e)
	case last >= 0 && u.reads[last] == e:
	case last+1 == maxUses:
		u.reads[last] = extent{min(u.reads[last].off, e.off), max(u.reads[last].end, e.end)}
	default:
		u.reads = append(u.reads, e)
	}
}

const (
	allStages = vk.PipelineStageFlags(vk.PipelineStageComputeShaderBit | vk.PipelineStageTransferBit)
	allWrites = vk.AccessFlags(vk.AccessShaderWriteBit | vk.AccessTransferWriteBit)
	allAccess = allWrites | vk.AccessFlags(vk.AccessShaderReadBit|vk.AccessTransferReadBit|vk.AccessUniformReadBit)
)

// barrier is what goes between two commands with a hazard: everything written
// before is seen by everything after.
var barrier = vk.MemoryBarrier{SType: vk.StructureTypeMemoryBarrier, SrcAccessMask: allWrites, DstAccessMask: allAccess}

// wait records a barrier.
func (d *Device) wait(commands vk.CommandBuffer) {
	d.cmds.CmdPipelineBarrier(commands, allStages, allStages, 0, 1, &barrier, 0, nil, 0, nil)
}
