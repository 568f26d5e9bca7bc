package bpe

import (
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalize returns text in normalisation form C when the tokenizer asks for it, and text itself otherwise.
func (t *Tokenizer) normalize(text []byte) []byte {
	if !t.nfc {
		return text
	}
	return normalizeNFC(text)
}

// normalizeNFC returns text itself when it is in form C already. Invalid bytes stay as they are.
func normalizeNFC(text []byte) []byte {
	if norm.NFC.QuickSpan(text) == len(text) {
		return text
	}
	return nfc(text)
}

// maxMarks is the length of a run of combining marks up to which the norm package follows form C.
const maxMarks = 30

// nfc is Unicode normalisation form C (Unicode Standard Annex 15). The norm package does the work except for runs of more
// than 30 marks: there it would insert a combining grapheme joiner (the annex's stream-safe format) and so change the
// text. Such runs are composed here.
func nfc(text []byte) []byte {
	out := make([]byte, 0, len(text)+len(text)/16)
	for len(text) > 0 {
		start, end := longMarkRun(text)
		out = append(out, norm.NFC.Bytes(text[:start])...)
		out = composeRun(out, text[start:end])
		text = text[end:]
	}
	return out
}

// longMarkRun finds the first run of characters that interact in form C and have, once decomposed, nearly maxMarks marks
// in a row or more, and returns its bounds; (len(text), len(text)) when there is none.
func longMarkRun(text []byte) (start, end int) {
	marks, long := 0, false
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		p := norm.NFC.Properties(text[i:])
		if invalid := r == utf8.RuneError && n == 1; invalid || p.BoundaryBefore() {
			if long {
				return start, i
			}
			start, marks = i, 0
			if invalid {
				start++
			}
		} else if p.CCC() == 0 {
			marks = 0
		} else {
			marks += max(1, utf8.RuneCount(p.Decomposition()))
			long = long || marks > maxMarks-4
		}
		i += n
	}
	if long {
		return start, len(text)
	}
	return len(text), len(text)
}

// markedRune is a code point with its canonical combining class.
type markedRune struct {
	r   rune
	ccc uint8
}

// composeRun appends form C of a run of valid UTF-8: decompose, sort marks stably by combining class, then compose each
// code point with the last starter unless something of the same or a higher class stands between them.
func composeRun(out, run []byte) []byte {
	chars := decompose(run)
	starter := -1
	kept := chars[:0]
	for _, c := range chars {
		adjacent := starter == len(kept)-1
		if starter >= 0 && (adjacent || kept[len(kept)-1].ccc < c.ccc) {
			if r, ok := composePair(kept[starter].r, c.r); ok {
				kept[starter].r = r
				continue
			}
		}
		if c.ccc == 0 {
			starter = len(kept)
		}
		kept = append(kept, c)
	}
	for _, c := range kept {
		out = utf8.AppendRune(out, c.r)
	}
	return out
}

// decompose returns the canonical decomposition of valid UTF-8, every run of marks in canonical order.
func decompose(run []byte) []markedRune {
	var chars []markedRune
	for len(run) > 0 {
		_, n := utf8.DecodeRune(run)
		for _, r := range string(norm.NFD.Bytes(run[:n])) {
			chars = append(chars, markedRune{r, norm.NFD.PropertiesString(string(r)).CCC()})
		}
		run = run[n:]
	}
	for i := 0; i < len(chars); i++ {
		j := i
		for j < len(chars) && chars[j].ccc > 0 {
			j++
		}
		slices.SortStableFunc(chars[i:j], func(a, b markedRune) int { return int(a.ccc) - int(b.ccc) })
		i = max(i, j-1)
	}
	return chars
}

// composePair returns the primary composite of two code points, if there is one.
func composePair(a, b rune) (rune, bool) {
	s := norm.NFC.String(string(a) + string(b))
	r, n := utf8.DecodeRuneInString(s)
	return r, n == len(s)
}
