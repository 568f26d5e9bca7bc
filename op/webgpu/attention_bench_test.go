package webgpu

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// attentionBenchShapes are compared where TEZGAH_BENCH_TILES names no others.
func attentionBenchShapes() (list []attentionShape) {
	for _, s := range [][6]int{{8, 16, 8, 4, 2, 4}, {8, 16, 8, 4, 1, 4}, {8, 16, 8, 4, 4, 4}, {8, 16, 8, 4, 2, 8}, {8, 16, 8, 4, 1, 8}, {8, 16, 8, 4, 1, 2},
		{8, 16, 4, 4, 2, 4}, {8, 16, 8, 2, 2, 4}, {8, 16, 4, 8, 2, 4}, {16, 16, 4, 4, 2, 4}, {16, 16, 8, 4, 1, 4}, {16, 16, 4, 4, 2, 8}, {16, 8, 8, 8, 2, 4},
		{16, 8, 8, 4, 2, 4}, {16, 8, 4, 8, 2, 4}, {8, 8, 8, 8, 2, 4}, {8, 8, 8, 4, 2, 4}, {8, 16, 8, 8, 2, 4}} {
		list = append(list, attentionShape{s[0], s[1], s[2], s[3], s[4], s[5], min(4, s[5]), 8})
	}
	for _, n := range [][2]int{{1, 1}, {2, 4}, {4, 4}, {4, 16}} {
		list = append(list, attentionShape{8, 16, 8, 4, 2, 4, n[0], n[1]})
	}
	return list
}

// parseAttentionShapes reads "OG TG RO RX PI SQ SU RU", several with commas between.
func parseAttentionShapes(tb testing.TB, text string) (list []attentionShape) {
	for _, t := range strings.Split(text, ",") {
		var s attentionShape
		if _, err := fmt.Sscan(t, &s.og, &s.tg, &s.ro, &s.rx, &s.pi, &s.sq, &s.su, &s.ru); err != nil {
			tb.Fatalf("%q is no shape OG TG RO RX PI SQ SU RU: %v", t, err)
		}
		list = append(list, s)
	}
	return list
}

// BenchmarkAttention compares shapes of attention's kernels in float32 by the device's
// own clock, and their results with those of the shape that is chosen. TEZGAH_BENCH_TILES
// lists shapes, TEZGAH_BENCH_SHAPE is "B T H KVH D documents".
func BenchmarkAttention(tb *testing.B) {
	b, real := benchBackend(tb)
	z, docs := attentionBenchSize(tb, real)
	a := newAttnBench(tb, b, z, docs)
	d := z.c / z.h
	pairs := float64(z.b*z.h*z.t) * float64(z.t+1) / 2 * float64(d)
	names := []string{"out", "lse", "dq", "dk", "dv"}
	show := func(s attentionShape) {
		times := a.measure(tb)
		fmt.Printf("%-32s %5d bytes", fmt.Sprintf("%v", s), s.bytes(ceil(d, 4)))
		for _, k := range []struct {
			name string
			ops  float64
		}{{"attention_forward", 4}, {"attention_backward_dkdv", 8}, {"attention_backward_dq", 6}} {
			fmt.Printf("  %s %7.1f µs %5.1f TFLOP/s", strings.TrimPrefix(k.name, "attention_"), times[k.name], k.ops*pairs/times[k.name]/1e6)
		}
	}
	chosen := b.attentionTile(ceil(d, 4))
	show(chosen)
	fmt.Println("  chosen")
	a.want = a.results(tb, names...)
	list := attentionBenchShapes()
	if text := os.Getenv("TEZGAH_BENCH_TILES"); text != "" {
		list = parseAttentionShapes(tb, text)
	}
	for _, s := range list {
		if !s.fits(ceil(d, 4), b.dev.Limits()) {
			fmt.Printf("%-32v needs more than the device has\n", s)
			continue
		}
		b.forward, b.backwardQ, b.backwardKV = &s, &s, &s
		show(s)
		for name, got := range a.results(tb, names...) {
			if diff := difference(got, a.want[name]); !(diff < 1e-3) {
				fmt.Printf(" %s differs by %.1e", name, diff)
			}
		}
		fmt.Println()
	}
	b.forward, b.backwardQ, b.backwardKV = nil, nil, nil
}
