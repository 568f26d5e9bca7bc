//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"strings"
	"testing"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// goodAnswers are those of a driver with everything that this package uses.
func goodAnswers() answers {
	s := answers{features: &features{}, props: &properties{}, ext: map[string]bool{extMatrix: true, extMat2: true, extBF16: true, extBudget: true}}
	s.plain.ApiVersion = version13
	copy(s.plain.DeviceName[:], "Tester 1\x00junk")
	s.plain.VendorID = 0x10de
	s.plain.Limits.TimestampPeriod = 1
	s.props.core.Properties = s.plain
	s.props.core.Properties.DeviceType = vk.PhysicalDeviceTypeDiscreteGpu
	s.props.v11.SubgroupSupportedStages = vk.ShaderStageFlags(vk.ShaderStageComputeBit)
	s.props.v11.SubgroupSupportedOperations = arithmetic
	s.props.v13.MinSubgroupSize, s.props.v13.MaxSubgroupSize = 32, 32
	f := s.features
	for _, on := range append(f.wanted(), &f.core.Features.RobustBufferAccess, &f.v11.StorageBuffer16BitAccess, &f.v11.UniformAndStorageBuffer16BitAccess,
		&f.v12.ShaderFloat16, &f.v12.VulkanMemoryModel, &f.v12.VulkanMemoryModelDeviceScope, &f.v13.SubgroupSizeControl, &f.v13.ComputeFullSubgroups, &f.v13.Maintenance4,
		&f.matrix.CooperativeMatrix, &f.bf16.ShaderBFloat16Type, &f.bf16.ShaderBFloat16CooperativeMatrix) {
		*on = 1
	}
	shape := vk.CooperativeMatrixPropertiesKHR{MSize: 16, NSize: 16, KSize: 16, AType: vk.ComponentTypeFloat16Khr, BType: vk.ComponentTypeFloat16Khr,
		CType: vk.ComponentTypeFloat32Khr, ResultType: vk.ComponentTypeFloat32Khr, Scope: vk.ScopeSubgroupKhr}
	s.shapes = []vk.CooperativeMatrixPropertiesKHR{shape, shape, shape}
	s.shapes[1].AType, s.shapes[1].BType = vk.ComponentTypeBfloat16Khr, vk.ComponentTypeBfloat16Khr
	s.shapes[2].ResultType = vk.ComponentTypeFloat16Khr // not one for us
	s.queues = []vk.QueueFamilyProperties{
		{QueueFlags: vk.QueueFlags(vk.QueueTransferBit), QueueCount: 1},
		{QueueFlags: vk.QueueFlags(vk.QueueComputeBit), QueueCount: 8, TimestampValidBits: 64},
		{QueueFlags: vk.QueueFlags(vk.QueueComputeBit | vk.QueueGraphicsBit), QueueCount: 1, TimestampValidBits: 64},
	}
	return s
}

// can lists what an adapter can do, in words.
func can(a Adapter) string {
	s := ""
	for _, x := range []struct {
		on   bool
		word string
	}{{a.F16, "f16"}, {a.BF16, "bf16"}, {a.Subgroups, "subgroups"}, {a.fixed, "fixed"}, {len(a.Matrix) > 0, "matrix"}, {a.Matrix2, "matrix2"},
		{a.Timestamps, "time"}, {a.budget, "budget"}} {
		if x.on {
			s += " " + x.word
		}
	}
	return s
}

