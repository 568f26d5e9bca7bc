package bpe

// The scanners below cut text exactly as the backtracking regular expressions in pattern.go do; scan_test.go holds them
// against a regular expression engine. Each looks at a bounded number of code points beyond the pre-token that it
// returns, except in white space, where a run is read at most twice: the whole scan is linear in the text.

// next returns the end of the pre-token that begins at text[i]; i must be less than len(text).
func (r *rules) next(text []byte, i int) int {
	if r.gpt2 {
		return r.nextGPT2(text, i)
	}
	return r.nextLlama3(text, i)
}

// nextLlama3 follows, in this order (digits is 3 for Llama 3 and 1 for Qwen 2):
//
//	contractions | [^\r\n\p{L}\p{N}]?\p{L}+ | \p{N}{1,digits} | ?[^\s\p{L}\p{N}]+[\r\n]* | \s*[\r\n]+ | \s+(?!\S) | \s+
func (r *rules) nextLlama3(text []byte, i int) int {
	c, n := classAt(text, i)
	j := i + n
	switch c {
	case classLetter:
		return skipLetters(text, j)
	case classNumber:
		return skipDigits(text, j, r.digits-1)
	case classNewline:
		return spaces(text, i, true)
	}
	if text[i] == '\'' && r.contractions != contractNone {
		if end := contraction(text, j, r.contractions); end > 0 {
			return end
		}
	}
	follow, width := classOther, 0
	if j < len(text) {
		follow, width = classAt(text, j)
	}
	switch {
	case width > 0 && follow == classLetter:
		return skipLetters(text, j+width)
	case c == classOther:
		return skip(text, skip(text, j, classOther), classNewline)
	case width > 0 && follow == classOther && text[i] == ' ':
		return skip(text, skip(text, j+width, classOther), classNewline)
	}
	return spaces(text, i, true)
}

// nextGPT2 follows, in this order:
//
//	contractions | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
//
// With digits 1, a number is a pre-token of its own and ends the text before it.
func (r *rules) nextGPT2(text []byte, i int) int {
	if text[i] == '\'' && r.contractions != contractNone {
		if end := contraction(text, i+1, r.contractions); end > 0 {
			return end
		}
	}
	c, n := classAt(text, i)
	j := i + n
	if text[i] == ' ' && j < len(text) {
		follow, width := classAt(text, j)
		if follow < classSpace && !(follow == classNumber && r.digits == 1) {
			c, j = follow, j+width
		}
	}
	switch {
	case c == classLetter:
		return skipLetters(text, j)
	case c == classNumber && r.digits == 1:
		return j
	case c < classSpace:
		return skip(text, j, c)
	}
	end := spaces(text, i, false)
	if r.digits == 1 {
		if all := spaceAfter(text, i); all < len(text) {
			if follow, _ := classAt(text, all); follow == classNumber {
				return all
			}
		}
	}
	return end
}

// skipDigits returns the end of at most limit more numbers from text[i] on.
func skipDigits(text []byte, i, limit int) int {
	for ; limit > 0 && i < len(text); limit-- {
		c, n := classAt(text, i)
		if c != classNumber {
			break
		}
		i += n
	}
	return i
}

// spaces cuts inside the run of white space that begins at text[i]. With newlines set, the pre-token ends after the
// run's last newline, if it has one (\s*[\r\n]+). Otherwise it is the whole run at the end of the text, or the run
// without its last code point, which belongs to what follows (\s+(?!\S)), or that one code point (\s+).
func spaces(text []byte, i int, newlines bool) int {
	last, newline := i, 0
	j := i
	for j < len(text) {
		c, n := classAt(text, j)
		if c < classSpace {
			break
		}
		last = j
		j += n
		if c == classNewline {
			newline = j
		}
	}
	switch {
	case newlines && newline > 0:
		return newline
	case j < len(text) && last > i:
		return last
	}
	return j
}

// contraction returns the end of 's 't 're 've 'm 'll 'd when text[i:], after the apostrophe, continues so; else 0.
func contraction(text []byte, i int, mode contractions) int {
	if i >= len(text) {
		return 0
	}
	if mode == contractFold && text[i] == 0xc5 && i+1 < len(text) && text[i+1] == 0xbf {
		return i + 2 // ſ, U+017F: its simple case folding is s
	}
	second := byte(0)
	switch lower(text[i], mode) {
	case 's', 't', 'd', 'm':
		return i + 1
	case 'r', 'v':
		second = 'e'
	case 'l':
		second = 'l'
	default:
		return 0
	}
	if i+1 < len(text) && lower(text[i+1], mode) == second {
		return i + 2
	}
	return 0
}

// lower maps A–Z to a–z, except in mode contractLower.
func lower(b byte, mode contractions) byte {
	if mode != contractLower && 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

// safeCut returns the first index ≥ from at which text can be cut without changing a pre-token of any pattern or what
// NFC makes of it, len(text) when there is none. Such places are before the space in "x y", where x and y are ASCII
// letters, and after the newline in "x\ny", where x and y are printable ASCII. (After a blank line it would be wrong:
// GPT-2's \s+(?!\S) takes both newlines at the end of a text but only the first of them before a letter.)
func safeCut(text []byte, from int) int {
	letter := func(b byte) bool { b |= 0x20; return 'a' <= b && b <= 'z' }
	printable := func(b byte) bool { return '!' <= b && b <= '~' }
	for i := max(from, 2); i+1 < len(text); i++ {
		if text[i] == ' ' && letter(text[i-1]) && letter(text[i+1]) {
			return i
		}
		if text[i-1] == '\n' && printable(text[i-2]) && printable(text[i]) {
			return i
		}
	}
	return len(text)
}

// pieces cuts text at safe places into parts of about size bytes and calls yield with each, in order.
func pieces(text []byte, size int, yield func([]byte)) {
	for len(text) > size {
		n := safeCut(text, size)
		yield(text[:n])
		text = text[n:]
	}
	if len(text) > 0 {
		yield(text)
	}
}
