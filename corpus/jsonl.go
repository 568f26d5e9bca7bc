package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// lineReader cuts a jsonl file into lines. Blank lines are left out.
type lineReader struct {
	r       io.Reader
	path    string
	buf     []byte
	at, end int
	line    int
	eof     bool
	err     error
}

func newLineReader(r io.Reader, path string) *lineReader {
	return &lineReader{r: r, path: path, buf: make([]byte, 256<<10)}
}

func (l *lineReader) close() {}

// next returns the next line that is not blank, without its line break.
func (l *lineReader) next() (text []byte, line int, first, last bool, err error) {
	for {
		text, err := l.readLine()
		if err != nil {
			return nil, l.line, false, false, err
		}
		if l.line == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")) // byte order mark
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			return text, l.line, true, true, nil
		}
	}
}

// readLine returns the next line. A line cut off by a break in compressed data is not returned, only the error.
func (l *lineReader) readLine() ([]byte, error) {
	searched := l.at
	for {
		if i := bytes.IndexByte(l.buf[searched:l.end], '\n'); i >= 0 {
			text := l.buf[l.at : searched+i]
			l.at = searched + i + 1
			l.line++
			return text, nil
		}
		if l.eof {
			return l.lastLine()
		}
		searched = l.end - l.at
		l.more()
		if l.end-l.at > maxRecord {
			return nil, l.tooLong()
		}
	}
}

// more reads further bytes behind the unread ones, which move to the front.
func (l *lineReader) more() {
	l.end = copy(l.buf, l.buf[l.at:l.end])
	l.at = 0
	if l.end > len(l.buf)/2 {
		bigger := make([]byte, 2*len(l.buf))
		copy(bigger, l.buf[:l.end])
		l.buf = bigger
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	if err != nil {
		l.eof = true
		if err != io.EOF {
			l.err = err
		}
	}
}

func (l *lineReader) lastLine() ([]byte, error) {
	text := l.buf[l.at:l.end]
	l.at = l.end
	if err := l.err; err != nil {
		l.err = nil
		var bad *BadInputError
		if errors.As(err, &bad) {
			return nil, &BadInputError{Path: l.path, Line: l.line + 1, Err: bad.Err}
		}
		return nil, err
	}
	if len(text) == 0 {
		return nil, io.EOF
	}
	l.line++
	return text, nil
}

// tooLong skips the rest of a line that is longer than maxRecord.
func (l *lineReader) tooLong() error {
	l.line++
	line := l.line
	for {
		if i := bytes.IndexByte(l.buf[l.at:l.end], '\n'); i >= 0 {
			l.at += i + 1
			break
		}
		l.at = l.end
		if l.eof {
			break
		}
		l.more()
	}
	return &BadInputError{Path: l.path, Line: line,
		Err: fmt.Errorf("line longer than %d MiB: is this file really jsonl?", maxRecord>>20)}
}
