//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"fmt"
	"sort"
	"unsafe"

	"github.com/go-webgpu/goffi/ffi"
	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

const (
	// blockSize is what is taken from the driver at a time. Drivers allow only
	// some thousand allocations.
	blockSize = 64 << 20
	// ownBlock is the size from which a buffer gets an allocation of its own.
	ownBlock = blockSize / 4
)

// allocator cuts the driver's memory into pieces, one list of blocks for each
// memory type. Memory goes back to the driver as soon as a block is empty.
type allocator struct {
	discrete bool // a GPU with memory of its own
	types    vk.PhysicalDeviceMemoryProperties
	lists    [32][]*block
	bytes    uint64 // taken from the driver
	// grab and give are the driver's, or a test's: memory of a type, and where the
	// host sees it.
	grab func(kind uint32, size uint64) (vk.DeviceMemory, unsafe.Pointer, error)
	give func(vk.DeviceMemory)
}

// block is one allocation of the driver.
type block struct {
	kind   uint32
	handle vk.DeviceMemory
	size   uint64
	host   unsafe.Pointer // where the host sees it, nil where it does not
	free   []span         // unused parts, by offset, never two that touch
}

type span struct{ off, size uint64 }

// piece is a part of a block.
type piece struct {
	block *block
	span
}

func (m *allocator) init(d *Device) {
	m.discrete = d.a.Kind == Discrete
	d.cmds.GetPhysicalDeviceMemoryProperties(d.a.physical, &m.types)
	m.grab = func(kind uint32, size uint64) (vk.DeviceMemory, unsafe.Pointer, error) {
		return d.allocate(kind, size, m.types.MemoryTypes[kind].PropertyFlags&hostVisible != 0)
	}
	m.give = func(h vk.DeviceMemory) { d.cmds.FreeMemory(d.handle, h, nil) }
}

// allocate takes memory from the driver, and shows it to the host.
func (d *Device) allocate(kind uint32, size uint64, host bool) (h vk.DeviceMemory, at unsafe.Pointer, err error) {
	info := vk.MemoryAllocateInfo{SType: vk.StructureTypeMemoryAllocateInfo, AllocationSize: vk.DeviceSize(size), MemoryTypeIndex: kind}
	what := fmt.Sprintf("vkAllocateMemory of %d bytes", size)
	if err := check(what, d.cmds.AllocateMemory(d.handle, &info, nil, &h)); err != nil || !host {
		return h, nil, err
	}
	var keep pinned
	defer keep.unpin()
	seen := new(unsafe.Pointer)
	keep.Pin(seen) // the call takes its address as a number
	if err := check("vkMapMemory", d.cmds.MapMemory(d.handle, h, 0, wholeSize, 0, uintptr(unsafe.Pointer(seen)))); err != nil {
		d.cmds.FreeMemory(d.handle, h, nil)
		return 0, nil, err
	}
	return h, *seen, nil
}

// Properties of memory types.
const (
	deviceLocal = vk.MemoryPropertyFlags(vk.MemoryPropertyDeviceLocalBit)
	hostVisible = vk.MemoryPropertyFlags(vk.MemoryPropertyHostVisibleBit)
	hostCached  = vk.MemoryPropertyFlags(vk.MemoryPropertyHostCachedBit)
	coherent    = vk.MemoryPropertyFlags(vk.MemoryPropertyHostCoherentBit)
)

