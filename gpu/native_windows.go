//go:build amd64 || arm64

package gpu

import (
	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/dx12"
	"github.com/gogpu/wgpu/hal/vulkan"
)

// platformBackends are the ways to a GPU on Windows, the better known first.
var platformBackends = []backend{
	{"vulkan", func() hal.Backend { return vulkan.Backend{} }},
	{"dx12", func() hal.Backend { return dx12.Backend{} }},
}

// driverDescriptions has nothing to tell on Windows: drivers are in the registry.
func driverDescriptions() (files []string, variable string) { return nil, "" }

const noDrivers = ""
