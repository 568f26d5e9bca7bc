//go:build amd64 || arm64

package gpu

import (
	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/metal"
	"github.com/gogpu/wgpu/hal/vulkan"
)

// platformBackends are the ways to a GPU on macOS.
var platformBackends = []backend{
	{"metal", func() hal.Backend { return metal.Backend{} }},
	{"vulkan", func() hal.Backend { return vulkan.Backend{} }},
}

// driverDescriptions has nothing to tell on macOS: drivers are part of the system.
func driverDescriptions() (files []string, variable string) { return nil, "" }

const noDrivers = ""
