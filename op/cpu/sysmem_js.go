package cpu

// wasmBytes is what buffers may take of WebAssembly's 4 GiB of memory, so that
// the rest of the program has room: beyond, Go would end the page's program
// instead of returning an error.
const wasmBytes = 3 << 30

func availableBytes() int64 { return wasmBytes }

// processorName names what a page can know of the processor.
func processorName() string { return "WebAssembly" }
