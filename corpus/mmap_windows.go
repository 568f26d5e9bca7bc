package corpus

import (
	"math"
	"os"
	"syscall"
	"unsafe"
)

// mapFile maps a file of the given size, greater than 0, into memory for reading.
func mapFile(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	if size > math.MaxInt {
		return nil, nil, syscall.EFBIG
	}
	mapping, err := syscall.CreateFileMapping(syscall.Handle(f.Fd()), nil, syscall.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return readWhole(f, size)
	}
	defer syscall.CloseHandle(mapping) // the view keeps the mapping alive
	view, err := syscall.MapViewOfFile(mapping, syscall.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return readWhole(f, size)
	}
	b = unsafe.Slice((*byte)(viewPointer(view)), size)
	return b, func() error { return syscall.UnmapViewOfFile(view) }, nil
}

// viewPointer turns the address of a view, which is not memory of Go's, into a pointer.
func viewPointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
