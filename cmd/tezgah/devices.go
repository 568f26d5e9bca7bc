package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/op/cpu"
)

func newDevices() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List what can compute here",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, args []string) error { return listDevices(asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

type deviceRow struct {
	Device string `json:"device"` // what --device takes
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

func listDevices(asJSON bool) error {
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	rows := []deviceRow{{"cpu", b.Device(), "cpu", "levels " + strings.Join(cpu.Levels(), ", ") + ", " + formatBytes(b.Limits().FreeBytes) + " free"}}
	gpus, gpuErr := gpuRows()
	rows = append(rows, gpus...)
	if asJSON {
		out := map[string]any{"devices": rows}
		if gpuErr != nil {
			out["gpu_error"] = gpuErr.Error()
		}
		return printJSON(out)
	}
	for _, r := range rows {
		fmt.Printf("%-8s %s\n         %s, %s\n", r.Device, r.Name, r.Kind, r.Detail)
	}
	if gpuErr != nil {
		fmt.Printf("gpu      none: %v\n", gpuErr)
	}
	return nil
}
