package corpus

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// endOfText separates documents in a text file that is read with InputOptions.Split. One line break directly before it
// and one directly after belong to it.
const endOfText = "<|endoftext|>"

// textReader cuts a text into documents and long documents into pieces. Where it cuts depends on the text alone, not on
// how the bytes arrive, so that every run cuts alike.
type textReader struct {
	r     io.Reader
	split bool
	piece int

	buf      []byte
	at, end  int // unread part of buf
	eof      bool
	err      error // what ended the text, nil for its proper end
	line     int
	open     bool // inside a document
	skipLine bool // the next line break belongs to the separator just read
	finished bool
	docs     int
}

// textBuffers keeps the buffers of finished files for the next ones.
var textBuffers sync.Pool

func newTextReader(r io.Reader, split bool, piece int) *textReader {
	t := &textReader{r: r, split: split, piece: piece, line: 1}
	if b, ok := textBuffers.Get().(*[]byte); ok && len(*b) == 2*piece {
		t.buf = *b
	} else {
		t.buf = make([]byte, 2*piece)
	}
	return t
}

func (t *textReader) close() {
	if len(t.buf) == 2*t.piece {
		b := t.buf
		textBuffers.Put(&b)
	}
	t.buf = nil
}

// peek returns the next n unread bytes, fewer only at the end of the text. rest tells that there is more behind them.
func (t *textReader) peek(n int) (b []byte, rest bool) {
	if t.end-t.at <= n && !t.eof {
		t.end = copy(t.buf, t.buf[t.at:t.end])
		t.at = 0
		if len(t.buf) <= n {
			bigger := make([]byte, n+n/2)
			copy(bigger, t.buf[:t.end])
			t.buf = bigger
		}
		for t.end <= n && !t.eof {
			m, err := t.r.Read(t.buf[t.end:])
			t.end += m
			if err != nil {
				t.eof = true
				if err != io.EOF {
					t.err = err
				}
			}
		}
	}
	b = t.buf[t.at:t.end]
	if len(b) > n {
		return b[:n], true
	}
	return b, false
}

// next returns the next piece. Text before a break in the data is returned before the error that describes the break.
func (t *textReader) next() (text []byte, line int, first, last bool, err error) {
	if t.finished {
		err = t.err
		t.err = nil
		if err == nil {
			err = io.EOF
		}
		return nil, t.line, false, false, err
	}
	t.skipLineBreak()
	first, line = !t.open, t.line
	for want := t.piece; ; want *= 2 {
		b, rest := t.peek(want)
		if t.split {
			if i := bytes.Index(b, []byte(endOfText)); i >= 0 {
				t.take(i + len(endOfText))
				t.skipLine = true
				t.open = false
				t.docs++
				return trimLineBreak(b[:i]), line, first, true, nil
			}
		}
		if !rest {
			return t.finish(b, line, first)
		}
		cut := lastSafeCut(b)
		if cut == 0 && want >= maxRecord/2 {
			cut = runeStart(b, len(b)-len(endOfText))
		}
		if cut > 0 {
			t.take(cut)
			t.open = true
			return b[:cut], line, first, false, nil
		}
	}
}

// finish returns the end of the text: the last piece, or nothing after a final separator.
func (t *textReader) finish(b []byte, line int, first bool) ([]byte, int, bool, bool, error) {
	t.finished = true
	if len(b) == 0 && (t.docs > 0 && first || t.err != nil && first) {
		return t.next()
	}
	t.take(len(b))
	return b, line, first, true, nil
}

// take moves past the next n unread bytes.
func (t *textReader) take(n int) {
	t.line += bytes.Count(t.buf[t.at:t.at+n], []byte{'\n'})
	t.at += n
}

func (t *textReader) skipLineBreak() {
	if !t.skipLine {
		return
	}
	t.skipLine = false
	b, _ := t.peek(2)
	switch {
	case bytes.HasPrefix(b, []byte("\r\n")):
		t.take(2)
	case bytes.HasPrefix(b, []byte("\n")):
		t.take(1)
	}
}

func trimLineBreak(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
		if n > 1 && b[n-2] == '\r' {
			b = b[:n-2]
		}
	}
	return b
}

// lastSafeCut returns the last index at which b can be cut so that the two parts have the tokens of the whole, or 0. No
// pre-token pattern joins what stands on the two sides of these places: before the space in "x y" with ASCII letters x
// and y, and after the newline in "x\ny" with printable ASCII x and y. (After a blank line it would be wrong: GPT-2's
// \s+(?!\S) takes two newlines at the end of a text but only the first of two before a letter.) The last bytes of b are
// left alone because a separator may begin there.
func lastSafeCut(b []byte) int {
	for i := len(b) - len(endOfText) - 1; i >= 2; i-- {
		if b[i] == ' ' && isLetter(b[i-1]) && isLetter(b[i+1]) {
			return i
		}
		if b[i-1] == '\n' && isPrintable(b[i-2]) && isPrintable(b[i]) {
			return i
		}
	}
	return 0
}

func isLetter(c byte) bool    { c |= 0x20; return 'a' <= c && c <= 'z' }
func isPrintable(c byte) bool { return '!' <= c && c <= '~' }

// runeStart returns the largest index ≤ n at which no UTF-8 sequence is cut.
func runeStart(b []byte, n int) int {
	for i := n; i > n-utf8.UTFMax && i > 0; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return n
}

// hashText hashes the whole content of a text file, so that a long duplicate can be left out although its pieces are
// not held in memory.
func hashText(in *input) (*[16]byte, error) {
	var read atomic.Int64
	o, err := openContent(in, &InputOptions{}, &read)
	if err != nil {
		return nil, err
	}
	defer o.close()
	h := sha256.New()
	var bad *BadInputError
	if _, err := io.Copy(h, o.content); err != nil && !errors.As(err, &bad) {
		return nil, err
	}
	sum := [16]byte(h.Sum(nil)[:16])
	return &sum, o.unchanged()
}
