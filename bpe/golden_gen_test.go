package bpe

import (
	"strings"
	"testing"
)

// The texts of the golden tests. testdata/gen/hf_tokenizers.py has the same generator, statement by statement; the golden
// file holds the SHA-256 of every text, so that a difference between the two shows as such.

// lcg is Knuth's MMIX linear congruential generator; its upper bits are used.
type lcg uint64

// below returns a number from 0 to n−1.
func (r *lcg) below(n int) int {
	*r = *r*6364136223846793005 + 1442695040888963407
	return int(uint64(*r) >> 33 % uint64(n))
}

var (
	goldenVowels     = strings.Fields("a e ı i o ö u ü â")
	goldenConsonants = strings.Fields("b c ç d f g ğ h j k l m n p r s ş t v y z")
	goldenEnds       = []string{"", "", "", "n", "r", "k", "l", "m"}
	goldenBreaks     = []string{" ", " ", " ", " ", " ", " ", ", ", ". ", ".\n", "'da ", "'s ", "'LL ", " 12", " 2024 ", "\n\n", " (", ") ", "-", "?! "}
	goldenPieces     = []string{"a", "b", "s", "S", "t", "re", "RE", "LL", "ve", "d", "m", "'", "'", "ſ", "\u212a", "ı", "İ", "I", "i", "ğ", "ş", "漢", "字", "é",
		"e\u0301", "1", "23", "456", "٣", "²", "Ⅷ", "½", " ", " ", "  ", "   ", "\n", "\r\n", "\r", "\t", "\v", "\f", "\u0085", "\u00a0", "\u2028", "\u3000",
		"\u200b", "\ufeff", "\x00", "\x1b", ".", "!?", "-", "_", "€", "\u0300", "\U00020000"}
	goldenEmoji = []string{"👩", "👨", "💻", "🏳", "🏽", "❤", "👧", "🚀", "\U0001F1F9", "\U0001F1F7", "#", "1"}
	goldenGlue  = []string{"\u200d", "\ufe0f", "\u20e3", "", " ", "\U0001F3FB"}
	goldenBidi  = []string{"\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "שלום", "سلام",
		"abc", " ", "١٢٣", "12", "-", "(", ")"}
)

// goldenWord is one invented word.
func (r *lcg) word() string {
	w := ""
	for range 1 + r.below(4) {
		w += goldenConsonants[r.below(len(goldenConsonants))] + goldenVowels[r.below(len(goldenVowels))] + goldenEnds[r.below(len(goldenEnds))]
	}
	return w
}

// prose is n words; small word numbers are far more frequent than large ones.
func (r *lcg) prose(n int) string {
	words := make([]string, 3000)
	for i := range words {
		words[i] = r.word()
	}
	var b strings.Builder
	for range n {
		b.WriteString(words[r.below(r.below(r.below(len(words))+1)+1)])
		b.WriteString(goldenBreaks[r.below(len(goldenBreaks))])
	}
	return b.String()
}

// pick is n random elements of list.
func (r *lcg) pick(list []string, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(list[r.below(len(list))])
	}
	return b.String()
}

// points is n random code points below limit, without the surrogates.
func (r *lcg) points(n, limit int) string {
	var b strings.Builder
	for range n {
		c := r.below(limit)
		if c >= 0xd800 && c < 0xe000 {
			c -= 0x800
		}
		b.WriteRune(rune(c))
	}
	return b.String()
}

// goldenTraining is the text that the tokenizers in testdata are trained on.
func goldenTraining() string {
	r := lcg(1)
	return r.prose(30000) + r.pick(goldenPieces, 6000) + r.pick(goldenEmoji, 300) + r.pick(goldenBidi, 1000)
}

type goldenCase struct{ name, text string }

// goldenCases returns the texts that are encoded.
func goldenCases() []goldenCase {
	r := lcg(2)
	var cases []goldenCase
	add := func(name, text string) { cases = append(cases, goldenCase{name, text}) }
	add("empty", "")
	add("prose", r.prose(20000))
	add("pieces", r.pick(goldenPieces, 40000))
	add("planes", r.points(30000, 0x110000))
	add("bmp", r.points(30000, 0x10000))
	add("latin", r.points(30000, 0x250))
	add("emoji", func() string {
		var b strings.Builder
		for range 5000 {
			b.WriteString(goldenEmoji[r.below(len(goldenEmoji))])
			b.WriteString(goldenGlue[r.below(len(goldenGlue))])
		}
		return b.String()
	}())
	add("bidi", r.pick(goldenBidi, 10000))
	add("marks", func() string {
		var b strings.Builder
		for range 5000 {
			b.WriteString(goldenVowels[r.below(len(goldenVowels))])
			for range r.below(4) {
				b.WriteRune(rune(0x300 + r.below(0x70)))
			}
			if r.below(5) == 0 {
				b.WriteString(" ")
			}
		}
		return b.String()
	}())
	add("zalgo", "e"+strings.Repeat("\u0301\u0323", 100)+" x"+strings.Repeat("\u0316", 31)+"\u0302")
	add("hangul", func() string {
		var b strings.Builder
		for range 3000 {
			b.WriteRune(rune(0x1100 + r.below(0x13)))
			b.WriteRune(rune(0x1161 + r.below(0x15)))
			if r.below(2) == 0 {
				b.WriteRune(rune(0x11a8 + r.below(0x1b)))
			}
		}
		return b.String()
	}())
	add("nul", strings.Repeat("\x00", 1000)+r.pick([]string{"\x00", "a", " ", "\n"}, 3000))
	add("runs", func() string {
		var b strings.Builder
		for _, p := range goldenPieces {
			b.WriteString(strings.Repeat(p, 1+r.below(700)))
		}
		return b.String()
	}())
	add("specials", r.pick([]string{"<|endoftext|>", "<|endoftext", "|>", " ", "a", "\n", "<pad>", "<mask>", "[W]", "[é]", "[e\u0301]", "[É]", "[E\u0301]"}, 4000))
	add("spaces", strings.Repeat(" ", 1_000_000))
	add("newlines", strings.Repeat("\n", 100_000)+"x"+strings.Repeat(" \n", 50_000))
	add("one-letter", strings.Repeat("a", 300_000))
	add("long-word", func() string {
		var b strings.Builder
		for b.Len() < 300_000 {
			b.WriteString(r.word())
		}
		return b.String()
	}())
	add("code-points", func() string {
		// Every code point of the planes that have letters and numbers, every 64th of the rest.
		var b strings.Builder
		for c := rune(0); c < 0x110000; c++ {
			if c < 0xd800 || 0xe000 <= c && c < 0x33500 || c >= 0x33500 && c%64 == 0 {
				b.WriteRune(c)
				b.WriteString("1 "[c%2 : c%2+1])
			}
		}
		return b.String()
	}())
	return cases
}

func TestGoldenTextsAreValid(t *testing.T) {
	for _, c := range goldenCases() {
		if strings.ToValidUTF8(c.text, "") != c.text {
			t.Errorf("%s is not valid UTF-8", c.name)
		}
	}
}
