//go:build (linux || windows) && (amd64 || arm64)

package vulkan

import (
	"fmt"
	"unsafe"

	"github.com/gogpu/wgpu/hal/vulkan/vk"
)

// Slot says what a kernel does with a binding.
type Slot int

// The kinds of bindings.
const (
	ReadOnly Slot = iota
	ReadWrite
	Uniform
)

func (s Slot) descriptor() vk.DescriptorType {
	if s == Uniform {
		return vk.DescriptorTypeUniformBuffer
	}
	return vk.DescriptorTypeStorageBuffer
}

// Pipeline is a compiled kernel.
type Pipeline struct {
	slots    []Slot
	bindings vk.DescriptorSetLayout
	layout   vk.PipelineLayout
	handle   vk.Pipeline
}

// Module is a kernel in SPIR-V. Binding i of group 0 is Slots[i].
type Module struct {
	Code  []uint32
	Entry string
	Slots []Slot
	// Constants are the values of the specialization constants 0, 1, 2, ….
	Constants []uint32
	// Subgroup fixes the number of threads of a subgroup, 0 leaves it to the
	// driver. A fixed one must lie within the adapter's limits, and the
	// workgroup must consist of whole subgroups.
	Subgroup int
}

// NewPipeline compiles a kernel. It may be called from several goroutines at once.
func (d *Device) NewPipeline(m Module) (*Pipeline, error) {
	if len(m.Code) < 5 {
		return nil, fmt.Errorf("a SPIR-V module of %d words", len(m.Code))
	}
	if m.Subgroup != 0 && !d.a.fixed {
		return nil, fmt.Errorf("subgroups of %d threads, but the driver of %s lets no kernel choose", m.Subgroup, d.a.Name)
	}
	if l := d.a.Limits; m.Subgroup != 0 && (m.Subgroup < l.MinSubgroup || m.Subgroup > l.MaxSubgroup) {
		return nil, fmt.Errorf("subgroups of %d threads, but %s has %d to %d", m.Subgroup, d.a.Name, l.MinSubgroup, l.MaxSubgroup)
	}
	p := &Pipeline{slots: append([]Slot(nil), m.Slots...)}
	if err := d.build(p, m); err != nil {
		d.FreePipeline(p)
		return nil, err
	}
	return p, nil
}

func (d *Device) build(p *Pipeline, m Module) error {
	const stage = vk.ShaderStageComputeBit
	bindings := make([]vk.DescriptorSetLayoutBinding, len(p.slots)+1) // one more, so that there is a first
	for i, s := range p.slots {
		bindings[i] = vk.DescriptorSetLayoutBinding{Binding: uint32(i), DescriptorType: s.descriptor(), DescriptorCount: 1, StageFlags: vk.ShaderStageFlags(stage)}
	}
	set := vk.DescriptorSetLayoutCreateInfo{SType: vk.StructureTypeDescriptorSetLayoutCreateInfo, BindingCount: uint32(len(p.slots)), PBindings: &bindings[0]}
	if err := check("vkCreateDescriptorSetLayout", d.cmds.CreateDescriptorSetLayout(d.handle, &set, nil, &p.bindings)); err != nil {
		return err
	}
	layout := vk.PipelineLayoutCreateInfo{SType: vk.StructureTypePipelineLayoutCreateInfo, SetLayoutCount: 1, PSetLayouts: &p.bindings}
	if err := check("vkCreatePipelineLayout", d.cmds.CreatePipelineLayout(d.handle, &layout, nil, &p.layout)); err != nil {
		return err
	}
	code := vk.ShaderModuleCreateInfo{SType: vk.StructureTypeShaderModuleCreateInfo, CodeSize: uintptr(4 * len(m.Code)), PCode: &m.Code[0]}
	var module vk.ShaderModule
	if err := check("vkCreateShaderModule", d.cmds.CreateShaderModule(d.handle, &code, nil, &module)); err != nil {
		return err
	}
	defer d.cmds.DestroyShaderModule(d.handle, module, nil)
	var keep pinned
	defer keep.unpin()
	info := vk.ComputePipelineCreateInfo{
		SType: vk.StructureTypeComputePipelineCreateInfo, Layout: p.layout, BasePipelineIndex: -1,
		Stage: vk.PipelineShaderStageCreateInfo{SType: vk.StructureTypePipelineShaderStageCreateInfo, Stage: stage, Module: module, PName: keep.text(m.Entry)},
	}
	info.Stage.PSpecializationInfo = m.constants()
	if m.Subgroup != 0 {
		info.Stage.Flags = requireFullSubgroups
		info.Stage.PNext = next(&vk.PipelineShaderStageRequiredSubgroupSizeCreateInfo{SType: typeRequiredSubgroup, RequiredSubgroupSize: uint32(m.Subgroup)})
	}
	if err := check("vkCreateComputePipelines", d.cmds.CreateComputePipelines(d.handle, d.cache.handle, 1, &info, nil, &p.handle)); err != nil {
		return err
	}
	if p.handle == 0 { // seen from drivers that report success
		return fmt.Errorf("vkCreateComputePipelines: the driver made no pipeline")
	}
	d.cache.made.Add(1)
	return nil
}

