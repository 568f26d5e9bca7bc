//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// Kind says what a device is.
type Kind int

// The kinds of devices.
const (
	Other Kind = iota
	Discrete
	Integrated
	Software
)

// Limits are a device's own limits, in bytes and counts.
type Limits struct {
	BufferSize      uint64 // largest buffer
	StorageRange    uint64 // largest range that a kernel sees
	UniformRange    uint64
	StorageAlign    uint64 // offsets of storage ranges are multiples of it
	StorageBuffers  int    // per kernel
	UniformBuffers  int
	WorkgroupMemory int
	Invocations     int // threads of a workgroup
	WorkgroupSize   [3]int
	Workgroups      uint32 // per dimension
	MinSubgroup     int
	MaxSubgroup     int
}

// MatrixShape is one product that the matrix units do within a subgroup:
// (M, K) × (K, N) of Input, accumulated in float32.
type MatrixShape struct {
	M, N, K int
	Input   string // "f16" or "bf16"
}

// Adapter is a Vulkan 1.3 device that can be opened.
type Adapter struct {
	Name       string
	Vendor     string
	Driver     string // name and version of the driver
	API        string // version of Vulkan
	Kind       Kind
	Limits     Limits
	F16        bool          // 16-bit floats in arithmetic and in storage buffers
	BF16       bool          // bfloat16 in matrix products
	Subgroups  bool          // arithmetic across a subgroup in compute kernels
	Matrix     []MatrixShape // what the matrix units multiply, float32 accumulation only
	Matrix2    bool          // VK_NV_cooperative_matrix2: matrices of a whole workgroup, loaded through tensor layouts
	Timestamps bool

	inst     *instance
	physical vk.PhysicalDevice
	family   uint32  // the queue family that is used
	period   float32 // nanoseconds of one timestamp tick
	budget   bool    // VK_EXT_memory_budget
	fixed    bool    // kernels may fix the size of their subgroups
	key      [32]byte
}

// Refused is a device of this machine that this package cannot use.
type Refused struct {
	Name string
	Why  error
}

// Adapters lists the devices of this machine that this package can use, in the
// loader's order, and those that it cannot. The error tells why there is no
// Vulkan at all.
func Adapters() (list []Adapter, refused []Refused, err error) {
	inst, err := open()
	if err != nil {
		return nil, nil, err
	}
	all, err := inst.physical()
	if err != nil {
		return nil, nil, err
	}
	for _, d := range all {
		a, err := describe(inst.ask(d))
		if err != nil {
			refused = append(refused, Refused{a.Name, err})
			continue
		}
		a.inst, a.physical = inst, d
		list = append(list, a)
	}
	return list, refused, nil
}

// Structure types that the binding does not name.
const (
	typeFeatures11       vk.StructureType = 49
	typeProperties11     vk.StructureType = 50
	typeFeatures12       vk.StructureType = 51
	typeProperties12     vk.StructureType = 52
	typeFeatures13       vk.StructureType = 53
	typeProperties13     vk.StructureType = 54
	typeMemory2          vk.StructureType = 1000059006
	typeRequiredSubgroup vk.StructureType = 1000225001
)

// features are what a driver offers of what this package can use; the same
// structs, with the rest cleared, enable them.
type features struct {
	core   vk.PhysicalDeviceFeatures2
	v11    vk.PhysicalDeviceVulkan11Features
	v12    vk.PhysicalDeviceVulkan12Features
	v13    vk.PhysicalDeviceVulkan13Features
	matrix vk.PhysicalDeviceCooperativeMatrixFeaturesKHR
	mat2   vk.PhysicalDeviceCooperativeMatrix2FeaturesNV
	bf16   vk.PhysicalDeviceShaderBfloat16FeaturesKHR
}

// chain links the structs, with those of extensions only where they are there.
func (f *features) chain(matrix, matrix2, bf16 bool) {
	f.core.SType, f.core.PNext = vk.StructureTypePhysicalDeviceFeatures2, next(&f.v11)
	f.v11.SType, f.v11.PNext = typeFeatures11, next(&f.v12)
	f.v12.SType, f.v12.PNext = typeFeatures12, next(&f.v13)
	f.v13.SType, f.v13.PNext = typeFeatures13, nil
	f.matrix.SType = vk.StructureTypePhysicalDeviceCooperativeMatrixFeaturesKhr
	f.bf16.SType = vk.StructureTypePhysicalDeviceShaderBfloat16FeaturesKhr
	last := &f.v13.PNext
	if matrix {
		*last, last = next(&f.matrix), &f.matrix.PNext
	}
	if matrix2 {
		f.mat2.SType = vk.StructureTypePhysicalDeviceCooperativeMatrix2FeaturesNv
		*last, last = next(&f.mat2), &f.mat2.PNext
	}
	if bf16 {
		*last = next(&f.bf16)
	}
}

