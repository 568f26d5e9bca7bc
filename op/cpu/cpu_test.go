package cpu_test

import (
	"testing"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/optest"
)

// TestSuite runs the suite at every level that this machine has.
func TestSuite(t *testing.T) {
	for _, level := range cpu.Levels() {
		t.Run(level, func(t *testing.T) {
			optest.Run(t, func() (op.Backend, error) { return cpu.New(cpu.Options{Threads: 2, Level: level}) },
				optest.Options{Large: !testing.Short()})
		})
	}
}