// TestDescribe takes away one thing after the other: a device then does without,
// and what needs it goes with it.
func TestDescribe(t *testing.T) {
	const all = " f16 bf16 subgroups fixed matrix matrix2 time budget"
	for name, c := range map[string]struct {
		lose func(*answers)
		want string
	}{
		"nothing":             {func(*answers) {}, all},
		"matrix extension":    {func(s *answers) { delete(s.ext, extMatrix) }, " f16 subgroups fixed time budget"},
		"matrix feature":      {func(s *answers) { s.features.matrix.CooperativeMatrix = 0 }, " f16 subgroups fixed time budget"},
		"memory model":        {func(s *answers) { s.features.v12.VulkanMemoryModel = 0 }, " f16 subgroups fixed time budget"},
		"device scope":        {func(s *answers) { s.features.v12.VulkanMemoryModelDeviceScope = 0 }, " f16 subgroups fixed time budget"},
		"16-bit arithmetic":   {func(s *answers) { s.features.v12.ShaderFloat16 = 0 }, " subgroups fixed time budget"},
		"16-bit storage":      {func(s *answers) { s.features.v11.StorageBuffer16BitAccess = 0 }, " subgroups fixed time budget"},
		"subgroup control":    {func(s *answers) { s.features.v13.SubgroupSizeControl = 0 }, " f16 subgroups time budget"},
		"subgroup arithmetic": {func(s *answers) { s.props.v11.SubgroupSupportedOperations = 1 }, " f16 bf16 fixed matrix matrix2 time budget"},
		"bf16 extension":      {func(s *answers) { delete(s.ext, extBF16) }, " f16 subgroups fixed matrix matrix2 time budget"},
		"bf16 shapes":         {func(s *answers) { s.shapes = s.shapes[:1] }, " f16 subgroups fixed matrix matrix2 time budget"},
		"all shapes":          {func(s *answers) { s.shapes = s.shapes[2:] }, " f16 subgroups fixed time budget"},
		"workgroup matrices":  {func(s *answers) { *s.features.wanted()[3] = 0 }, " f16 bf16 subgroups fixed matrix time budget"},
		"a clock":             {func(s *answers) { s.queues[2].TimestampValidBits = 0 }, " f16 bf16 subgroups fixed matrix matrix2 budget"},
		"every extension":     {func(s *answers) { s.ext = nil }, " f16 subgroups fixed time"},
	} {
		s := goodAnswers()
		c.lose(&s)
		a, err := describe(s)
		if got := can(a); err != nil || got != c.want {
			t.Errorf("without %s: %v, can%s, want%s", name, err, got, c.want)
		}
		if a.Name != "Tester 1" || a.Vendor != "NVIDIA" || a.Kind != Discrete || a.family != 2 {
			t.Errorf("without %s: %+v", name, a)
		}
	}
}

// TestDescribeRefuses lists what makes a device unusable: the error says what it
// lacks and the name is there.
func TestDescribeRefuses(t *testing.T) {
	old := goodAnswers()
	old.plain.ApiVersion = 1<<22 | 1<<12 | 250
	for say, s := range map[string]answers{
		"knows Vulkan 1.1.250, want 1.3: update the driver": {plain: old.plain}, // what ask gives for it
		"lacks maintenance4":       spoiled(func(s *answers) { s.features.v13.Maintenance4 = 0 }),
		"lacks robustBufferAccess": spoiled(func(s *answers) { s.features.core.Features.RobustBufferAccess = 0 }),
		"none of its 1 queue":      spoiled(func(s *answers) { s.queues = s.queues[:1] }),
		"none of its 0 queue":      spoiled(func(s *answers) { s.queues = nil }),
		"none of its 3 queue": spoiled(func(s *answers) {
			for i := range s.queues {
				s.queues[i].QueueCount = 0
			}
		}),
	} {
		a, err := describe(s)
		if err == nil || !strings.Contains(err.Error(), say) || a.Name != "Tester 1" {
			t.Errorf("got %v of %q, want an error that says %q", err, a.Name, say)
		}
	}
}

func spoiled(spoil func(*answers)) answers {
	s := goodAnswers()
	spoil(&s)
	return s
}

// TestSubgroupsThatNoKernelMayFix: a kernel that asks for it is an error, not a call
// of the driver.
func TestSubgroupsThatNoKernelMayFix(t *testing.T) {
	d := &Device{a: Adapter{Name: "Tester 1", Limits: Limits{MinSubgroup: 32, MaxSubgroup: 32}}}
	m := Module{Code: make([]uint32, 5), Subgroup: 32}
	if _, err := d.NewPipeline(m); err == nil || !strings.Contains(err.Error(), "no kernel choose") {
		t.Errorf("got %v", err)
	}
	d.a.fixed, m.Subgroup = true, 64
	if _, err := d.NewPipeline(m); err == nil || !strings.Contains(err.Error(), "64") {
		t.Errorf("subgroups of 64: got %v", err)
	}
}
