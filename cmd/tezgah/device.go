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
	switch d.device {
	case "cpu":
		return d.openCPU()
	case "auto":
		b, notice, err := openGPU("auto")
		if err == nil {
			say(notice)
			return b, nil
		}
		if !errors.Is(err, gpu.ErrNoAdapter) { // there is one, and it should have worked
			say("the GPU cannot be used, going on with the CPU: " + err.Error())
		}
		return d.openCPU()
	}
	b, notice, err := openGPU(d.device)
	if err != nil {
		return nil, err
	}
	say(notice)
	return b, nil
}

func (d *deviceFlags) openCPU() (op.Backend, error) {
	return cpu.New(cpu.Options{Threads: d.threads})
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
