package cpu_test

import (
	"testing"

	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/op/optest"
)

// TestSuite runs the suite at every level that this machine has, and the large
// cases at the fastest.
func TestSuite(t *testing.T) {
	levels := cpu.Levels()
	for i, level := range levels {
		t.Run(level, func(t *testing.T) {
			optest.Run(t, func() (op.Backend, error) { return cpu.New(cpu.Options{Threads: 2, Level: level}) },
				optest.Options{Large: i == len(levels)-1})
		})
	}
}
