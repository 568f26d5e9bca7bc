package gpu

import (
	"slices"
	"strings"
	"testing"
)

func TestFindSlotsAndEntry(t *testing.T) {
	const source = `
// @group(0) @binding(0) var<uniform> old: u32;
/* @compute @workgroup_size(1) fn gone() {} */
@group(0) @binding(2) var<uniform> dims: vec2<u32>;
@group( 0 )
@binding( 1u ) var < storage , read_write > y : array<f32>;
@group(0) @binding(0) var<storage> x: array<f32>;
var<workgroup> tile: array<f32, 64>;
@compute
@workgroup_size(64, 1, 1)
fn main_2(@builtin(global_invocation_id) gid: vec3<u32>) {}
`
	slots, err := findSlots(source)
	want := []Slot{{Name: "x", Kind: ReadOnly}, {Name: "y", Kind: ReadWrite}, {Name: "dims", Kind: UniformSlot}}
	if err != nil || !slices.Equal(slots, want) {
		t.Errorf("got %v, %v, want %v", slots, err, want)
	}
	if entry, err := findEntry(source); err != nil || entry != "main_2" {
		t.Errorf("entry %q, %v", entry, err)
	}
	if _, err := findEntry(source + "@compute @workgroup_size(1) fn b() {}"); err == nil || !strings.Contains(err.Error(), "2 @compute") {
		t.Errorf("two entries: %v", err)
	}
	double := strings.Replace(source, "@binding(2)", "@binding(0)", 1)
	if _, err := findSlots(double); err == nil || !strings.Contains(err.Error(), "double") {
		t.Errorf("binding 0 twice: %v", err)
	}
}
