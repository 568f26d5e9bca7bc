//go:build !js

package corpus

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"
)

// parquetReader streams one string column, page by page. Line numbers are row numbers from 1.
type parquetReader struct {
	path    string
	file    *parquet.File
	column  int
	groups  []parquet.RowGroup
	group   int // being read
	pages   parquet.Pages
	page    parquet.Page
	values  parquet.ValueReader
	batch   [256]parquet.Value
	at, n   int // values of batch not yet returned
	row     int
	broken  bool
	ioError *readAtError
}

// openParquet sets o.records. A packed file or standard input goes through a temporary file, because a parquet file is
// read from its end.
func (o *openInput) openParquet(opt *InputOptions, read *atomic.Int64) error {
	f, size := o.file, o.in.size
	if o.in.stream || o.unpack != nil {
		spool, n, err := spoolFile(o.content)
		if err != nil {
			return err
		}
		o.spool, f, size = spool, spool, n
		read = new(atomic.Int64) // counted when it was unpacked
	}
	src := &readAtError{f: f, n: read}
	r := &parquetReader{path: o.in.path, ioError: src}
	if err := r.open(src, size, opt.Column); err != nil {
		return r.blame(err)
	}
	o.records = r
	return nil
}

func spoolFile(r io.Reader) (*os.File, int64, error) {
	f, err := os.CreateTemp("", "tezgah-*.parquet")
	if err != nil {
		return nil, 0, fmt.Errorf("temporary file for a compressed parquet file: %w", err)
	}
	n, err := io.Copy(f, r)
	if err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, 0, err
	}
	return f, n, nil
}

func (r *parquetReader) open(src io.ReaderAt, size int64, column string) (err error) {
	defer recoverTo(&err)
	if column == "" {
		column = "text"
	}
	r.file, err = parquet.OpenFile(src, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return err
	}
	leaf, ok := r.file.Schema().Lookup(strings.Split(column, ".")...)
	if !ok {
		return columnError(fmt.Sprintf("no column %q; it has %s: name the column with --column", column, r.columnNames()))
	}
	if k := leaf.Node.Type().Kind(); k != parquet.ByteArray {
		return columnError(fmt.Sprintf("column %q holds %v, want strings", column, k))
	}
	if leaf.MaxRepetitionLevel > 0 {
		return columnError(fmt.Sprintf("column %q holds lists, want one string in each row", column))
	}
	r.column = leaf.ColumnIndex
	r.groups = r.file.RowGroups()
	return nil
}

func (r *parquetReader) columnNames() string {
	var names []string
	for _, path := range r.file.Schema().Columns() {
		names = append(names, strings.Join(path, "."))
	}
	return strings.Join(names, ", ")
}

// next returns the value of the next row. After broken data nothing more of the file is read.
func (r *parquetReader) next() (text []byte, line int, first, last bool, err error) {
	if r.broken {
		return nil, r.row, false, false, io.EOF
	}
	if r.at == r.n {
		if err := r.more(); err == io.EOF {
			return nil, r.row, false, false, io.EOF
		} else if err != nil {
			r.broken = true
			return nil, r.row + 1, false, false, r.blame(err)
		}
	}
	v := r.batch[r.at]
	r.at++
	r.row++
	if !v.IsNull() {
		text = v.ByteArray()
	}
	if len(text) > maxRecord {
		return nil, r.row, false, false, &BadInputError{Path: r.path, Line: r.row,
			Err: fmt.Errorf("a text of %d MiB, want at most %d", len(text)>>20, maxRecord>>20)}
	}
	return text, r.row, true, true, nil
}

// more reads the next batch of values.
func (r *parquetReader) more() (err error) {
	defer recoverTo(&err)
	for {
		if r.values != nil {
			r.at = 0
			r.n, err = r.values.ReadValues(r.batch[:])
			if r.n > 0 && (err == nil || err == io.EOF) {
				return nil
			}
			if err != nil && err != io.EOF {
				return err
			}
			r.values = nil
			parquet.Release(r.page)
			r.page = nil
		}
		if r.pages == nil {
			if r.group == len(r.groups) {
				return io.EOF
			}
			r.pages = r.groups[r.group].ColumnChunks()[r.column].Pages()
			r.group++
		}
		r.page, err = r.pages.ReadPage()
		switch {
		case err == io.EOF:
			r.pages.Close()
			r.pages = nil
		case err != nil:
			return err
		default:
			r.values = r.page.Values()
		}
	}
}

// columnError is a wrong column, which is a mistake of the caller and not broken data: SkipBad does not skip it.
type columnError string

func (e columnError) Error() string { return string(e) }

// blame tells a failing disk and a wrong column from a broken file.
func (r *parquetReader) blame(err error) error {
	if r.ioError.err != nil {
		return r.ioError.err
	}
	if _, ok := err.(columnError); ok {
		return err
	}
	line := 0
	if r.row > 0 || r.groups != nil {
		line = r.row + 1
	}
	return &BadInputError{Path: r.path, Line: line, Err: fmt.Errorf("parquet: %w", err)}
}

func (r *parquetReader) close() {
	if r.page != nil {
		parquet.Release(r.page)
	}
	if r.pages != nil {
		r.pages.Close()
	}
}

// recoverTo turns a panic of the parquet library over a malformed file into an error.
func recoverTo(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("malformed file: %v", v)
	}
}

// readAtError counts what is read and remembers an error of the file itself.
type readAtError struct {
	f   *os.File
	n   *atomic.Int64
	err error
}

func (s *readAtError) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("offset %d: the file is truncated or its footer is damaged", off)
	}
	n, err := s.f.ReadAt(p, off)
	s.n.Add(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
