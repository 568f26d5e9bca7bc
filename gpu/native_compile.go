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
// itself elsewhere. On the way it holds the kernel against the limits, which
// the hardware layer does not, and notes how large each binding must be.
func (h *halDriver) compile(source, entry string, slots []Slot) (hal.ShaderSource, error) {
	ast, err := naga.Parse(source)
	if err != nil {
		return hal.ShaderSource{}, err
	}
	module, err := naga.LowerWithSource(ast, source)
	if err != nil {
		return hal.ShaderSource{}, err
	}
	faults, err := naga.Validate(module)
	if err != nil {
		return hal.ShaderSource{}, err
	}
	if len(faults) > 0 {
		return hal.ShaderSource{}, errors.New(faults[0].Message)
	}
	result := hal.ShaderSource{WGSL: source}
	if h.spirv {
		words, err := naga.GenerateSPIRV(module, spirv.Options{Version: spirv.Version1_3})
		if err != nil {
			return hal.ShaderSource{}, err
		}
		result = hal.ShaderSource{SPIRV: make([]uint32, len(words)/4)}
		for i := range result.SPIRV {
			result.SPIRV[i] = binary.LittleEndian.Uint32(words[4*i:])
		}
		result.SPIRV = dropWorkgroupInit(result.SPIRV)
	}
	// From here on the module is only looked at, without what is not used.
	ir.CompactUnused(module)
	if err := h.limits.checkKernel(module, entry); err != nil {
		return hal.ShaderSource{}, err
	}
	noteSizes(module, slots)
	return result, nil
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
