package corpus_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"tezgah/bpe"
	"tezgah/corpus"
)

// plainBytes is a tokenizer that costs nothing: an id for each byte.
type plainBytes struct{ *bpe.Tokenizer }

func (plainBytes) Encode(dst []int32, text []byte) []int32 {
	for _, c := range text {
		dst = append(dst, int32(c))
	}
	return dst
}

// BenchmarkBuild measures text to token file: with the real tokenizer, and with one that costs nothing, which leaves
// reading, parsing, hashing, checksums and writing.
func BenchmarkBuild(b *testing.B) {
	text := sources(b)
	text = text[:len(text)/2] // the half with lines
	real := tokenizer(b, "llama3", false, text)
	var big []byte
	for len(big) < 24<<20 {
		big = append(big, text...)
	}
	path := filepath.Join(b.TempDir(), "a.txt")
	if err := os.WriteFile(path, big, 0o666); err != nil {
		b.Fatal(err)
	}
	for name, tok := range map[string]corpus.Tokenizer{"bpe": real, "bytes": plainBytes{real}} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) {
				b.SetBytes(int64(len(big)))
				for b.Loop() {
					_, err := corpus.Build(context.Background(), corpus.BuildOptions{Tokenizer: tok, Threads: threads,
						Input: corpus.InputOptions{Paths: []string{path}}, Out: filepath.Join(b.TempDir(), "o.bin")})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkSampler measures drawing batches of (8, 512) from a file whose blocks are already checked.
func BenchmarkSampler(b *testing.B) {
	text := sources(b)
	tok := tokenizer(b, "llama3", false, text)
	file, err := corpus.BuildMemory(tok, [][]byte{text})
	if err != nil {
		b.Fatal(err)
	}
	d, err := corpus.OpenBytes("bench", file, corpus.OpenOptions{Verify: true})
	if err != nil {
		b.Fatal(err)
	}
	s, err := corpus.NewSampler(corpus.SamplerOptions{Sources: []corpus.Source{corpus.Whole(d)}, Context: 512, DocMask: true})
	if err != nil {
		b.Fatal(err)
	}
	tokens, targets, starts := make([]int32, 4096), make([]int32, 4096), make([]int32, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Next(tokens, targets, starts); err != nil {
			b.Fatal(err)
		}
	}
}
