//go:build unix && !js

package corpus

import (
	"math"
	"os"
	"syscall"
)

// mapFile maps a file of the given size, greater than 0, into memory for reading.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	if size > math.MaxInt {
		return nil, nil, syscall.EFBIG
	}
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return readWhole(f, size) // a file system without mapping
	}
	return b, func() error { return syscall.Munmap(b) }, nil
}
