package bpe

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// class says what the pre-token patterns need to know about one code point.
type class uint8

const (
	classOther   class = iota // neither letter, number nor white space: punctuation, marks, controls, invalid bytes
	classLetter               // \p{L}
	classNumber               // \p{N}
	classSpace                // \s except \r and \n
	classNewline              // \r or \n
)

// classes holds the class of every code point. One flat table of 1.1 MB keeps the look-up to a single load; of it only
// the pages of the scripts in use are ever touched.
var classes = buildClasses()

func buildClasses() *[utf8.MaxRune + 1]class {
	table := new([utf8.MaxRune + 1]class)
	fill := func(ranges [][2]rune, c class) {
		for _, r := range ranges {
			for cp := r[0]; cp <= r[1]; cp++ {
				table[cp] = c
			}
		}
	}
	fill(letterRanges, classLetter)
	fill(numberRanges, classNumber)
	fill(spaceRanges, classSpace)
	table['\n'], table['\r'] = classNewline, classNewline
	return table
}

// spaceRanges is White_Space, which has not changed since Unicode 6.3.
var spaceRanges = [][2]rune{
	{0x9, 0xd}, {0x20, 0x20}, {0x85, 0x85}, {0xa0, 0xa0}, {0x1680, 0x1680}, {0x2000, 0x200a},
	{0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
}

// classAt returns the class and the width in bytes of the code point that begins at text[i].
func classAt(text []byte, i int) (class, int) {
	b := text[i]
	if b < utf8.RuneSelf {
		return classes[b], 1
	}
	return wideClassAt(text, i)
}

// wideClassAt is classAt for a code point of more than one byte, or an invalid byte.
func wideClassAt(text []byte, i int) (class, int) {
	b := text[i]
	if b >= 0xc2 && b <= 0xdf && i+1 < len(text) && text[i+1]&0xc0 == 0x80 {
		return classes[rune(b&0x1f)<<6|rune(text[i+1]&0x3f)], 2
	}
	r, n := utf8.DecodeRune(text[i:])
	return classes[r], n
}

// skip returns the end of the run of code points of class c that begins at text[i]; i when there is none.
func skip(text []byte, i int, c class) int {
	for i < len(text) {
		if b := text[i]; b < utf8.RuneSelf {
			if classes[b] != c {
				return i
			}
			i++
			continue
		}
		got, n := wideClassAt(text, i)
		if got != c {
			return i
		}
		i += n
	}
	return i
}

// skipLetters is skip for letters, eight bytes at a time while they are ASCII.
func skipLetters(text []byte, i int) int {
	for i+8 <= len(text) {
		n := asciiLetters(binary.LittleEndian.Uint64(text[i:]))
		i += n
		if n == 8 {
			continue
		}
		if text[i] < utf8.RuneSelf {
			return i
		}
		c, width := wideClassAt(text, i)
		if c != classLetter {
			return i
		}
		i += width
	}
	return skip(text, i, classLetter)
}

// asciiLetters returns how many of the eight bytes of w, from the lowest on, are ASCII letters.
func asciiLetters(w uint64) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	lower := w&^high | ones*0x20        // without the high bits no sum below carries into the next byte
	fromA := lower + ones*(0x80-'a')    // the high bit says ≥ 'a'
	afterZ := lower + ones*(0x80-'z'-1) // the high bit says > 'z'
	other := (^fromA | afterZ | w) & high
	return bits.TrailingZeros64(other) >> 3 // 64 >> 3 when there is none
}
