//go:build darwin && (amd64 || arm64)

package gpu

import "errors"

// directAdapters finds nothing: macOS has no Vulkan of its own, and MoltenVK is
// reached better through Metal.
func directAdapters() search { return search{} }

func openDirect(adapter, Limits) (driver, error) {
	return nil, errors.New("no Vulkan on this system")
}
