package gpu

import (
	"errors"
	"testing"
)

// TestRehearsalChecksAndDoesNothing: sizes are counted and mistakes found as on any
// device; what is read stays as it was.
func TestRehearsalChecksAndDoesNothing(t *testing.T) {
	limits := DefaultLimits()
	limits.BufferSize = 1 << 40
	d := NewRehearsal(AdapterInfo{Name: "none"}, limits, Features{F16: true})
	b, err := d.NewBuffer("large", 1<<39)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.NewPipeline("k", fakeKernel)
	if err != nil {
		t.Fatal(err)
	}
	got := []byte{1, 2, 3, 4}
	if err := errors.Join(d.Dispatch(p, 1, 1, 1, Range(b, 0, 4)), d.Upload(b, 0, []byte{9, 9, 9, 9}), d.Download(b, 0, got), d.Wait()); err != nil {
		t.Fatal(err)
	}
	if string(got) != "\x01\x02\x03\x04" || d.Memory().Live != 1<<39 || !d.Features().F16 {
		t.Errorf("read %v, memory %+v, features %+v", got, d.Memory(), d.Features())
	}
	if err := d.Dispatch(p, 1, 1, 1); !errors.Is(err, ErrValidation) {
		t.Errorf("a dispatch without bindings: %v", err)
	}
	if _, err := d.NewModule("m", Module{Code: []uint32{1}, Entry: "main", Slots: []Slot{{Name: "a"}}}); err != nil {
		t.Error(err)
	}
	if err := d.StartTiming(1); !errors.Is(err, ErrNoTimestamps) {
		t.Errorf("timing: %v", err)
	}
	b.Release()
	d.Close()
	if m := d.Memory(); m.Live != 0 || m.Buffers != 0 {
		t.Errorf("left: %+v", m)
	}
}
