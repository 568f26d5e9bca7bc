package corpus

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
)

// maxRecord bounds one jsonl line, one parquet value and one piece of text, and by that the memory of the readers.
const maxRecord = 128 << 20

// sniffBytes is how much of a file in a folder is searched for a NUL byte; a file that has one is binary (git's rule).
const sniffBytes = 8000

// BadInputError is broken content: not a failing disk, and not a file that is missing. InputOptions.SkipBad skips it.
type BadInputError struct {
	Path string
	Line int // 1-based line, or row of a parquet file; 0 when neither is known
	Err  error
}

func (e *BadInputError) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.Path, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.Path, e.Err)
}

func (e *BadInputError) Unwrap() error { return e.Err }

// kind says what a record is.
type kind int8

const (
	kindText   kind = iota // a document or a piece of one
	kindStart              // a file was opened
	kindBinary             // a file was left out because it is binary
	kindBad                // broken content; err says what
)

// record is one step of the input in its fixed order. Its bytes are raw: for jsonl the line, else the text.
type record struct {
	kind        kind
	file        int   // index into the list of inputs
	ordinal     int64 // counts the records of one file from 0, the same in every run
	line        int
	first, last bool // the record begins, ends a document
	format      format
	start, end  int       // of the raw bytes in the buffer that next appended to
	docSum      *[16]byte // hash of the whole document when it comes in pieces and was hashed beforehand
	err         error
	replay      bool // before the position to go on from: wanted only for its hash
}

// recordReader cuts the content of one file into records. text is valid until the next call. io.EOF ends the file; a
// *BadInputError can be followed by further records.
type recordReader interface {
	next() (text []byte, line int, first, last bool, err error)
	close()
}

// stream reads all inputs one after the other.
type stream struct {
	ctx   context.Context
	opt   *InputOptions
	list  []input
	piece int // size in bytes of the pieces that long texts are cut into

	from   position // records up to and with this one were handled before
	replay bool     // hand them out all the same, marked
	sums   bool     // hash long documents beforehand

	at      int // file being read
	file    *openInput
	ordinal int64
	read    atomic.Int64 // bytes of files consumed, for progress
}

// position names the last record handled. The zero position is before everything.
type position struct {
	File    int   `json:"file"`
	Records int64 `json:"records"` // of that file
}

// next appends the raw bytes of the next record to buf. It ends with io.EOF.
func (s *stream) next(buf []byte) ([]byte, record, error) {
	for {
		if err := s.ctx.Err(); err != nil {
			return buf, record{}, err
		}
		if s.at >= len(s.list) {
			return buf, record{}, io.EOF
		}
		if s.file == nil && s.at < s.from.File && !s.replay {
			s.read.Add(s.list[s.at].size)
			s.at++
			continue
		}
		mark := len(buf)
		buf2, rec, err := s.step(buf)
		buf = buf2
		if err == io.EOF {
			continue
		}
		if err != nil {
			return buf, rec, err
		}
		rec.file, rec.ordinal = s.at, s.ordinal
		s.ordinal++
		rec.replay = rec.file < s.from.File || rec.file == s.from.File && rec.ordinal < s.from.Records
		if rec.replay && (!s.replay || rec.kind != kindText) {
			buf = buf[:mark]
			continue
		}
		return buf, rec, nil
	}
}

// step produces one record of the current file, opening it first when needed. io.EOF means that the file is done.
func (s *stream) step(buf []byte) ([]byte, record, error) {
	in := &s.list[s.at]
	if s.file == nil {
		return s.begin(buf, in)
	}
	text, line, first, last, err := s.file.records.next()
	var bad *BadInputError
	switch {
	case err == io.EOF:
		err = s.end()
		if err == nil {
			err = io.EOF
		}
		return buf, record{}, err
	case errors.As(err, &bad):
		return buf, record{kind: kindBad, line: bad.Line, err: err}, nil
	case err != nil:
		return buf, record{}, fmt.Errorf("input %s: %w", in.path, pathCause(err))
	}
	rec := record{line: line, first: first, last: last, format: in.format, start: len(buf)}
	buf = append(buf, text...)
	rec.end = len(buf)
	if s.sums && first && !last && !s.opt.Split && in.format == formatText && !in.stream {
		sum, err := hashText(in)
		if err != nil {
			return buf, record{}, fmt.Errorf("input %s: %w", in.path, err)
		}
		rec.docSum = sum
	}
	return buf, rec, nil
}

func (s *stream) begin(buf []byte, in *input) ([]byte, record, error) {
	s.ordinal = 0
	rec := record{kind: kindStart}
	file, err := openRecords(in, s.opt, s.piece, &s.read)
	var bad *BadInputError
	switch {
	case errors.As(err, &bad):
		s.file = &openInput{in: in, records: noRecords{}}
		return buf, record{kind: kindBad, line: bad.Line, err: err}, nil
	case err != nil:
		return buf, record{}, fmt.Errorf("input %s: %w", in.path, pathCause(err))
	case file.binary:
		rec.kind = kindBinary
	}
	s.file = file
	return buf, rec, nil
}

