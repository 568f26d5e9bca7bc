package kern

import "unsafe"

// Workspace is the scratch memory of one thread. Its zero value is ready; it grows to what is asked
// of it and is then reused. One thread uses it at a time.
type Workspace struct {
	a, b   []float32
	serial int // of gemmJob, when a holds a block that it packed
	row    int
	tile   [maxTile]float32 // an edge tile of C
}

// maxTile is the largest micro-kernel's tile, 12×32.
const maxTile = 12 * 32

// cacheLine is the alignment of packed buffers, in bytes, so that no vector load crosses a line.
const cacheLine = 64

// grow returns a buffer of n floats on a cache line: buf itself if it is large enough, else a new
// one with unspecified contents.
func grow(buf []float32, n int) []float32 {
	if cap(buf) >= n {
		return buf[:n]
	}
	return alignedFloats(n)
}

func alignedFloats(n int) []float32 {
	const pad = cacheLine / 4
	buf := make([]float32, n+pad)
	skip := 0
	if off := uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % cacheLine; off != 0 {
		skip = int(cacheLine-off) / 4
	}
	return buf[skip : skip+n : skip+n]
}
