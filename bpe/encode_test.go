package bpe

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// trained returns a small tokenizer of each pattern.
func trained(t testing.TB) []*Tokenizer {
	rng := rand.New(rand.NewPCG(11, 11))
	text := strings.Repeat("Bir varmış bir yokmuş, evvel zaman içinde kalbur saman içinde it's 2024'te. ", 20) + randomText(rng, 4000)
	var all []*Tokenizer
	for _, p := range Patterns() {
		all = append(all, train(t, TrainOptions{VocabSize: 700, Pattern: p, MinPairCount: 1}, text))
	}
	return all
}

func TestEncodeAgainstSlow(t *testing.T) {
	rng := rand.New(rand.NewPCG(12, 12))
	for _, tok := range trained(t) {
		for i := range 150 {
			text := randomText(rng, 1+rng.IntN(60))
			if i%5 == 0 {
				text = strings.Repeat(text, 20) // long pre-tokens
				text = strings.ReplaceAll(text, " ", "")
			}
			var want []int32
			for _, w := range words(tok.rules, text) {
				want = append(want, slowEncode(tok, []byte(w))...)
			}
			for range 2 { // the second time from the cache
				equalIDs(t, tok.Pattern(), tok.Encode(nil, []byte(text)), want)
			}
			if got := tok.Decode(want); string(got) != text {
				t.Fatalf("decoded %q, want %q", got, text)
			}
		}
	}
}

// TestMergeLong runs all three merge implementations on random words.
func TestMergeLong(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 13))
	tok := train(t, TrainOptions{VocabSize: 400, MinPairCount: 1, SpecialTokens: []string{}}, strings.Repeat("aaaabab abbba ", 5)+
		strings.Repeat("a", 300))
	if !tok.ascending {
		t.Fatal("the merges of a trained tokenizer do not ascend")
	}
	var m longMerger
	join := func(word []byte, how func(s spans)) []int32 {
		s := m.spans.reset(len(word))
		for i, b := range word {
			s[i] = tok.byteID[b]
		}
		how(s)
		var ids []int32
		for i := 0; i < len(s); i += int(tok.tokenLen[s[i]]) {
			ids = append(ids, s[i])
		}
		return ids
	}
	for n := 1; n <= 200; n++ {
		for range 10 {
			word := make([]byte, n)
			for i := range word {
				word[i] = "aab"[rng.IntN(1+rng.IntN(3))]
			}
			want := slowEncode(tok, word)
			if n <= shortWord {
				equalIDs(t, "short", tok.mergeShort(nil, word), want)
			}
			equalIDs(t, "heap", join(word, func(s spans) { tok.joinByHeap(s, word, &m) }), want)
			equalIDs(t, "buckets", join(word, func(s spans) { tok.joinByBuckets(s, word, &m.buckets) }), want)
		}
	}
}

// TestMergesDescend imports merges of which one needs a part that a later merge makes; buckets would not do.
func TestMergesDescend(t *testing.T) {
	file := train(t, TrainOptions{VocabSize: 259, SpecialTokens: []string{}}, strings.Repeat("abab abab", 9)).JSON()
	swapped := bytes.Replace(file, []byte("[\"a\",\"b\"],\n[\"ab\",\"ab\"]"), []byte("[\"ab\",\"ab\"],\n[\"a\",\"b\"]"), 1)
	tok, err := Parse(swapped)
	if err != nil || bytes.Equal(file, swapped) || tok.ascending {
		t.Fatalf("%v, or the file has not the merges that this test swaps: %s", err, file[len(file)-120:])
	}
	word := bytes.Repeat([]byte("abab"), 2000)
	equalIDs(t, "descending", tok.Encode(nil, word), slowEncode(tok, word))
}

func TestEncodeAppends(t *testing.T) {
	tok := trained(t)[0]
	got := tok.Encode([]int32{7, 8}, []byte("bir"))
	want := append([]int32{7, 8}, tok.Encode(nil, []byte("bir"))...)
	equalIDs(t, "append", got, want)
	if n := len(tok.Encode(nil, nil)); n != 0 {
		t.Errorf("empty text has %d ids", n)
	}
}

// TestEncodeConcurrent encodes from many goroutines with one tokenizer; run it with -race.
func TestEncodeConcurrent(t *testing.T) {
	tok := trained(t)[0]
	rng := rand.New(rand.NewPCG(14, 14))
	text := []byte(randomText(rng, 5000))
	want := tok.Encode(nil, text)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if got := tok.Encode(nil, text); !slices.Equal(got, want) {
					t.Error("ids differ under concurrency")
				}
			}
		})
	}
	wg.Wait()
}

func TestEncodeBatch(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 15))
	var docs [][]byte
	for range 20 {
		docs = append(docs, []byte(randomText(rng, rng.IntN(300))))
	}
	docs = append(docs, nil, bytes.Repeat([]byte("uzun bir belge, satır satır.\n\n"), 100_000)) // 3.1 MB
	for _, tok := range trained(t)[:2] {
		for _, threads := range []int{0, 1, 3} {
			got := tok.EncodeBatch(docs, threads)
			if len(got) != len(docs) {
				t.Fatalf("%d results, want %d", len(got), len(docs))
			}
			for i, doc := range docs {
				equalIDs(t, "batch", got[i], tok.Encode(nil, doc))
			}
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add([]byte("Merhaba dünya, it's 2024!"), uint8(0))
	f.Add([]byte("\xff\xc5 \u0301<|endoftext|>"), uint8(3))
	toks := trained(f)
	f.Fuzz(func(t *testing.T, text []byte, which uint8) {
		tok := toks[int(which)%len(toks)]
		ids := tok.Encode(nil, text)
		if got := tok.Decode(ids); !bytes.Equal(got, text) {
			t.Fatalf("decoded %q, want %q", got, text)
		}
		if got := tok.Decode(tok.EncodeWithSpecials(nil, text)); !bytes.Equal(got, text) {
			t.Fatalf("with specials: decoded %q, want %q", got, text)
		}
		var stream strings.Builder
		s := tok.NewStream()
		for _, id := range ids {
			stream.WriteString(s.Push(id))
		}
		stream.WriteString(s.Flush())
		if want := lossy(text); stream.String() != want {
			t.Fatalf("streamed %q, want %q", stream.String(), want)
		}
	})
}
