package main

import (
	"fmt"
	"strings"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/webgpu"
)

// openGPU opens a GPU backend by "auto" (never a software adapter), "gpu",
// "gpu:N" or part of a name, reached as --backend says, and returns what the user should know about it.
func openGPU(device, backend string) (op.Backend, string, error) {
	if device == "auto" {
		device = "gpu"
	}
	dev, err := gpu.Open(gpu.Options{Device: device, Backend: backend})
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

// gpuRows lists the GPUs for tezgah devices.
func gpuRows() ([]deviceRow, error) {
	adapters, err := gpu.Adapters()
	if err != nil {
		return nil, err
	}
	var rows []deviceRow
	for _, a := range adapters {
		detail := []string{a.Backend, a.Driver, "buffers up to " + formatBytes(int64(a.Limits.BufferSize))}
		if m := matrixUnits(a.Matrix); m != "" {
			detail = append(detail, m)
		}
		if a.Note != "" {
			detail = append(detail, "not straight on Vulkan: "+a.Note)
		}
		rows = append(rows, deviceRow{deviceName(a.Index), a.Name, a.Kind.String(), strings.Join(detail, ", ")})
	}
	return rows, nil
}

// deviceName is what --device takes for an adapter.
func deviceName(index int) string { return fmt.Sprintf("gpu:%d", index) }

// matrixUnits says what an adapter's matrix units multiply, "" without any.
func matrixUnits(shapes []gpu.MatrixShape) string {
	inputs := ""
	for _, input := range []string{"bf16", "f16"} {
		for _, s := range shapes {
			if s.Input == input {
				inputs += " " + input
				break
			}
		}
	}
	if inputs == "" {
		return ""
	}
	return "matrix units for" + inputs
}
