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

// driverFiles says which driver descriptions (ICDs) the loader can find.
func driverFiles() []string {
	var found []string
	for _, folder := range driverFolders {
		files, _ := filepath.Glob(filepath.Join(folder, "*.json"))
		found = append(found, files...)
	}
	for _, name := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} {
		if v := os.Getenv(name); v != "" {
			found = append(found, name+"="+v)
		}
	}
	if len(found) == 0 {
		return []string{"vulkan drivers: none described in " + filepath.Join(driverFolders[1], "*.json") + " and the like"}
	}
	for i := range found {
		found[i] = "vulkan driver: " + found[i]
	}
	return found
}
