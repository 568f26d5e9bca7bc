package bpe

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// train trains on docs or fails the test.
func train(t testing.TB, opt TrainOptions, docs ...string) *Tokenizer {
	t.Helper()
	tr, err := NewTrainer(opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		if err := tr.Add([]byte(d)); err != nil {
			t.Fatal(err)
		}
	}
	tok, err := tr.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// randomText returns n characters that the patterns care about, in random order, with runs.
func randomText(rng *rand.Rand, n int) string {
	kinds := []string{"a", "b", "s", "S", "t", "re", "LL", "ve", "d", "'", "'", "ſ", "ı", "İ", "ğ", "ş", "漢", "é", "e\u0301",
		"1", "23", "٣", "²", "Ⅷ", " ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\u3000", "\x00", ".", "!?", "-", "_",
		"👩\u200d💻", "\u202e", "\U0001F1F9\U0001F1F7", "\ufffd", "\u0300", "\U00020000", "\U0002ebf0", "\U00105d00", "\xff", "\xe2\x82"}
	var b strings.Builder
	for range n {
		k := kinds[rng.IntN(len(kinds))]
		if rng.IntN(12) == 0 {
			k = strings.Repeat(k, rng.IntN(6))
		}
		if rng.IntN(20) == 0 {
			k = string(rune(rng.IntN(0x110000)))
		}
		b.WriteString(k)
	}
	return b.String()
}

// words splits text into pre-tokens.
func words(r rules, text string) []string {
	var out []string
	for i := 0; i < len(text); {
		end := r.next([]byte(text), i)
		out = append(out, text[i:end])
		i = end
	}
	return out
}

func equalIDs(t *testing.T, what string, got, want []int32) {
	t.Helper()
	if !slices.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Fatalf("%s: %d ids, want %d; first difference at %d: got %v, want %v", what, len(got), len(want), i,
			got[i:min(i+8, len(got))], want[i:min(i+8, len(want))])
	}
}

// generated returns at least n bytes of invented words, frequent and rare ones as in natural text.
func generated(n int) string {
	rng := rand.New(rand.NewPCG(21, 21))
	var syllables []string
	for _, c := range strings.Fields("b c ç d f g ğ h j k l m n p r s ş t v y z") {
		for _, v := range strings.Fields("a e ı i o ö u ü") {
			syllables = append(syllables, c+v, c+v+"n", c+v+"r")
		}
	}
	var words []string
	for range 20000 {
		w := ""
		for range 1 + rng.IntN(4) {
			w += syllables[rng.IntN(len(syllables))]
		}
		words = append(words, w)
	}
	zipf := rand.NewZipf(rng, 1.1, 3, uint64(len(words)-1))
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[zipf.Uint64()])
		b.WriteString([]string{" ", " ", " ", " ", ", ", ".\n", "'da "}[rng.IntN(7)])
	}
	return b.String()
}
