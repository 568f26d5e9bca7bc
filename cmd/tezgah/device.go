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
	threads int
}

func (d *deviceFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.device, "device", "auto", "auto, cpu, gpu, gpu:N, or part of a GPU's name")
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
	return nil
}

// open opens the backend that the flags ask for and tells the user on standard
// error what they should know about it.
func (d *deviceFlags) open() (op.Backend, error) {
	b, notice, err := openDevice(d.device, d.threads)
	say(notice)
	return b, err
}

// openDevice opens a backend as --device names it. notice is what the user
// should know, or empty.
func openDevice(device string, threads int) (b op.Backend, notice string, err error) {
	switch device {
	case "cpu":
		b, err = cpu.New(cpu.Options{Threads: threads})
		return b, "", err
	case "auto":
		if b, notice, err = openGPU("auto"); err == nil {
			return b, notice, nil
		}
		if notice = ""; !errors.Is(err, gpu.ErrNoAdapter) { // there is one, and it should have worked
			notice = "the GPU cannot be used, going on with the CPU: " + err.Error()
		}
		b, err = cpu.New(cpu.Options{Threads: threads})
		return b, notice, err
	}
	return openGPU(device)
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
