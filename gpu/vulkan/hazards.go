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

// hazards are the accesses since the last barrier. Two commands may run at the
// same time unless one writes what the other touches; then a barrier goes
// between them. Submissions do not change that: the queue keeps their order,
// and a barrier covers everything before it.
type hazards struct{ since []access }

// maxSince bounds the search; a barrier after so many accesses costs nothing.
const maxSince = 128

// conflicts tells whether a command must wait for earlier ones.
func (h *hazards) conflicts(next []access) bool {
	if len(h.since)+len(next) > maxSince {
		return true
	}
	for i := range next {
		n := &next[i]
		for j := range h.since {
			s := &h.since[j]
			if s.buffer == n.buffer && (s.write || n.write) && s.off < n.end && n.off < s.end {
				return true
			}
		}
	}
	return false
}

// forget drops a buffer that is freed, whose address may come back.
func (h *hazards) forget(b *Buffer) {
	kept := h.since[:0]
	for _, s := range h.since {
		if s.buffer != b {
			kept = append(kept, s)
		}
	}
	h.since = kept
}

const (
	allStages = vk.PipelineStageFlags(vk.PipelineStageComputeShaderBit | vk.PipelineStageTransferBit)
	allWrites = vk.AccessFlags(vk.AccessShaderWriteBit | vk.AccessTransferWriteBit)
	allAccess = allWrites | vk.AccessFlags(vk.AccessShaderReadBit|vk.AccessTransferReadBit|vk.AccessUniformReadBit)
)

// barrier is what goes between two commands with a hazard: everything written
// before is seen by everything after.
var barrier = vk.MemoryBarrier{SType: vk.StructureTypeMemoryBarrier, SrcAccessMask: allWrites, DstAccessMask: allAccess}

// order puts a barrier in front of the next command if it needs one.
func (d *Device) order(b *batch, next []access) {
	if d.hazards.conflicts(next) {
		d.cmds.CmdPipelineBarrier(b.commands, allStages, allStages, 0, 1, &barrier, 0, nil, 0, nil)
		d.hazards.since = d.hazards.since[:0]
	}
	d.hazards.since = append(d.hazards.since, next...)
}
