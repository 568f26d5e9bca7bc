package gpu_test

import (
	"fmt"
	"testing"

	"tezgah/gpu"
	"tezgah/gpu/gputest"
)

// TestPrepare makes kernels side by side, good ones, one twice and a broken one, and
// then asks for each: the good ones compute, the broken one says why.
func TestPrepare(t *testing.T) {
	d := gputest.Open(t, gpu.Options{})
	text := func(add int) string {
		return fmt.Sprintf(`@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() { x[0] = x[0] * 10u + %du; }`, add)
	}
	var list []gpu.Source
	for i := range 8 {
		list = append(list, gpu.Source{Label: fmt.Sprint("digit ", i), WGSL: text(i)})
	}
	list = append(list, list[3], gpu.Source{Label: "broken", WGSL: "@compute @workgroup_size(1) fn main() { nonsense(); }"}, gpu.Source{Label: "empty"})
	d.Prepare(list)
	d.Prepare(list)
	b, err := d.NewBuffer("x", 4)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	for i := range 8 {
		p, err := d.NewPipeline("again", text(i))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Dispatch(p, 1, 1, 1, gpu.Buf(b)); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]uint32, 1)
	if err := d.Download(b, 0, gpu.Bytes(got)); err != nil || got[0] != 1234567 {
		t.Errorf("the kernels wrote %d (%v), want 1234567", got[0], err)
	}
	if _, err := d.NewPipeline("broken", list[9].WGSL); err == nil {
		t.Error("the broken kernel was made")
	}
}
