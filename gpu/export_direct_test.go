//go:build (linux || windows) && (amd64 || arm64)

package gpu

// Recorded counts the command buffers that were recorded; ok is false for a device
// that is not reached straight on Vulkan.
func Recorded(d *Device) (n uint64, ok bool) {
	v, ok := d.drv.(*directDriver)
	if !ok {
		return 0, false
	}
	return v.dev.Recorded(), true
}
