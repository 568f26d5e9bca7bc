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

// TestMeasurePeak checks that the measurements give numbers, whatever they are.
func TestMeasurePeak(t *testing.T) {
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p, err := b.MeasurePeak()
	if err != nil || p.FLOPS <= 0 || p.BytesPerSec <= 0 || p.SubmitOverhead <= 0 {
		t.Errorf("peak %+v: %v", p, err)
	}
	if len(p.Copies) < 3 || p.Copies[len(p.Copies)-1].BytesPerSec != p.BytesPerSec {
		t.Errorf("copies %+v, want several, the large one of %v bytes per second last", p.Copies, p.BytesPerSec)
	}
	for i, c := range p.Copies {
		if c.BytesPerSec <= 0 || i > 0 && c.Bytes <= p.Copies[i-1].Bytes {
			t.Errorf("copies %+v, want positive rates of rising sizes", p.Copies)
		}
	}
}
