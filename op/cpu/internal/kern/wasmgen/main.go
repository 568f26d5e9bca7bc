// Command wasmgen writes the kernels of level simd128: a WebAssembly module with
// 128-bit vectors, which Go's compiler does not emit. The module works on the
// memory of the Go program; see level_simd128_js.go.
//
//	go run ./wasmgen -out simd128.bin
//
// asm.go is a small assembler; vec.go, exp.go and gemm.go have the kernels.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "simd128.bin", "file to write")
	flag.Parse()
	if err := os.WriteFile(*out, kernels(), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, "wasmgen:", err)
		os.Exit(1)
	}
}

// kernels returns the module.
func kernels() []byte {
	all := append(elementwise(), reductions()...)
	all = append(all, exponentials()...)
	return module(append(all, micro(), gemvNN(), packTranspose()))
}
