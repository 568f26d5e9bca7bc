package corpus

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Document is one text.
type Document struct {
	Text   []byte // valid until the function that received it returns
	Source string // path of the file, "-" for standard input
	Line   int    // where it begins: line, or row of a parquet file, from 1
}

// WalkStats counts what was read.
type WalkStats struct {
	Files     int64 `json:"files"`      // read
	Binary    int64 `json:"binary"`     // files left out because they are not text
	Documents int64 `json:"documents"`  // not empty
	Empty     int64 `json:"empty"`      // documents left out because they are empty
	Bad       int64 `json:"bad"`        // broken records skipped
	Bytes     int64 `json:"text_bytes"` // of text
	BytesRead int64 `json:"bytes_read"` // of files, compressed ones as they are on disk
}

// Stop ends a Walk early without an error when the function that receives the documents returns it.
var Stop = errors.New("stop")

// walkPiece is the size from which on Walk hands out a text in parts.
const walkPiece = 8 << 20

// Walk calls f with every document of the input: files in the order of opt.Paths, folders sorted, so that two walks
// over the same files are the same. It holds one file's reading buffers in memory and no more. A text longer than 8 MiB
// comes as several documents, cut at ends of words where no tokenizer joins the two sides.
func Walk(ctx context.Context, opt InputOptions, f func(Document) error) (WalkStats, error) {
	var stats WalkStats
	list, err := listInputs(ctx, &opt)
	if err != nil {
		return stats, err
	}
	err = walkRecords(ctx, &opt, list, &stats, func(in *input, rec *record, raw []byte) error {
		return walkRecord(&stats, &opt, in, rec, raw, f)
	})
	return stats, err
}

func walkRecord(stats *WalkStats, opt *InputOptions, in *input, rec *record, raw []byte, f func(Document) error) error {
	text, err := recordText(rec, raw, in, opt)
	if err := stats.count(rec, len(text), err, opt.SkipBad); err != nil {
		return err
	}
	if rec.kind != kindText || err != nil || len(text) == 0 {
		return nil
	}
	return f(Document{Text: text, Source: in.path, Line: rec.line})
}

// recordText returns the text of a record, which may lie in raw.
func recordText(rec *record, raw []byte, in *input, opt *InputOptions) ([]byte, error) {
	if rec.kind != kindText {
		return nil, rec.err
	}
	if rec.format != formatJSONL {
		return raw, nil
	}
	text, err := jsonText(raw, opt.Column)
	if err != nil {
		return nil, &BadInputError{Path: in.path, Line: rec.line, Err: err}
	}
	return text, nil
}

// count adds one record with textBytes bytes of text. It returns err when a broken record is not to be skipped.
func (s *WalkStats) count(rec *record, textBytes int, err error, skipBad bool) error {
	switch {
	case err != nil:
		var bad *BadInputError
		if !errors.As(err, &bad) {
			return err
		}
		if !skipBad {
			return fmt.Errorf("%w (--skip-bad skips broken records)", err)
		}
		s.Bad++
	case rec.kind == kindStart:
		s.Files++
	case rec.kind == kindBinary:
		s.Binary++
	case textBytes == 0 && rec.first && rec.last:
		s.Empty++
	default:
		if rec.first {
			s.Documents++
		}
		s.Bytes += int64(textBytes)
	}
	return nil
}

// noDocuments is the error of an input without any text.
func noDocuments(s *WalkStats, opt *InputOptions) error {
	if s.Documents > 0 {
		return nil
	}
	what := fmt.Sprintf("%d files read", s.Files)
	for _, c := range []struct {
		n    int64
		text string
	}{{s.Empty, "empty documents"}, {s.Binary, "binary files left out"}, {s.Bad, "broken records skipped"}} {
		if c.n > 0 {
			what += fmt.Sprintf(", %d %s", c.n, c.text)
		}
	}
	return fmt.Errorf("no text in %s (%s): give a file or folder with text", strings.Join(opt.Paths, ", "), what)
}
