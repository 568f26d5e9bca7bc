//go:build (linux || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gogpu/naga"
	"github.com/gogpu/naga/ir"
	"github.com/gogpu/naga/spirv"
	"github.com/gogpu/wgpu/hal"
)

// compile turns WGSL into what the backend takes: SPIR-V on Vulkan, the text
// itself elsewhere.
func (h *halDriver) compile(source, entry string, slots []Slot) (hal.ShaderSource, error) {
	if h.spirv {
		words, err := compileSPIRV(h.limits, source, entry, slots)
		return hal.ShaderSource{SPIRV: words}, err
	}
	module, err := parse(source)
	if err != nil {
		return hal.ShaderSource{}, err
	}
	return hal.ShaderSource{WGSL: source}, inspect(h.limits, module, entry, slots)
}

// compileSPIRV turns WGSL into SPIR-V.
func compileSPIRV(l Limits, source, entry string, slots []Slot) ([]uint32, error) {
	module, err := parse(source)
	if err != nil {
		return nil, err
	}
	code, err := naga.GenerateSPIRV(module, spirv.Options{Version: spirv.Version1_3})
	if err != nil {
		return nil, err
	}
	words := make([]uint32, len(code)/4)
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(code[4*i:])
	}
	return dropWorkgroupInit(words), inspect(l, module, entry, slots)
}

// parse reads and checks a WGSL module.
func parse(source string) (*ir.Module, error) {
	ast, err := naga.Parse(source)
	if err != nil {
		return nil, err
	}
	module, err := naga.LowerWithSource(ast, source)
	if err != nil {
		return nil, err
	}
	faults, err := naga.Validate(module)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 {
		return nil, errors.New(faults[0].Message)
	}
	return module, nil
}

// inspect holds a kernel against the limits, which the layers below do not, and
// notes how large each binding must be. It drops what the kernel does not use
// from the module, which no longer serves for compiling then.
func inspect(l Limits, module *ir.Module, entry string, slots []Slot) error {
	ir.CompactUnused(module)
	if err := l.checkKernel(module, entry); err != nil {
		return err
	}
	noteSizes(module, slots)
	return nil
}

// checkKernel holds the workgroup of an entry point against the limits.
func (l Limits) checkKernel(module *ir.Module, entry string) error {
	for _, e := range module.EntryPoints {
		if e.Name != entry {
			continue
		}
		x, y, z := int(e.Workgroup[0]), int(e.Workgroup[1]), int(e.Workgroup[2])
		if x*y*z > l.Invocations || x > l.WorkgroupSizeX || y > l.WorkgroupSizeY {
			return fmt.Errorf("a workgroup of (%d, %d, %d) threads, but at most %d are allowed, %d along x and %d along y",
				x, y, z, l.Invocations, l.WorkgroupSizeX, l.WorkgroupSizeY)
		}
	}
	bytes := 0
	for _, v := range module.GlobalVariables {
		if v.Space == ir.SpaceWorkGroup {
			bytes += (int(ir.TypeSize(module, v.Type)) + 15) &^ 15
		}
	}
	if bytes > l.WorkgroupMemory {
		return fmt.Errorf("%d bytes of var<workgroup>, but at most %d are allowed", bytes, l.WorkgroupMemory)
	}
	return nil
}

// noteSizes sets the least size of each binding that the kernel uses.
func noteSizes(module *ir.Module, slots []Slot) {
	for _, v := range module.GlobalVariables {
		if v.Binding != nil && int(v.Binding.Binding) < len(slots) {
			slots[v.Binding.Binding].minSize = uint64(ir.TypeSize(module, v.Type))
		}
	}
}
