package chat

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkLoad reads, encodes and keeps conversations; bytes are those of the jsonl.
func BenchmarkLoad(b *testing.B) {
	text := lines(rand.New(rand.NewPCG(1, 1)), 20_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		mustLoad(b, text, func(o *LoadOptions) { o.ValFraction = 0.1 })
	}
}

// BenchmarkPack packs 20,000 conversations into rows of 1,024.
func BenchmarkPack(b *testing.B) {
	set := testSet(b, 1, 20_000)
	for b.Loop() {
		if _, err := newRows(set, 1024, 1); err != nil {
			b.Fatal(err)
		}
	}
}
