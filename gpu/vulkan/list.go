//go:build (linux || windows) && (amd64 || arm64)

package vulkan

// list is what has been recorded since the last Submit, as plain values. Only
// Submit makes Vulkan's commands of it, unless a command buffer holds the same
// ones already: a training step repeats the step before it, and each foreign call
// that is not made saves as much as everything else about a command.
type list struct {
	commands []command
	uploads  []byte  // what upload commands copy, in order
	timing   *timing // whose queries the commands fill; nil for none
}

// command is one recorded call. Equal lists of commands do the same to the same
// memory: it names everything that a command buffer depends on.
type command struct {
	kind     commandKind
	barrier  bool // everything before it must be done and seen
	x, y, z  uint32
	pipeline *Pipeline
	group    *Group
	src, dst *Buffer
	from, to uint64 // offsets in src and dst, in bytes
	n        uint64 // bytes; of queries their number
}

// commandKind is what a command does.
type commandKind uint8

const (
	dispatch     commandKind = iota
	transfer                 // a copy from src to dst
	upload                   // a copy from the batch's own staging memory to dst
	clearing                 // zeros in dst
	toHost                   // the host may read what was copied before
	resetQueries             // forgets n queries
	readQueries              // copies n queries to dst
)

// add appends a command that does what next says.
func (d *Device) add(c command, next ...access) {
	c.barrier = d.hazards.order(next)
	d.list.commands = append(d.list.commands, c)
}

func (l *list) empty() bool { return len(l.commands) == 0 }

// again tells whether the list may come again, unlike one that fills queries.
func (l *list) again() bool { return l.timing == nil }

func (l *list) reset() {
	l.commands, l.uploads, l.timing = l.commands[:0], l.uploads[:0], nil
}

// Dispatch records x·y·z workgroups of a kernel. It sees all that earlier
// commands wrote.
func (d *Device) Dispatch(p *Pipeline, g *Group, x, y, z uint32) {
	d.add(command{kind: dispatch, pipeline: p, group: g, x: x, y: y, z: z, n: d.timing.next(&d.list)}, g.accesses...)
}

// Copy records a copy of n bytes. Offsets and n are multiples of 4; within one
// buffer the ranges must not overlap.
func (d *Device) Copy(dst *Buffer, dstOffset uint64, src *Buffer, srcOffset, n uint64) {
	d.add(command{kind: transfer, src: src, dst: dst, from: srcOffset, to: dstOffset, n: n},
		access{src, srcOffset, srcOffset + n, false}, access{dst, dstOffset, dstOffset + n, true})
}

// Clear records zeros for n bytes at offset, both multiples of 4.
func (d *Device) Clear(buffer *Buffer, offset, n uint64) {
	d.add(command{kind: clearing, dst: buffer, to: offset, n: n}, access{buffer, offset, offset + n, true})
}
