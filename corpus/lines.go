package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Line is one line of a jsonl file as it stands there.
type Line struct {
	JSON   []byte // valid until the function that received it returns
	Source string // path of the file, "-" for standard input
	Line   int    // from 1
}

// WalkLines calls f with every line of the input that is not blank, in the order of Walk, for records that are more than
// a text. Of a folder it reads the .jsonl and .ndjson files, plain or packed; what is named itself is read as jsonl
// whatever its name is, except parquet. Column, Split and StdinFormat are not used. A *BadInputError from f, or in the
// file, ends the walk unless opt.SkipBad counts and skips it; Stop ends it without an error. Stats count a line as a
// document.
func WalkLines(ctx context.Context, opt InputOptions, f func(Line) error) (WalkStats, error) {
	opt.StdinFormat = "jsonl"
	var stats WalkStats
	list, err := listLines(ctx, &opt)
	if err != nil {
		return stats, err
	}
	err = walkRecords(ctx, &opt, list, &stats, func(in *input, rec *record, raw []byte) error {
		err := rec.err
		if rec.kind == kindText {
			err = f(Line{JSON: raw, Source: in.path, Line: rec.line})
		}
		var bad *BadInputError
		if errors.Is(err, Stop) || errors.As(err, &bad) && !opt.SkipBad {
			return err
		}
		return stats.count(rec, len(raw), err, opt.SkipBad)
	})
	return stats, err
}

// listLines finds the files behind opt.Paths that hold jsonl.
func listLines(ctx context.Context, opt *InputOptions) ([]input, error) {
	all, err := listInputs(ctx, opt)
	if err != nil {
		return nil, err
	}
	var list []input
	for _, in := range all {
		switch {
		case in.format == formatJSONL:
		case !in.named:
			continue
		case in.format == formatParquet:
			return nil, fmt.Errorf("input %s is parquet, want jsonl: one JSON object a line", in.path)
		}
		in.format = formatJSONL
		list = append(list, in)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no .jsonl or .ndjson files in %s", strings.Join(opt.Paths, ", "))
	}
	return list, nil
}

// walkRecords calls f with the records of all files in their order until Stop or another error, and returns nil for
// Stop. raw are the bytes of the record.
func walkRecords(ctx context.Context, opt *InputOptions, list []input, stats *WalkStats,
	f func(in *input, rec *record, raw []byte) error) error {
	s := &stream{ctx: ctx, opt: opt, list: list, piece: walkPiece}
	defer s.close()
	var buf []byte
	for {
		var rec record
		var err error
		buf, rec, err = s.next(buf[:0])
		stats.BytesRead = s.read.Load()
		if err == io.EOF {
			return noDocuments(stats, opt)
		}
		if err == nil {
			err = f(&list[min(rec.file, len(list)-1)], &rec, buf[rec.start:rec.end:rec.end])
		}
		if errors.Is(err, Stop) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
