package bpe

import (
	"strings"
	"unicode/utf8"
)

// Decode returns the bytes of ids, one token after the other; added tokens give their content. Ids out of range give
// nothing.
func (t *Tokenizer) Decode(ids []int32) []byte {
	size := 0
	for _, id := range ids {
		size += len(t.Token(id))
	}
	out := make([]byte, 0, size)
	for _, id := range ids {
		out = append(out, t.Token(id)...)
	}
	return out
}

// Stream decodes tokens as they are generated. What it returns is always whole UTF-8 characters: the bytes of one that
// is still incomplete wait for the next token. Bytes that can no longer become valid UTF-8 turn into U+FFFD, one for
// each maximal part of a character (Unicode Standard, section 3.9), as in Rust's from_utf8_lossy.
type Stream struct {
	t       *Tokenizer
	pending []byte // at most 3 bytes, the beginning of a character
}

// NewStream returns a Stream at the beginning of a text.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push adds one token and returns the text that is complete now, often the token's own, sometimes "".
func (s *Stream) Push(id int32) string {
	s.pending = append(s.pending, s.t.Token(id)...)
	var out strings.Builder
	rest := s.pending
	for len(rest) > 0 {
		if r, n := utf8.DecodeRune(rest); r != utf8.RuneError || n > 1 {
			out.Write(rest[:n])
			rest = rest[n:]
			continue
		}
		if !utf8.FullRune(rest) {
			break
		}
		out.WriteRune(utf8.RuneError)
		rest = rest[badPart(rest):]
	}
	s.pending = append(s.pending[:0], rest...)
	return out.String()
}

// Flush ends the text: U+FFFD if a character was left incomplete, else "".
func (s *Stream) Flush() string {
	if len(s.pending) == 0 {
		return ""
	}
	s.pending = s.pending[:0]
	return string(utf8.RuneError)
}

// badPart returns how many bytes at the beginning of b one U+FFFD stands for: the longest prefix that could have begun
// a character, at least one byte. b does not begin with a valid character.
func badPart(b []byte) int {
	n := 1
	for n < len(b) && n < utf8.UTFMax && !utf8.FullRune(b[:n]) {
		if utf8.FullRune(b[:n+1]) {
			break // b[n] cannot follow
		}
		n++
	}
	return n
}
