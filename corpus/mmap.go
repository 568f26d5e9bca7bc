package corpus

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
)

// readWhole stands in for a mapping: the file's content in memory.
func readWhole(f *os.File, size int64) (b []byte, unmap func() error, err error) {
	b = make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, size), b); err != nil {
		return nil, nil, err
	}
	return b, func() error { return nil }, nil
}

// guard calls f, which reads mapped memory. When the file was shortened or its disk fails meanwhile, the processor
// faults; guard makes that an error instead of the end of the program.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if fault, ok := v.(interface {
			error
			Addr() uintptr
		}); ok {
			err = fmt.Errorf("reading the mapped file failed (was it shortened, or its disk removed?): %w", fault)
			return
		}
		panic(v)
	}()
	return f()
}
