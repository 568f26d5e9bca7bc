package cpu

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// memoryStatus is MEMORYSTATUSEX of the Windows API.
type memoryStatus struct {
	length, load                                 uint32
	totalPhys, availPhys                         uint64
	totalPageFile, availPageFile                 uint64
	totalVirtual, availVirtual, availExtendedVir uint64
}

var globalMemoryStatusEx = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// availableBytes is the physical memory that can be used without writing other
// programs' pages out.
func availableBytes() int64 {
	s := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	if ok, _, _ := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return 0
	}
	return int64(s.availPhys)
}

func processorName() string {
	if name := os.Getenv("PROCESSOR_IDENTIFIER"); name != "" {
		return name
	}
	return unnamedProcessor()
}
