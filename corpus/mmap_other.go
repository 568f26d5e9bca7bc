//go:build !unix && !windows

package corpus

import "os"

// mapFile reads the file, where files can't be mapped.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	return readWhole(f, size)
}