// end closes the current file and makes sure that it was read as it was listed.
func (s *stream) end() error {
	in := &s.list[s.at]
	err := s.file.unchanged()
	s.file.close()
	s.file = nil
	s.at++
	if err != nil {
		return fmt.Errorf("input %s: %w", in.path, err)
	}
	return nil
}

func (s *stream) close() {
	if s.file != nil {
		s.file.close()
		s.file = nil
	}
}

// openInput is one file being read.
type openInput struct {
	in      *input
	file    *os.File // nil for standard input and for a file whose beginning is broken
	content io.Reader
	unpack  io.Closer // decompressor
	spool   *os.File  // temporary copy of a packed parquet file
	records recordReader
	binary  bool
}

// errChanged says that a file was written to while it was read: what was read is neither its old nor its new content.
var errChanged = errors.New("changed while it was read: let its writer finish and build again")

func (o *openInput) unchanged() error {
	if o.file == nil || o.in.stream {
		return nil
	}
	info, err := o.file.Stat()
	if err == nil && (info.Size() != o.in.size || info.ModTime().UnixNano() != o.in.modTime) {
		err = errChanged
	}
	if now, e := os.Stat(o.in.path); err == nil && e == nil && !os.SameFile(info, now) {
		err = errChanged // replaced under the same name
	}
	return err
}

func (o *openInput) close() {
	if o.records != nil {
		o.records.close()
	}
	if o.unpack != nil {
		o.unpack.Close()
	}
	if o.file != nil {
		o.file.Close()
	}
	if o.spool != nil {
		o.spool.Close()
		os.Remove(o.spool.Name())
	}
}

// openContent opens the file and its decompressor.
func openContent(in *input, opt *InputOptions, read *atomic.Int64) (*openInput, error) {
	o := &openInput{in: in}
	var raw io.Reader
	if in.path == "-" {
		raw = opt.Stdin
		if raw == nil {
			raw = os.Stdin
		}
	} else {
		f, err := os.Open(in.path)
		if err != nil {
			return nil, err
		}
		o.file, raw = f, f
		if err := o.unchanged(); err != nil {
			o.close()
			return nil, err
		}
	}
	counted := &countingReader{r: raw, n: read}
	err := o.decompress(counted)
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// decompress sets o.content.
func (o *openInput) decompress(counted *countingReader) error {
	packing := o.in.packing
	if packing == packNone {
		o.content = counted
		return nil
	}
	raw := bufio.NewReaderSize(counted, 256<<10)
	if packing == packDetect {
		packing = detectPacking(raw)
	}
	unpack, name := newGzip, "gzip"
	switch packing {
	case packGzip:
	case packZstd:
		unpack, name = newZstd, "zstd"
	default:
		o.content = raw
		return nil
	}
	z, err := unpack(raw)
	if errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("input %s: %w", o.in.path, err)
	}
	if err != nil {
		return counted.blame(o.in.path, name, err)
	}
	o.unpack = z
	o.content = &unpackReader{r: z, raw: counted, path: o.in.path, name: name}
	return nil
}

func detectPacking(r *bufio.Reader) packing {
	head, _ := r.Peek(4)
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return packGzip
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return packZstd
	}
	return packNone
}

// openRecords opens a file and cuts it into records. Broken headers come back as a *BadInputError.
func openRecords(in *input, opt *InputOptions, piece int, read *atomic.Int64) (*openInput, error) {
	o, err := openContent(in, opt, read)
	if err != nil {
		return nil, err
	}
	switch in.format {
	case formatParquet:
		err = o.openParquet(opt, read)
	case formatJSONL:
		o.records = newLineReader(o.content, in.path)
	default:
		text := newTextReader(o.content, opt.Split, piece)
		o.records = text
		if head, _ := text.peek(sniffBytes); !in.named && bytes.IndexByte(head, 0) >= 0 {
			text.close()
			o.binary, o.records = true, noRecords{}
		}
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// noRecords is the content of a file that is left out.
type noRecords struct{}

func (noRecords) next() ([]byte, int, bool, bool, error) { return nil, 0, false, false, io.EOF }
func (noRecords) close()                                 {}

// countingReader counts what is read and remembers an error of the file itself.
type countingReader struct {
	r   io.Reader
	n   *atomic.Int64
	err error
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// blame tells a failing file from broken compressed data.
func (c *countingReader) blame(path, packing string, err error) error {
	if c.err != nil {
		return c.err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &BadInputError{Path: path, Err: fmt.Errorf("broken %s data: %w", packing, err)}
}

// unpackReader reads decompressed data and turns decompression errors into a *BadInputError.
type unpackReader struct {
	r          io.Reader
	raw        *countingReader
	path, name string
}

func (u *unpackReader) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if err != nil && err != io.EOF {
		err = u.raw.blame(u.path, u.name, err)
	}
	return n, err
}
