package gpu

// Limits of a device, in bytes and counts. The device layer refuses what is
// above them: one driver was seen to accept a 2 GiB buffer under a raised
// limit and to hold zeros in it.
type Limits struct {
	BufferSize      uint64 // largest buffer, bytes
	BindingSize     uint64 // largest storage range a kernel can see, bytes
	UniformSize     uint64 // largest uniform range, bytes
	StorageAlign    uint64 // storage offsets are multiples of this, bytes
	StorageBuffers  int    // storage buffers per kernel
	UniformBuffers  int    // uniform buffers per kernel
	WorkgroupMemory int    // bytes of var<workgroup> per workgroup
	Invocations     int    // threads per workgroup
	WorkgroupSizeX  int    // threads per workgroup along x
	WorkgroupSizeY  int    // threads per workgroup along y
	Workgroups      uint32 // workgroups per dimension of a dispatch
}

const (
	maxBufferSize = 256 << 20 // what buffers of the WebGPU layer are tested up to, see Limits
	// MaxWorkgroups is WebGPU's limit of workgroups per dimension; Dispatch1D
	// goes to two dimensions above it on every device, so that kernels can
	// recover their index in one way.
	MaxWorkgroups = 65535
	uniformAlign  = 256 // WebGPU's guaranteed uniform offset alignment, bytes
)

// DefaultLimits are the ones every WebGPU device has.
func DefaultLimits() Limits {
	return Limits{
		BufferSize:      256 << 20,
		BindingSize:     128 << 20,
		UniformSize:     64 << 10,
		StorageAlign:    256,
		StorageBuffers:  8,
		UniformBuffers:  12,
		WorkgroupMemory: 16 << 10,
		Invocations:     256,
		WorkgroupSizeX:  256,
		WorkgroupSizeY:  256,
		Workgroups:      MaxWorkgroups,
	}
}

// cap lowers what an adapter reports to what this layer relies on.
func (l Limits) cap() Limits {
	l.BufferSize = min(l.BufferSize, maxBufferSize)
	l.BindingSize = min(l.BindingSize, l.BufferSize) &^ 3
	l.UniformSize = min(l.UniformSize, 64<<10)
	l.StorageAlign = max(l.StorageAlign, 4)
	l.Workgroups = min(l.Workgroups, MaxWorkgroups)
	return l
}

// within lowers every limit to at most that of m.
func (l Limits) within(m Limits) Limits {
	return Limits{
		BufferSize:      min(l.BufferSize, m.BufferSize),
		BindingSize:     min(l.BindingSize, m.BindingSize),
		UniformSize:     min(l.UniformSize, m.UniformSize),
		StorageAlign:    max(l.StorageAlign, m.StorageAlign),
		StorageBuffers:  min(l.StorageBuffers, m.StorageBuffers),
		UniformBuffers:  min(l.UniformBuffers, m.UniformBuffers),
		WorkgroupMemory: min(l.WorkgroupMemory, m.WorkgroupMemory),
		Invocations:     min(l.Invocations, m.Invocations),
		WorkgroupSizeX:  min(l.WorkgroupSizeX, m.WorkgroupSizeX),
		WorkgroupSizeY:  min(l.WorkgroupSizeY, m.WorkgroupSizeY),
		Workgroups:      min(l.Workgroups, m.Workgroups),
	}
}
