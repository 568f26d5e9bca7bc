package main

import (
	"errors"
	"fmt"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/webgpu"
	"tezgah/workbench/engine"
)

// devices are what can compute in this tab: the adapters that the browser's
// WebGPU offered at the start, and the processor through wasm.
type devices struct {
	h    host
	gpus []gpu.AdapterInfo
}

func listDevices(h host) *devices {
	gpus, _ := gpu.Adapters() // the error says that there are none
	return &devices{h, gpus}
}

func (d *devices) list() []engine.Device {
	var all []engine.Device
	for _, a := range d.gpus {
		all = append(all, engine.Device{ID: fmt.Sprintf("gpu:%d", a.Index), Name: a.Name, Kind: "gpu", Software: a.Kind == gpu.Software})
	}
	return append(all, engine.Device{ID: "cpu", Name: "WebAssembly on this computer's processor", Kind: "cpu"})
}

// open opens a device by its id. "auto" is a real GPU, or else the processor.
func (d *devices) open(id string) (op.Backend, string, error) {
	switch id {
	case "cpu":
		b, err := d.openCPU()
		return b, "", err
	case "auto":
		b, notice, err := openGPU("auto")
		if err == nil {
			return b, notice, nil
		}
		if errors.Is(err, gpu.ErrNoAdapter) {
			b, err := d.openCPU()
			return b, "", err
		}
		notice = "the GPU cannot be used, going on with the processor: " + err.Error()
		b, err = d.openCPU()
		return b, notice, err
	}
	return openGPU(id)
}

func (d *devices) openCPU() (op.Backend, error) {
	b, err := cpu.New(cpu.Options{Threads: 1, Between: d.h.breathe})
	if err != nil {
		return nil, err
	}
	return b, nil
}

func openGPU(id string) (op.Backend, string, error) {
	dev, err := gpu.Open(gpu.Options{Device: id})
	if err != nil {
		return nil, "", err
	}
	b, err := webgpu.New(dev, webgpu.Options{})
	if err != nil {
		dev.Close()
		return nil, "", err
	}
	return b, b.Notice(), nil
}