// constants lists the specialization constants, nil for none.
func (m Module) constants() *vk.SpecializationInfo {
	if len(m.Constants) == 0 {
		return nil
	}
	entries := make([]vk.SpecializationMapEntry, len(m.Constants))
	for i := range entries {
		entries[i] = vk.SpecializationMapEntry{ConstantID: uint32(i), Offset: uint32(4 * i), Size: 4}
	}
	return &vk.SpecializationInfo{MapEntryCount: uint32(len(entries)), PMapEntries: &entries[0],
		DataSize: uintptr(4 * len(m.Constants)), PData: (*uintptr)(unsafe.Pointer(&m.Constants[0]))}
}

// requireFullSubgroups is VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT.
const requireFullSubgroups = 2

// FreePipeline frees a pipeline that no recorded or running work uses.
func (d *Device) FreePipeline(p *Pipeline) {
	if d.hung {
		return
	}
	if p.handle != 0 {
		d.cmds.DestroyPipeline(d.handle, p.handle, nil)
	}
	if p.layout != 0 {
		d.cmds.DestroyPipelineLayout(d.handle, p.layout, nil)
	}
	if p.bindings != 0 {
		d.cmds.DestroyDescriptorSetLayout(d.handle, p.bindings, nil)
	}
	*p, d.stale = Pipeline{}, true
}

// Range is a bound part of a buffer, in bytes.
type Range struct {
	Buffer       *Buffer
	Offset, Size uint64
}

// Group is a pipeline's bindings.
type Group struct {
	set      vk.DescriptorSet
	pool     *setPool
	accesses []access
}

// NewGroup binds ranges[i] to binding i of p.
func (d *Device) NewGroup(p *Pipeline, ranges []Range) (*Group, error) {
	if len(ranges) != len(p.slots) {
		return nil, fmt.Errorf("%d ranges for %d bindings", len(ranges), len(p.slots))
	}
	g := &Group{}
	if err := d.sets.alloc(d, g, &p.bindings); err != nil {
		return nil, err
	}
	if len(ranges) == 0 {
		return g, nil
	}
	infos := make([]vk.DescriptorBufferInfo, len(ranges))
	writes := make([]vk.WriteDescriptorSet, len(ranges))
	for i, r := range ranges {
		infos[i] = vk.DescriptorBufferInfo{Buffer: r.Buffer.handle, Offset: vk.DeviceSize(r.Offset), Range: vk.DeviceSize(r.Size)}
		writes[i] = vk.WriteDescriptorSet{SType: vk.StructureTypeWriteDescriptorSet, DstSet: g.set, DstBinding: uint32(i),
			DescriptorCount: 1, DescriptorType: p.slots[i].descriptor(), PBufferInfo: &infos[i]}
		g.accesses = append(g.accesses, access{r.Buffer, r.Offset, r.Offset + r.Size, p.slots[i] == ReadWrite})
	}
	d.cmds.UpdateDescriptorSets(d.handle, uint32(len(writes)), &writes[0], 0, nil)
	return g, nil
}

// FreeGroup frees a group that no recorded or running work uses.
func (d *Device) FreeGroup(g *Group) {
	if d.hung {
		return
	}
	d.sets.release(d, g)
	g.set, d.stale = 0, true
}

// setPools hand out descriptor sets.
type setPools struct{ list []*setPool }

type setPool struct {
	handle vk.DescriptorPool
	used   int
}

const setsPerPool = 256

func (s *setPools) alloc(d *Device, g *Group, layout *vk.DescriptorSetLayout) error {
	for _, p := range s.list {
		if p.used < setsPerPool && p.alloc(d, g, layout) == nil {
			return nil
		}
	}
	p := &setPool{}
	sizes := [2]vk.DescriptorPoolSize{
		{Type: vk.DescriptorTypeStorageBuffer, DescriptorCount: setsPerPool * 8},
		{Type: vk.DescriptorTypeUniformBuffer, DescriptorCount: setsPerPool * 4},
	}
	info := vk.DescriptorPoolCreateInfo{SType: vk.StructureTypeDescriptorPoolCreateInfo, MaxSets: setsPerPool, PoolSizeCount: 2, PPoolSizes: &sizes[0],
		Flags: vk.DescriptorPoolCreateFlags(vk.DescriptorPoolCreateFreeDescriptorSetBit)}
	if err := check("vkCreateDescriptorPool", d.cmds.CreateDescriptorPool(d.handle, &info, nil, &p.handle)); err != nil {
		return err
	}
	s.list = append(s.list, p)
	return p.alloc(d, g, layout)
}

func (p *setPool) alloc(d *Device, g *Group, layout *vk.DescriptorSetLayout) error {
	info := vk.DescriptorSetAllocateInfo{SType: vk.StructureTypeDescriptorSetAllocateInfo, DescriptorPool: p.handle, DescriptorSetCount: 1, PSetLayouts: layout}
	if err := check("vkAllocateDescriptorSets", d.cmds.AllocateDescriptorSets(d.handle, &info, &g.set)); err != nil {
		return err
	}
	g.pool = p
	p.used++
	return nil
}

func (s *setPools) release(d *Device, g *Group) {
	d.cmds.FreeDescriptorSets(d.handle, g.pool.handle, 1, &g.set)
	g.pool.used--
}

func (s *setPools) free(d *Device) {
	for _, p := range s.list {
		d.cmds.DestroyDescriptorPool(d.handle, p.handle, nil)
	}
	s.list = nil
}