// wanted are the features of workgroup matrices that kernels use.
func (f *features) wanted() []*vk.Bool32 {
	m := &f.mat2
	return []*vk.Bool32{&m.CooperativeMatrixWorkgroupScope, &m.CooperativeMatrixFlexibleDimensions, &m.CooperativeMatrixReductions,
		&m.CooperativeMatrixConversions, &m.CooperativeMatrixPerElementOperations, &m.CooperativeMatrixTensorAddressing,
		&m.CooperativeMatrixBlockLoads}
}

func (f *features) hasMatrix2() bool {
	for _, b := range f.wanted() {
		if *b == 0 {
			return false
		}
	}
	return true
}

func next[T any](p *T) *uintptr { return (*uintptr)(unsafe.Pointer(p)) }

const (
	extMatrix = "VK_KHR_cooperative_matrix"
	extMat2   = "VK_NV_cooperative_matrix2"
	extBF16   = "VK_KHR_shader_bfloat16"
	extBudget = "VK_EXT_memory_budget"
)

// answers are what a driver says of a device.
type answers struct {
	plain    vk.PhysicalDeviceProperties
	ext      map[string]bool // extensions
	features *features
	props    *properties
	queues   []vk.QueueFamilyProperties
	shapes   []vk.CooperativeMatrixPropertiesKHR
}

// ask asks a device everything that decides how it is used; of a driver below
// Vulkan 1.3, which does not know the questions, only the first.
func (i *instance) ask(d vk.PhysicalDevice) (s answers) {
	i.cmds.GetPhysicalDeviceProperties(d, &s.plain)
	if s.plain.ApiVersion < version13 {
		return s
	}
	s.ext = i.extensions(d)
	s.features = &features{}
	s.features.chain(s.ext[extMatrix], s.ext[extMat2], s.ext[extBF16])
	i.cmds.GetPhysicalDeviceFeatures2(d, &s.features.core)
	s.props = i.properties(d)
	s.queues = i.queues(d)
	if s.ext[extMatrix] {
		s.shapes = i.matrixShapes(d)
	}
	return s
}

// describe judges a device by its driver's answers. On an error, which says why
// it cannot be used, only the name is filled in.
func describe(s answers) (a Adapter, err error) {
	a = Adapter{Name: text(s.plain.DeviceName[:]), Vendor: vendor(s.plain.VendorID), API: versionText(s.plain.ApiVersion)}
	if s.plain.ApiVersion < version13 {
		return a, fmt.Errorf("its driver knows Vulkan %s, want 1.3: update the driver", a.API)
	}
	f, p := s.features, s.props
	if lacks := f.missing(); lacks != "" {
		return a, fmt.Errorf("its driver lacks %s, which Vulkan 1.3 promises: update the driver", lacks)
	}
	if err := a.chooseQueue(s.queues, s.plain.Limits.TimestampPeriod); err != nil {
		return a, err
	}
	a.Kind = kind(p.core.Properties.DeviceType)
	a.Driver = driverText(p)
	a.Limits = limits(p)
	a.key = cacheKey(p)
	a.F16 = f.v11.StorageBuffer16BitAccess != 0 && f.v11.UniformAndStorageBuffer16BitAccess != 0 && f.v12.ShaderFloat16 != 0
	a.Subgroups = p.v11.SubgroupSupportedStages&vk.ShaderStageFlags(vk.ShaderStageComputeBit) != 0 && p.v11.SubgroupSupportedOperations&arithmetic != 0
	a.budget = s.ext[extBudget]
	a.fixed = f.v13.SubgroupSizeControl != 0 && f.v13.ComputeFullSubgroups != 0 && a.Limits.MaxSubgroup > 0
	// Kernels compiled from WGSL have atomics of the device's scope, which the memory model
	// of the matrix kernels forbids without a feature of its own.
	model := f.v12.VulkanMemoryModel != 0 && f.v12.VulkanMemoryModelDeviceScope != 0
	if s.ext[extMatrix] && f.matrix.CooperativeMatrix != 0 && a.F16 && a.fixed && model {
		bf16 := s.ext[extBF16] && f.bf16.ShaderBFloat16Type != 0 && f.bf16.ShaderBFloat16CooperativeMatrix != 0
		a.Matrix = shapes(s.shapes, bf16)
		a.BF16 = slices.ContainsFunc(a.Matrix, func(m MatrixShape) bool { return m.Input == "bf16" })
		a.Matrix2 = len(a.Matrix) > 0 && s.ext[extMat2] && f.hasMatrix2()
	}
	return a, nil
}

// missing names a feature that every device is opened with and this one lacks,
// "" for none. Drivers must have them; one that does not would refuse to open.
func (f *features) missing() string {
	switch {
	case f.core.Features.RobustBufferAccess == 0:
		return "robustBufferAccess"
	case f.v13.Maintenance4 == 0:
		return "maintenance4"
	}
	return ""
}

// arithmetic is VK_SUBGROUP_FEATURE_ARITHMETIC_BIT.
const arithmetic = 4

// properties are the structs of limits.
type properties struct {
	core vk.PhysicalDeviceProperties2
	v11  vk.PhysicalDeviceVulkan11Properties
	v12  vk.PhysicalDeviceVulkan12Properties
	v13  vk.PhysicalDeviceVulkan13Properties
}

