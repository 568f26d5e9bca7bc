//go:build !js

package gpu

import (
	"slices"
	"testing"
)

// Whatever the text, reading it does not panic, and slots that are accepted
// have names and no gaps.
func FuzzFindSlots(f *testing.F) {
	f.Add(fakeKernel)
	f.Add("@group(99999999999999999999) @binding(99999999999999999999) var<storage> a: u32;")
	f.Fuzz(func(t *testing.T, source string) {
		slots, err := findSlots(source)
		if err == nil && (len(slots) == 0 || slices.ContainsFunc(slots, func(s Slot) bool { return s.Name == "" })) {
			t.Errorf("accepted %v", slots)
		}
		_, _ = findEntry(source)
		e := newShaderError("k", "d", source, source)
		if e.Line < 0 || e.Error() == "" {
			t.Errorf("error %+v", e)
		}
	})
}
