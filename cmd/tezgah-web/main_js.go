package main

import (
	"fmt"
	"os"
	"syscall/js"

	"tezgah/workbench/engine"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tezgah:", err)
		os.Exit(1)
	}
}

// run starts the engine over the folder that the worker names, and serves
// until the tab is closed.
func run() error {
	h, err := findHost()
	if err != nil {
		return err
	}
	if len(os.Args) != 2 {
		return fmt.Errorf("got %d arguments, want the folder alone", len(os.Args)-1)
	}
	devices := listDevices(h)
	s, err := engine.New(engine.Options{
		Dir: os.Args[1], Place: "tab", Version: version(),
		OpenBackend: devices.open, Devices: devices.list,
		Threads: 1, Sample: h.sample, FreeDisk: h.freeDisk, Persistent: h.persistent,
		Yield: h.yield, Notices: h.notices(),
	})
	if err != nil {
		return err
	}
	h.ready(js.FuncOf(func(_ js.Value, args []js.Value) any {
		go serve(s, args[0])
		return nil
	}))
	select {}
}
