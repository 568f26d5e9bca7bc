package bpe

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
)

// benchText is the text at BPE_BENCH_TEXT, or else invented words.
func benchText(b *testing.B) []byte {
	if path := os.Getenv("BPE_BENCH_TEXT"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	return []byte(generated(1 << 20))
}

func benchTokenizer(b *testing.B, text []byte) *Tokenizer {
	tr, err := NewTrainer(TrainOptions{VocabSize: 32768})
	if err != nil {
		b.Fatal(err)
	}
	if err := tr.Add(text); err != nil {
		b.Fatal(err)
	}
	tok, err := tr.Train(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	return tok
}

func BenchmarkScan(b *testing.B) {
	text := benchText(b)
	r := canonical[Llama3].rules
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for i := 0; i < len(text); {
			i = r.next(text, i)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	text := benchText(b)
	tok := benchTokenizer(b, text)
	var ids []int32
	b.SetBytes(int64(len(text)))
	b.ResetTimer()
	for b.Loop() {
		ids = tok.Encode(ids[:0], text)
	}
}

// BenchmarkEncodeCold has a new cache each time.
func BenchmarkEncodeCold(b *testing.B) {
	text := benchText(b)
	tok := benchTokenizer(b, text)
	var ids []int32
	b.SetBytes(int64(len(text)))
	b.ResetTimer()
	for b.Loop() {
		tok.idle = nil
		ids = tok.Encode(ids[:0], text)
	}
}

func BenchmarkEncodeBatch(b *testing.B) {
	text := benchText(b)
	tok := benchTokenizer(b, text)
	b.SetBytes(int64(len(text)))
	b.ResetTimer()
	for b.Loop() {
		tok.EncodeBatch([][]byte{text}, runtime.GOMAXPROCS(0))
	}
}

// BenchmarkEncodeLongWord encodes one pre-token of 1 MB.
func BenchmarkEncodeLongWord(b *testing.B) {
	text := benchText(b)
	tok := benchTokenizer(b, text)
	word := []byte(strings.Join(strings.FieldsFunc(string(text), func(r rune) bool { return classes[r] != classLetter }), ""))
	word = word[:min(len(word), 1<<20)]
	b.SetBytes(int64(len(word)))
	b.ResetTimer()
	for b.Loop() {
		tok.Encode(nil, word)
	}
}

func BenchmarkTrain(b *testing.B) {
	text := benchText(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		benchTokenizer(b, text)
	}
}
