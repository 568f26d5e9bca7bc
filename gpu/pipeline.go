package gpu

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxSlots is the most bindings of a kernel; WebGPU's defaults allow 8 storage
// and 12 uniform buffers, the largest kernel of this project has 10 in all.
const maxSlots = 12

// SlotKind is how a kernel uses a binding.
type SlotKind int

// The kinds of binding.
const (
	ReadOnly  SlotKind = iota // var<storage, read>
	ReadWrite                 // var<storage, read_write>
	UniformSlot
)

// String gives the WGSL address space and access.
func (k SlotKind) String() string {
	return [...]string{"storage, read", "storage, read_write", "uniform"}[k]
}

// Slot is one binding that a kernel declares.
type Slot struct {
	Name string
	Kind SlotKind

	minSize uint64 // bytes the kernel reads at least, 0 if not known
}

// Pipeline is a compiled kernel.
type Pipeline struct {
	label  string
	slots  []Slot
	id     uint64
	handle any
}

// Label is the name given to NewPipeline.
func (p *Pipeline) Label() string { return p.label }

// Slots are the kernel's bindings, in order.
func (p *Pipeline) Slots() []Slot { return p.slots }

// NewPipeline compiles a WGSL module with one @compute entry point. The label
// names the kernel in errors and profiles. The same source gives the same
// pipeline again, whatever the label. Errors: a *ShaderError (ErrShader) with
// the lines around the mistake; ErrValidation when the bindings are not 0, 1,
// 2, … of group 0, or more than the device allows.
func (d *Device) NewPipeline(label, source string) (p *Pipeline, err error) {
	what := "kernel " + label
	if err := d.use(what); err != nil {
		return nil, err
	}
	defer rescue(what, &err)
	if p, ok := d.pipelines[source]; ok {
		return p, nil
	}
	entry, err := findEntry(source)
	if err != nil {
		return nil, invalid("%s: %v", what, err)
	}
	slots, err := findSlots(source)
	if err != nil {
		return nil, invalid("%s: %v", what, err)
	}
	if err := d.limits.checkSlots(slots); err != nil {
		return nil, invalid("%s: %v on %s", what, err, d.info.Name)
	}
	handle, err := d.drv.newPipeline(label, source, entry, slots)
	if errors.Is(err, ErrShader) {
		return nil, fmt.Errorf("gpu: %w", err)
	}
	if err != nil {
		return nil, d.failed(what, err)
	}
	d.nextID++
	p = &Pipeline{label: label, slots: slots, id: d.nextID, handle: handle}
	d.pipelines[source] = p
	return p, nil
}

// checkSlots compares the number of bindings with the limits.
func (l Limits) checkSlots(slots []Slot) error {
	storage, uniform := 0, 0
	for _, s := range slots {
		if s.Kind == UniformSlot {
			uniform++
		} else {
			storage++
		}
	}
	switch {
	case storage > l.StorageBuffers:
		return fmt.Errorf("%d storage buffers, but at most %d are allowed", storage, l.StorageBuffers)
	case uniform > l.UniformBuffers:
		return fmt.Errorf("%d uniform buffers, but at most %d are allowed", uniform, l.UniformBuffers)
	}
	return nil
}

var (
	comments    = regexp.MustCompile(`//[^\n]*|(?s:/\*.*?\*/)`)
	entryPoint  = regexp.MustCompile(`@compute\b[^{;]*?\bfn\s+([A-Za-z_]\w*)`)
	declaration = regexp.MustCompile(`@group\(\s*(\d+)u?\s*\)\s*@binding\(\s*(\d+)u?\s*\)\s*var\s*<\s*(\w+)\s*(?:,\s*(\w+)\s*)?>\s*([A-Za-z_]\w*)`)
)

// findEntry returns the name of the one @compute function of a module.
func findEntry(source string) (string, error) {
	found := entryPoint.FindAllStringSubmatch(comments.ReplaceAllString(source, " "), -1)
	if len(found) != 1 {
		return "", fmt.Errorf("the module has %d @compute functions, want 1", len(found))
	}
	return found[0][1], nil
}

// findSlots reads the bindings that a module declares, used or not: the text
// alone decides the layout, on every platform in the same way.
func findSlots(source string) ([]Slot, error) {
	found := declaration.FindAllStringSubmatch(comments.ReplaceAllString(source, " "), -1)
	if len(found) == 0 || len(found) > maxSlots {
		return nil, fmt.Errorf("the module declares %d bindings as @group(0) @binding(i) var<…>, want 1 to %d", len(found), maxSlots)
	}
	slots := make([]Slot, len(found))
	for _, f := range found {
		i, err := strconv.Atoi(f[2])
		if f[1] != "0" || err != nil || i >= len(slots) || slots[i].Name != "" {
			return nil, fmt.Errorf("binding %s of group %s (%s) is double or leaves a gap: want 0 to %d of group 0", f[2], f[1], f[5], len(slots)-1)
		}
		kind, err := slotKind(f[3], f[4])
		if err != nil {
			return nil, fmt.Errorf("binding %d (%s): %v", i, f[5], err)
		}
		slots[i] = Slot{Name: f[5], Kind: kind}
	}
	return slots, nil
}

// slotKind reads the words in var<…>.
func slotKind(space, access string) (SlotKind, error) {
	switch strings.TrimSpace(space + " " + access) {
	case "uniform":
		return UniformSlot, nil
	case "storage", "storage read":
		return ReadOnly, nil
	case "storage read_write":
		return ReadWrite, nil
	}
	return 0, fmt.Errorf("var<%s %s> is not uniform, storage read or storage read_write", space, access)
}

// Module is a kernel in SPIR-V, for what WGSL cannot say.
type Module struct {
	Code  []uint32
	Entry string
	Slots []Slot // the bindings of group 0, from 0 on
	// Constants are the values of the specialization constants 0, 1, 2, ….
	Constants []uint32
	// Subgroup fixes the threads of a subgroup; 0 leaves them to the driver.
	Subgroup int
}

// moduleDriver is a driver that takes SPIR-V, and kernels from several goroutines at
// once.
type moduleDriver interface {
	newModule(label string, m Module) (any, error)
}

// key tells modules apart.
func (m Module) key() string {
	return fmt.Sprintf("%s %d %v %v %x", m.Entry, m.Subgroup, m.Constants, m.Slots, sha256.Sum256(Bytes(m.Code)))
}

// NewModule makes a pipeline from SPIR-V. Equal modules give the same pipeline
// again. Errors: ErrValidation where the device is not reached straight on
// Vulkan, a *ShaderError when the driver refuses.
func (d *Device) NewModule(label string, m Module) (p *Pipeline, err error) {
	what := "kernel " + label
	if err := d.use(what); err != nil {
		return nil, err
	}
	defer rescue(what, &err)
	maker, ok := d.drv.(moduleDriver)
	if !ok {
		return nil, invalid("%s: SPIR-V is for devices that are reached straight on Vulkan, this is %s", what, d.info)
	}
	key := m.key()
	if p, ok := d.pipelines[key]; ok {
		return p, nil
	}
	if err := d.limits.checkSlots(m.Slots); err != nil {
		return nil, invalid("%s: %v on %s", what, err, d.info.Name)
	}
	handle, err := maker.newModule(label, m)
	if errors.Is(err, ErrShader) {
		return nil, fmt.Errorf("gpu: %w", err)
	}
	if err != nil {
		return nil, d.failed(what, err)
	}
	d.nextID++
	p = &Pipeline{label: label, slots: append([]Slot(nil), m.Slots...), id: d.nextID, handle: handle}
	d.pipelines[key] = p
	return p, nil
}
