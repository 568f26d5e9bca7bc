package bpe

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// lossy replaces each maximal part of an ill-formed sequence by U+FFFD, straight from table 3-7 of the Unicode Standard.
func lossy(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = 1
			lo, hi, more := byte(0x80), byte(0xbf), 0
			switch lead := b[0]; {
			case 0xc2 <= lead && lead <= 0xdf:
				more = 1
			case 0xe0 <= lead && lead <= 0xef:
				more = 2
				if lead == 0xe0 {
					lo = 0xa0
				} else if lead == 0xed {
					hi = 0x9f
				}
			case 0xf0 <= lead && lead <= 0xf4:
				more = 3
				if lead == 0xf0 {
					lo = 0x90
				} else if lead == 0xf4 {
					hi = 0x8f
				}
			}
			for ; more > 0 && n < len(b) && lo <= b[n] && b[n] <= hi; more-- {
				n++
				lo, hi = 0x80, 0xbf
			}
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// TestStream pushes texts byte by byte: a text has bytes as tokens when nothing was merged.
func TestStream(t *testing.T) {
	tok := train(t, TrainOptions{VocabSize: 257}, "x")
	for _, text := range []string{
		"düz yazı", "👩\u200d💻", "a\xffb", "\xe2\x82", "\xe2\x82x", "\xf0\x9f\x98", "\xf0\x9f\x98\xf0\x9f\x98\x80", "\xed\xa0\x80",
		"\xc0\x80", "\xf4\x90\x80\x80", "\xe0\x80", "\xf5\xff",
	} {
		s := tok.NewStream()
		var got strings.Builder
		for _, id := range tok.Encode(nil, []byte(text)) {
			part := s.Push(id)
			if !utf8.ValidString(part) {
				t.Errorf("%q: Push returned %q", text, part)
			}
			got.WriteString(part)
		}
		got.WriteString(s.Flush())
		if want := lossy([]byte(text)); got.String() != want {
			t.Errorf("%q: streamed %q, want %q", text, got.String(), want)
		}
		if s.Flush() != "" {
			t.Errorf("%q: a second Flush returned something", text)
		}
	}
}

func TestDecodeOutOfRange(t *testing.T) {
	tok := train(t, TrainOptions{VocabSize: 257}, "x")
	if got := tok.Decode([]int32{-1, 257, 1 << 30}); len(got) != 0 {
		t.Errorf("ids out of range decode to %q", got)
	}
	if tok.Token(-1) != nil || tok.Token(257) != nil || tok.IsSpecial(-1) || !tok.IsSpecial(256) {
		t.Error("wrong answers about ids at the bounds")
	}
}
