package webgpu

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// attentionBenchShapes are compared where TEZGAH_BENCH_TILES names no others.
func attentionBenchShapes() (list []attentionShape) {
	for _, s := range [][8]int{{8, 16, 2, 1, 1, 4, 16, 8}, {8, 16, 2, 1, 2, 4, 16, 16}, {8, 16, 2, 1, 2, 4, 4, 4}, {8, 16, 2, 1, 1, 8, 16, 8}, {8, 16, 1, 1, 1, 4, 16, 8},
		{8, 16, 2, 2, 1, 4, 16, 8}, {16, 8, 1, 2, 2, 4, 16, 4}, {16, 8, 1, 2, 4, 4, 16, 8}, {16, 8, 2, 1, 2, 4, 16, 8}, {16, 8, 2, 2, 2, 4, 16, 8}, {8, 8, 2, 2, 2, 4, 16, 8}} {
		list = append(list, attentionShape{s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]})
	}
	return list
}

// parseAttentionShapes reads "OG TG RQ XQ PI SQ KU RU", several with commas between.
func parseAttentionShapes(tb testing.TB, text string) (list []attentionShape) {
	for _, t := range strings.Split(text, ",") {
		var s attentionShape
		if _, err := fmt.Sscan(t, &s.og, &s.tg, &s.rq, &s.xq, &s.pi, &s.sq, &s.ku, &s.ru); err != nil {
			tb.Fatalf("%q is no shape OG TG RQ XQ PI SQ KU RU: %v", t, err)
		}
		list = append(list, s)
	}
	return list
}

// BenchmarkAttention compares shapes of attention's kernels in float32 by the device's
// own clock, and their results with those of the shape that is chosen, which comes
// first. TEZGAH_BENCH_TILES lists shapes, TEZGAH_BENCH_SHAPE is "B T H KVH D documents".
func BenchmarkAttention(tb *testing.B) {
	b, real := benchBackend(tb)
	z, docs := attentionBenchSize(tb, real)
	a := newAttnBench(tb, b, z, docs)
	dq := ceil(z.c/z.h, 4)
	list := attentionBenchShapes()
	if text := os.Getenv("TEZGAH_BENCH_TILES"); text != "" {
		list = parseAttentionShapes(tb, text)
	}
	list = slices.DeleteFunc(list, func(s attentionShape) bool { return !s.fits(dq, b.dev.Limits()) })
	list = slices.Insert(list, 0, b.attentionTile(dq, false), b.attentionTile(dq, true))
	for i, s := range list { // compiles all, so that the GPU is busy afterwards
		b.forward, b.backwardQ, b.backwardKV = &s, &s, &s
		if err := errors.Join(a.forward(), a.backward()); err != nil {
			tb.Fatal(err)
		}
		if got := a.results(tb, "out", "lse", "dq", "dk", "dv"); i == 0 {
			a.want = got
		} else {
			for name := range got {
				if d := difference(got[name], a.want[name]); !(d < 1e-3) {
					tb.Errorf("%v: %s differs by %.1e of its mean size", s, name, d)
				}
			}
		}
	}
	best := make([]map[string]float64, len(list))
	for range 3 {
		for i, s := range list {
			b.forward, b.backwardQ, b.backwardKV = &s, &s, &s
			best[i] = least(best[i], a.measure(tb))
		}
	}
	pairs := float64(z.b*z.h*z.t) * float64(z.t+1) / 2 * float64(z.c/z.h)
	for i, s := range list {
		fmt.Printf("%-24s %5d bytes", fmt.Sprint(s), s.bytes(dq))
		for k, name := range []string{"attention_forward", "attention_backward_dq", "attention_backward_dkdv"} {
			ops := float64(4 + 2*k)
			fmt.Printf("  %s %7.1f µs %5.1f TFLOP/s", strings.TrimPrefix(name, "attention_"), best[i][name], ops*pairs/best[i][name]/1e6)
		}
		fmt.Printf("  delta %5.1f µs\n", best[i]["attention_backward_delta"])
	}
	b.forward, b.backwardQ, b.backwardKV = nil, nil, nil
}

// least is the shorter of two times of each kernel; a may be nil.
func least(a, b map[string]float64) map[string]float64 {
	for k, us := range a {
		b[k] = min(us, b[k])
	}
	return b
}
