package cpu

import "syscall"

// hugePages is the advice that a range should lie in pages of 2 MiB: a training
// step walks gigabytes with large strides, and with pages of 4 KiB it would
// spend its time on address translation. Package syscall does not name it.
const hugePages = 14

// mapPages returns n zeroed bytes of their own pages, outside the Go heap. nil
// means that the system refuses; ordinary memory may still do.
func mapPages(n int) []byte {
	p, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	_ = syscall.Madvise(p, hugePages) // only advice: without it the memory is slower, not wrong
	return p
}

// unmapPages gives back what mapPages returned, whole.
func unmapPages(p []byte) { _ = syscall.Munmap(p) }
