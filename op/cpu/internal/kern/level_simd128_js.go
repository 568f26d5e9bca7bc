//go:build simd128

package kern

import (
	_ "embed"
	"unsafe"
)

// Go's compiler emits no vector instructions for WebAssembly. So the kernels of level SIMD128 are a
// module of their own, made by ./wasmgen, that works on this program's memory. The program cannot
// start it itself: its loader (workbench/web/src/worker/kernels.ts) offers the functions below as
// imports named "kern". A program built with the tag simd128 needs such a loader.

//go:embed simd128.bin
var simd128Module []byte

// load makes an instance of a module over this program's memory. It returns 1, or 0 where the
// browser has no vectors. The other imports call the instance.
//
//go:wasmimport kern load
//go:noescape
func load(module unsafe.Pointer, n int32) int32

// simd128 says whether the instance was made.
var simd128 = load(unsafe.Pointer(&simd128Module[0]), int32(len(simd128Module))) == 1

func bestLevel() Level {
	if simd128 {
		return SIMD128
	}
	return Portable
}

// floats is a pointer to the first element of a slice that is not empty.
func floats(s []float32) unsafe.Pointer { return unsafe.Pointer(&s[0]) }
