//go:build simd128

package kern

import (
	_ "embed"
	"unsafe"
)

// Go's compiler emits no vector instructions for WebAssembly. So the kernels of levels SIMD128 and
// SIMD128FMA are modules of their own, made by ./wasmgen, that work on this program's memory. The
// program cannot start them itself: its loader (workbench/web/src/worker/kernels.ts) offers the
// functions below as imports named "kern". A program built with the tag simd128 needs such a loader.

//go:embed simd128.bin
var simd128Module []byte

//go:embed simd128_fma.bin
var fmaModule []byte

// load makes an instance of a module over this program's memory. It returns 1, or 0 where the
// browser does not know the module's instructions. The other imports call what was loaded.
//
//go:wasmimport kern load
//go:noescape
func load(module unsafe.Pointer, n int32) int32

// wasmLevel is the best level that the browser has.
var wasmLevel = loadKernels()

func loadKernels() Level {
	switch {
	case load(unsafe.Pointer(&simd128Module[0]), int32(len(simd128Module))) == 0:
		return Portable
	case load(unsafe.Pointer(&fmaModule[0]), int32(len(fmaModule))) == 0:
		return SIMD128
	}
	return SIMD128FMA
}

func bestLevel() Level { return wasmLevel }

// floats is a pointer to the first element of a slice that is not empty.
func floats(s []float32) unsafe.Pointer { return unsafe.Pointer(&s[0]) }
