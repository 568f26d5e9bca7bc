//go:build !js

package webgpu

import (
	"fmt"
	"strings"
	"testing"

	"tezgah/gpu"
	"tezgah/op"
	"tezgah/op/optest"
	"tezgah/tensor"
)

// TestOtherShapes runs the suite's cases of norms, RoPE, attention and the loss with shapes of
// the kernels that their sizes alone would not choose.
func TestOtherShapes(t *testing.T) {
	b := open(t, gpu.Options{}, Options{})
	r := op.NewRunner(b)
	defer b.Close()
	named := func(name string, wanted func(optest.Case) bool) {
		ran := 0
		for _, c := range optest.Cases() {
			if c.Large || !wanted(c) {
				continue
			}
			ran++
			if res := c.Run(r); !res.OK() {
				t.Errorf("%s: %s: %v", name, c.Name, res)
			}
		}
		if ran == 0 {
			t.Errorf("%s: no case", name)
		}
	}
	cases := func(name, prefix string) {
		named(name, func(c optest.Case) bool { return strings.HasPrefix(c.Op, prefix) })
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
	for z, name := range map[attentionShape]string{{4, 8, 2, 1, 4, 2, 2, 1}: "B2 T33 H4 KVH2 D64 docs 3", {3, 5, 1, 2, 4, 1, 1, 1}: "B2 T5 H3 KVH3 D2 docs 2"} {
		b.forward, b.backwardQ, b.backwardKV = &z, &z, &z
		for _, op := range []string{"attention/", "attention backward/"} {
			named(fmt.Sprintf("%+v", z), func(c optest.Case) bool { return strings.HasPrefix(c.Name, op+name) && c.Operands == tensor.F32 })
		}
	}
	b.lossRow = &rowShape{}
	for _, z := range []lossShape{{}, {1, 2, 2}, {2, 8, 1000}} {
		b.loss = &z
		cases(fmt.Sprintf("%+v", z), "cross_entropy")
	}
}

// TestAttentionTileFits: for every head size there is a shape within what WebGPU
// promises at the least and within less, whose counts divide as the kernels want.
func TestAttentionTileFits(t *testing.T) {
	small := gpu.DefaultLimits()
	small.Invocations, small.WorkgroupMemory = 32, 8<<10
	for name, l := range map[string]gpu.Limits{"default": gpu.DefaultLimits(), "small": small} {
		for dq := 1; dq <= 64; dq++ {
			for _, software := range []bool{false, true} {
				for _, twice := range []bool{false, true} {
					s := attentionTile(dq, twice, software, l)
					if !s.fits(dq, l) {
						t.Errorf("%s limits, %d quads: %+v needs %d threads and %d bytes", name, dq, s, s.threads(), s.bytes(dq))
					}
					if 4*s.xq%s.pi != 0 || 4*s.sq%s.ku != 0 || s.part()%s.ru != 0 {
						t.Errorf("%s limits, %d quads: %+v: PI must divide 4·XQ, KU 4·SQ, RU the %d rows of a part", name, dq, s, s.part())
					}
				}
			}
		}
	}
}
