//go:build !js

package webgpu

import (
	"fmt"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/optest"
)

// TestOtherShapes runs the suite's cases of norms, RoPE and the loss with shapes of
// the kernels that their sizes alone would not choose.
func TestOtherShapes(t *testing.T) {
	b := open(t, gpu.Options{}, Options{})
	r := op.NewRunner(b)
	defer b.Close()
	cases := func(name, prefix string) {
		for _, c := range optest.Cases() {
			if c.Large || !strings.HasPrefix(c.Op, prefix) {
				continue
			}
			if res := c.Run(r); !res.OK() {
				t.Errorf("%s: %s: %v", name, c.Name, res)
			}
		}
	}
	for _, z := range []normShape{{1, 1, 1}, {8, 1, 3}, {32, 8, 5}, {64, 2, 2}, {256, 1, 4}} {
		b.norm = &z
		cases(fmt.Sprintf("%+v", z), "rmsnorm")
	}
	for _, heads := range []int{-1, 1} {
		b.ropeHeads = heads
		cases(fmt.Sprint(heads, " heads"), "rope")
	}
	for _, z := range []rowShape{{threads: 32, groups: 2}, {threads: 256, groups: 1}} {
		b.lossRow = &z
		cases(fmt.Sprintf("%+v", z), "cross_entropy")
	}
	b.lossRow = &rowShape{}
	for _, z := range []lossShape{{}, {1, 2, 2}, {2, 8, 1000}} {
		b.loss = &z
		cases(fmt.Sprintf("%+v", z), "cross_entropy")
	}
}