// alloc finds memory for a buffer's needs: a type with all of must, and as many
// of want as there is.
func (m *allocator) alloc(need vk.MemoryRequirements, must, want vk.MemoryPropertyFlags) (piece, error) {
	var err error
	for _, kind := range m.candidates(need.MemoryTypeBits, must, want) {
		var p piece
		if p, err = m.allocIn(kind, uint64(need.Size), max(1, uint64(need.Alignment))); err == nil {
			return p, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("no memory type of this GPU fits the buffer")
	}
	return piece{}, err
}

// candidates are the usable memory types, best first. The driver sorts types
// so that earlier ones are better among equals.
func (m *allocator) candidates(bits uint32, must, want vk.MemoryPropertyFlags) (kinds []uint32) {
	score := func(k uint32) int {
		n := 0
		for f := want & m.types.MemoryTypes[k].PropertyFlags; f != 0; f &= f - 1 {
			n++
		}
		return n
	}
	for k := range m.types.MemoryTypeCount {
		if bits&(1<<k) != 0 && m.types.MemoryTypes[k].PropertyFlags&must == must {
			kinds = append(kinds, k)
		}
	}
	sort.SliceStable(kinds, func(i, j int) bool { return score(kinds[i]) > score(kinds[j]) })
	// A GPU reaches the host's memory many times slower than its own. A run that
	// spills there would seem to hang, so a full GPU is an error.
	if local := own(kinds, m.types); m.discrete && want&deviceLocal != 0 && len(local) > 0 {
		return local
	}
	return kinds
}

// own are the memory types that lie on the GPU.
func own(kinds []uint32, types vk.PhysicalDeviceMemoryProperties) (local []uint32) {
	for _, k := range kinds {
		if types.MemoryTypes[k].PropertyFlags&deviceLocal != 0 {
			local = append(local, k)
		}
	}
	return local
}

func (m *allocator) allocIn(kind uint32, size, align uint64) (piece, error) {
	if size < ownBlock {
		for _, b := range m.lists[kind] {
			if p, ok := b.take(size, align); ok {
				return p, nil
			}
		}
	}
	b, err := m.newBlock(kind, max(size, blockSize*b2u(size < ownBlock)))
	if err != nil && size < ownBlock { // memory is short: take no more than is needed
		b, err = m.newBlock(kind, size)
	}
	if err != nil {
		return piece{}, err
	}
	p, _ := b.take(size, align)
	return p, nil
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (m *allocator) newBlock(kind uint32, size uint64) (*block, error) {
	handle, host, err := m.grab(kind, size)
	if err != nil {
		return nil, err
	}
	b := &block{kind: kind, handle: handle, size: size, host: host, free: []span{{0, size}}}
	m.bytes += size
	m.lists[kind] = append(m.lists[kind], b)
	return b, nil
}

// wholeSize is VK_WHOLE_SIZE.
const wholeSize = ^vk.DeviceSize(0)

// take cuts a piece from the first free part that is large enough.
func (b *block) take(size, align uint64) (piece, bool) {
	for i, f := range b.free {
		off := (f.off + align - 1) / align * align
		if off+size > f.off+f.size {
			continue
		}
		var rest []span
		if off > f.off {
			rest = append(rest, span{f.off, off - f.off})
		}
		if end := off + size; end < f.off+f.size {
			rest = append(rest, span{end, f.off + f.size - end})
		}
		b.free = append(b.free[:i:i], append(rest, b.free[i+1:]...)...)
		return piece{b, span{off, size}}, true
	}
	return piece{}, false
}

// release gives a piece back, and its block to the driver when it was the last.
func (m *allocator) release(p piece) {
	b := p.block
	i := sort.Search(len(b.free), func(i int) bool { return b.free[i].off > p.off })
	b.free = append(b.free[:i:i], append([]span{p.span}, b.free[i:]...)...)
	if i+1 < len(b.free) && b.free[i].off+b.free[i].size == b.free[i+1].off {
		b.free[i].size += b.free[i+1].size
		b.free = append(b.free[:i+1], b.free[i+2:]...)
	}
	if i > 0 && b.free[i-1].off+b.free[i-1].size == b.free[i].off {
		b.free[i-1].size += b.free[i].size
		b.free = append(b.free[:i], b.free[i+1:]...)
	}
	if len(b.free) == 1 && b.free[0].size == b.size {
		m.drop(b)
	}
}

func (m *allocator) drop(b *block) {
	list := m.lists[b.kind]
	for i := range list {
		if list[i] == b {
			m.lists[b.kind] = append(list[:i], list[i+1:]...)
			break
		}
	}
	m.bytes -= b.size
	m.give(b.handle)
}

// free returns everything to the driver.
func (m *allocator) free() {
	for kind := range m.lists {
		for len(m.lists[kind]) > 0 {
			m.drop(m.lists[kind][0])
		}
	}
}

// FreeBytes is how much GPU memory this process can still get without pushing
// others out, 0 where the driver does not tell. On a GPU that shares the host's
// memory it is what the driver would give of that.
func (d *Device) FreeBytes() uint64 {
	if !d.a.budget {
		return 0
	}
	budget := vk.PhysicalDeviceMemoryBudgetPropertiesEXT{SType: vk.StructureTypePhysicalDeviceMemoryBudgetPropertiesExt}
	p := vk.PhysicalDeviceMemoryProperties2{SType: typeMemory2, PNext: next(&budget)}
	pp, f := unsafe.Pointer(&p), d.a.inst.memoryProperties2
	args := [2]unsafe.Pointer{unsafe.Pointer(&d.a.physical), unsafe.Pointer(&pp)}
	if ffi.CallFunction(&vk.SigVoidHandlePtr, f, nil, args[:]) != nil {
		return 0
	}
	var most uint64
	for k := range p.MemoryProperties.MemoryHeapCount {
		local := p.MemoryProperties.MemoryHeaps[k].Flags&vk.MemoryHeapFlags(vk.MemoryHeapDeviceLocalBit) != 0
		if local && budget.HeapBudget[k] > budget.HeapUsage[k] {
			most = max(most, uint64(budget.HeapBudget[k]-budget.HeapUsage[k]))
		}
	}
	return most
}
