package runlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
)

// maxLineBytes bounds one line, so that a file which is no log cannot fill the
// memory. The longest real lines hold a configuration or a sample.
const maxLineBytes = 16 << 20

var errLineTooLong = fmt.Errorf("line is longer than %d bytes", maxLineBytes)

// Read iterates over the records of a log file. A line that cannot be read
// yields an error with its number, and reading goes on; a last line without
// its newline is being written, or was when the process died, and is ignored.
func Read(path string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer f.Close()
		for r, err := range Decode(f) {
			if err != nil {
				err = fmt.Errorf("%s: %w", path, err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Decode is Read for a log that is already open.
func Decode(r io.Reader) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		b := bufio.NewReaderSize(r, 1<<16)
		for n := 1; ; n++ {
			line, err := readLine(b)
			if errors.Is(err, io.EOF) {
				return
			}
			var rec Record
			stop := err != nil
			if !stop {
				rec, err = parse(line)
			}
			rec.Line = n
			if err != nil {
				rec, err = Record{Line: n}, fmt.Errorf("line %d: %w", n, err)
			}
			if !yield(rec, err) || stop {
				return
			}
		}
	}
}

// readLine returns the next line without its newline; io.EOF when there is no
// whole one.
func readLine(b *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := b.ReadSlice('\n')
		if len(line)+len(piece) > maxLineBytes {
			return nil, errLineTooLong
		}
		if err == nil && line == nil {
			return bytes.TrimSuffix(piece, []byte("\n")), nil
		}
		line = append(line, piece...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
