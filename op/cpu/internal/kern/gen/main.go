// Command gen writes the assembly of package kern, with github.com/mmcloughlin/avo. It is a module
// of its own so that the product does not depend on avo. Run it with go generate in the package.
//
// Each kernel is described once and emitted for AVX2 and for AVX-512; type isa (isa.go) hides the
// difference. Files: micro.go and pack.go for matrix products, gemv.go for products with few rows,
// exp.go, elementwise.go, reduce.go, optim.go and half.go for vectors.
package main

import (
	"flag"
	"log"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

// files are the outputs: NAME_amd64.s and its Go declarations in NAME_amd64.go.
var files = []struct {
	name string
	emit func(c *build.Context)
}{
	{"asm_gemm", emitGemm},
	{"asm_gemv", emitGemv},
	{"asm_vec", emitVec},
	{"asm_reduce", emitReduce},
	{"asm_optim", emitOptim},
}

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "..", "folder to write to")
	flag.Parse()
	for _, f := range files {
		if err := generate(*dir, f.name, f.emit); err != nil {
			log.Fatalf("%s: %v", f.name, err)
		}
	}
}

// generate builds one file and writes its assembly and its declarations.
func generate(dir, name string, emit func(c *build.Context)) error {
	c := build.NewContext()
	emit(c)
	f, err := c.Result()
	if err != nil {
		return err
	}
	if err := pass.Compile.Execute(f); err != nil {
		return err
	}
	cfg := printer.Config{Name: "gen (see doc.go)", Pkg: "kern"}
	for ext, p := range map[string]printer.Printer{
		"_amd64.s":  printer.NewGoAsm(cfg),
		"_amd64.go": printer.NewStubs(cfg),
	} {
		text, err := p.Print(f)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+ext), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
