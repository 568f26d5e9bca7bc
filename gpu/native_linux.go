//go:build amd64 || arm64

package gpu

import (
	"os"
	"path/filepath"

	"github.com/gogpu/wgpu/hal"
	"github.com/gogpu/wgpu/hal/vulkan"
)

// platformBackends are the ways to a GPU on Linux. OpenGL is not among them:
// it needs a window.
var platformBackends = []backend{{"vulkan", func() hal.Backend { return vulkan.Backend{} }}}

// driverFolders are where Vulkan's loader looks for drivers.
var driverFolders = []string{
	"/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d",
}

// driverDescriptions are the driver descriptions (ICDs) that the loader looks at:
// those that the environment names, else all in driverFolders. variable is what
// names them, "" for none.
func driverDescriptions() (files []string, variable string) {
	for _, variable := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} { // the first one counts
		if v := os.Getenv(variable); v != "" {
			return filepath.SplitList(v), variable
		}
	}
	for _, folder := range driverFolders {
		found, _ := filepath.Glob(filepath.Join(folder, "*.json"))
		files = append(files, found...)
	}
	return files, ""
}

// noDrivers is the line for a loader that finds no driver.
var noDrivers = "vulkan drivers: none described in " + filepath.Join(driverFolders[1], "*.json") + " and the like"
