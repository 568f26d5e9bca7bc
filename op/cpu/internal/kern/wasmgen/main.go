// Command wasmgen writes the kernels of levels simd128 and simd128-fma:
// WebAssembly modules with 128-bit vectors, which Go's compiler does not emit. The
// modules work on the memory of the Go program; see level_simd128_js.go.
//
//	go run ./wasmgen -dir .
//
// writes simd128.bin and simd128_fma.bin there. The second has the products alone,
// with the multiply-adds of relaxed SIMD, which not every browser knows. asm.go is
// a small assembler; vec.go, exp.go and gemm.go have the kernels.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", ".", "folder to write to")
	flag.Parse()
	for name, module := range modules() {
		if err := os.WriteFile(filepath.Join(*dir, name), module, 0o666); err != nil {
			fmt.Fprintln(os.Stderr, "wasmgen:", err)
			os.Exit(1)
		}
	}
}

// modules returns the modules by the names of their files.
func modules() map[string][]byte {
	all := append(elementwise(), reductions()...)
	all = append(all, exponentials()...)
	all = append(all, micro("micro", false), gemvNN("gemvNN", false), packTranspose())
	fused := []*function{micro("microFMA", true), gemvNN("gemvNNFMA", true)}
	return map[string][]byte{"simd128.bin": module(all), "simd128_fma.bin": module(fused)}
}
