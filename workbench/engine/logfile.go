package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
)

// logFile knows where the lines of a run's log.jsonl begin, so that a page can
// ask for those after the ones that it has. Its lines are numbered from 1.
type logFile struct {
	path    string
	starts  []int64 // of each whole line
	end     int64   // behind the last whole line
	version int     // counts how often lines were taken back
}

// grow reads the lines that were written since and hands each to line. When the
// file has become shorter, as when a run resumes, it begins anew: it calls
// reset first and hands out all lines.
func (l *logFile) grow(reset func(), line func(n int, b []byte)) error {
	f, err := os.Open(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() < l.end {
		l.restart(reset)
	}
	r := io.NewSectionReader(f, l.end, fi.Size()-l.end)
	buf := make([]byte, 0, 1<<16)
	for {
		if len(buf) == cap(buf) {
			// Taking lines moves buf along, down to no capacity at all.
			buf = append(make([]byte, 0, max(1<<16, 2*len(buf))), buf...)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		buf = buf[l.take(buf, line):]
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// take counts the whole lines of buf and returns their length.
func (l *logFile) take(buf []byte, line func(n int, b []byte)) (used int) {
	for {
		i := bytes.IndexByte(buf[used:], '\n')
		if i < 0 {
			return used
		}
		l.starts = append(l.starts, l.end)
		l.end += int64(i) + 1
		line(len(l.starts), buf[used:used+i])
		used += i + 1
	}
}

// restart forgets all lines.
func (l *logFile) restart(reset func()) {
	l.starts, l.end = l.starts[:0], 0
	l.version++
	reset()
}

// logLine is a line with its number.
type logLine struct {
	Record json.RawMessage `json:"record"`
	Line   int             `json:"line"`
}

// read returns at most limit lines after line number after, and the number of
// the last one read. A line that is no JSON, which a kill may leave, is left
// out.
func (l *logFile) read(after, limit int) (lines []logLine, next int, err error) {
	if after >= len(l.starts) {
		return nil, len(l.starts), nil
	}
	next = min(len(l.starts), after+limit)
	stop := l.end
	if next < len(l.starts) {
		stop = l.starts[next]
	}
	f, err := os.Open(l.path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	b := make([]byte, stop-l.starts[after])
	if _, err := f.ReadAt(b, l.starts[after]); err != nil {
		return nil, 0, err
	}
	n := after
	for line := range bytes.Lines(b) {
		n++
		if line = bytes.TrimSpace(line); json.Valid(line) {
			lines = append(lines, logLine{line, n})
		}
	}
	return lines, next, nil
}

// add counts whole lines that have just been written to the file.
func (l *logFile) add(b []byte, line func(n int, b []byte)) { l.take(b, line) }
