package bpe

import (
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
)

// TestNFCAgainstNorm compares with the norm package on texts without long runs of marks, where it follows form C, both
// the whole and the part that composes by itself.
func TestNFCAgainstNorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 31))
	for range 3000 {
		var b strings.Builder
		for range 1 + rng.IntN(12) {
			b.WriteString([]string{"e", "ş", "가", "\u1100", "\u1161", "\u11a8", "\u0301", "\u0323", "\u0327", "\u0345", "क", "\u093c",
				"\u09c7", "\u09be", "\u0b47", "\u0b56", "Å", "\u212b", "\u0344", "\u2126", "\U0001d15e", string(rune(0x300 + rng.IntN(0x70)))}[rng.IntN(22)])
		}
		text := b.String()
		want := norm.NFC.String(text)
		if got := string(normalizeNFC([]byte(text))); got != want {
			t.Fatalf("%+q: got %+q, want %+q", text, got, want)
		}
		if got := string(composeRun(nil, []byte(text))); got != want {
			t.Fatalf("%+q: composed %+q, want %+q", text, got, want)
		}
	}
}

func TestNFCLongRuns(t *testing.T) {
	many := strings.Repeat("\u0316", 50) // class 220
	for _, c := range []struct{ in, want string }{
		{"e" + strings.Repeat("\u0301", 50), "é" + strings.Repeat("\u0301", 49)},
		{"xe" + many + "\u0301y", "xé" + many + "y"},
		{"\u1100\u1161" + many, "가" + many},
		{"\xff" + "\u0301" + many + "\xffe\u0301", "\xff" + many + "\u0301" + "\xffé"},
		{many, many},
		{"a\xe2\x82", "a\xe2\x82"},
	} {
		if got := string(normalizeNFC([]byte(c.in))); got != c.want {
			t.Errorf("%+q: got %+q, want %+q", c.in, got, c.want)
		}
	}
}

func TestNFCTokenizer(t *testing.T) {
	tok := train(t, TrainOptions{VocabSize: 300, NFC: true}, strings.Repeat("gu\u0308n gün ", 20))
	equalIDs(t, "NFC", tok.Encode(nil, []byte("gu\u0308n")), tok.Encode(nil, []byte("gün")))
	again, err := Parse(tok.JSON())
	if err != nil || !again.NFC() {
		t.Errorf("the file lost NFC: %v", err)
	}
}
