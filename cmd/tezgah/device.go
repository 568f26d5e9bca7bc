package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/cpu"
)

// deviceFlags choose what computes.
type deviceFlags struct {
	device  string
	backend string
	threads int
}

func (d *deviceFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.device, "device", "auto", "auto, cpu, gpu, gpu:N, or part of a GPU's name")
	cmd.Flags().StringVar(&d.backend, "backend", "", "how a GPU is reached: vulkan, webgpu (Vulkan, Metal or DirectX 12 through it), or empty for the first that works")
	cmd.Flags().IntVar(&d.threads, "threads", 0, "CPU threads; 0 is all cores")
}

// check refuses values that cannot be meant, before any work.
func (d *deviceFlags) check() error {
	if d.threads < 0 || d.threads > 4096 {
		return usagef("--threads is %d, want 0 (all cores) or a positive number", d.threads)
	}
	if strings.TrimSpace(d.device) == "" {
		return usagef("--device is empty, want auto, cpu, gpu or gpu:N")
	}
	if d.backend != "" {
		return checkWord("backend", d.backend, []string{gpu.BackendVulkan, gpu.BackendWebGPU})
	}
	return nil
}

// open opens the backend that the flags ask for and tells the user on standard
// error what they should know about it.
func (d *deviceFlags) open() (op.Backend, error) {
	b, notice, err := openDevice(d.device, d.backend, d.threads)
	say(notice)
	return b, err
}

// openDevice opens a backend as --device and --backend name it. notice is what the user
// should know, or empty.
func openDevice(device, backend string, threads int) (b op.Backend, notice string, err error) {
	switch device {
	case "cpu":
		b, err = cpu.New(cpu.Options{Threads: threads})
		return b, "", err
	case "auto":
		if b, notice, err = openGPU("auto", backend); err == nil {
			return b, notice, nil
		}
		if notice = ""; !errors.Is(err, gpu.ErrNoAdapter) || errors.Is(err, gpu.ErrUnusable) { // there is one, and it should have worked
			notice = "the GPU cannot be used, going on with the CPU: " + err.Error()
		}
		b, err = cpu.New(cpu.Options{Threads: threads})
		return b, notice, err
	}
	return openGPU(device, backend)
}

// runner is open with the front of the backend.
func (d *deviceFlags) runner() (*op.Runner, error) {
	b, err := d.open()
	if err != nil {
		return nil, err
	}
	return op.NewRunner(b), nil
}

func say(notice string) {
	if notice != "" {
		fmt.Fprintln(os.Stderr, "tezgah: "+notice)
	}
}