func (i *instance) properties(d vk.PhysicalDevice) *properties {
	p := &properties{}
	p.core.SType, p.core.PNext = vk.StructureTypePhysicalDeviceProperties2, next(&p.v11)
	p.v11.SType, p.v11.PNext = typeProperties11, next(&p.v12)
	p.v12.SType, p.v12.PNext = typeProperties12, next(&p.v13)
	p.v13.SType = typeProperties13
	i.cmds.GetPhysicalDeviceProperties2(d, &p.core)
	return p
}

func limits(p *properties) Limits {
	l := &p.core.Properties.Limits
	size := func(k int) int { return int(l.MaxComputeWorkGroupSize[k]) }
	return Limits{
		BufferSize:      min(uint64(p.v13.MaxBufferSize), uint64(p.v11.MaxMemoryAllocationSize)),
		StorageRange:    uint64(l.MaxStorageBufferRange),
		UniformRange:    uint64(l.MaxUniformBufferRange),
		StorageAlign:    uint64(l.MinStorageBufferOffsetAlignment),
		StorageBuffers:  int(l.MaxPerStageDescriptorStorageBuffers),
		UniformBuffers:  int(l.MaxPerStageDescriptorUniformBuffers),
		WorkgroupMemory: int(l.MaxComputeSharedMemorySize),
		Invocations:     int(l.MaxComputeWorkGroupInvocations),
		WorkgroupSize:   [3]int{size(0), size(1), size(2)},
		Workgroups:      min(l.MaxComputeWorkGroupCount[0], l.MaxComputeWorkGroupCount[1], l.MaxComputeWorkGroupCount[2]),
		MinSubgroup:     int(p.v13.MinSubgroupSize),
		MaxSubgroup:     int(p.v13.MaxSubgroupSize),
	}
}

// shapes keeps the float32-accumulating products of a subgroup on 16-bit
// inputs.
func shapes(all []vk.CooperativeMatrixPropertiesKHR, bf16 bool) (list []MatrixShape) {
	for _, p := range all {
		input := ""
		switch {
		case p.AType == vk.ComponentTypeFloat16Khr:
			input = "f16"
		case p.AType == vk.ComponentTypeBfloat16Khr && bf16:
			input = "bf16"
		}
		if input == "" || p.BType != p.AType || p.Scope != vk.ScopeSubgroupKhr ||
			p.CType != vk.ComponentTypeFloat32Khr || p.ResultType != vk.ComponentTypeFloat32Khr {
			continue
		}
		list = append(list, MatrixShape{int(p.MSize), int(p.NSize), int(p.KSize), input})
	}
	return list
}

// queues lists a device's queue families.
func (i *instance) queues(d vk.PhysicalDevice) []vk.QueueFamilyProperties {
	var n uint32
	i.cmds.GetPhysicalDeviceQueueFamilyProperties(d, &n, nil)
	if n == 0 {
		return nil
	}
	list := make([]vk.QueueFamilyProperties, n)
	i.cmds.GetPhysicalDeviceQueueFamilyProperties(d, &n, &list[0])
	return list[:n]
}

// chooseQueue takes the first family that computes, preferring one that also
// draws: it is the one that drivers expect long work on. period is that of a
// timestamp's tick.
func (a *Adapter) chooseQueue(list []vk.QueueFamilyProperties, period float32) error {
	compute, graphics := vk.QueueFlags(vk.QueueComputeBit), vk.QueueFlags(vk.QueueGraphicsBit)
	found := -1
	for k, f := range list {
		switch {
		case f.QueueCount == 0 || f.QueueFlags&compute == 0:
		case found < 0, f.QueueFlags&graphics != 0 && list[found].QueueFlags&graphics == 0:
			found = k
		}
	}
	if found < 0 {
		return fmt.Errorf("none of its %d queue families runs compute kernels", len(list))
	}
	a.family, a.period = uint32(found), period
	a.Timestamps = list[found].TimestampValidBits > 0 && a.period > 0
	return nil
}

func kind(t vk.PhysicalDeviceType) Kind {
	switch t {
	case vk.PhysicalDeviceTypeDiscreteGpu:
		return Discrete
	case vk.PhysicalDeviceTypeIntegratedGpu:
		return Integrated
	case vk.PhysicalDeviceTypeCpu:
		return Software
	}
	return Other
}

// vendor names the PCI and Khronos vendor ids of makers of GPUs.
func vendor(id uint32) string {
	known := map[uint32]string{0x10de: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel", 0x13b5: "ARM", 0x5143: "Qualcomm",
		0x106b: "Apple", 0x1010: "Imagination", 0x10005: "Mesa"}
	if name, ok := known[id]; ok {
		return name
	}
	return fmt.Sprintf("vendor 0x%04x", id)
}

func driverText(p *properties) string {
	name, info := text(p.v12.DriverName[:]), text(p.v12.DriverInfo[:])
	if info != "" {
		name += " " + info
	}
	return fmt.Sprintf("%s, Vulkan %s", name, versionText(p.core.Properties.ApiVersion))
}
