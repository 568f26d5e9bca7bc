package corpus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func lines(opt InputOptions, f func(Line) error) ([]string, WalkStats, error) {
	var got []string
	stats, err := WalkLines(context.Background(), opt, func(l Line) error {
		got = append(got, fmt.Sprintf("%s:%d %s", filepath.Base(l.Source), l.Line, l.JSON))
		return f(l)
	})
	return got, stats, err
}

func accept(Line) error { return nil }

// TestWalkLines: jsonl files of a folder in order, packed or not, other files left out; a named file whatever it is
// called; standard input.
func TestWalkLines(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"b.jsonl": "\ufeff{\"a\":1}\n\n  \r\n {\"a\":2} \r\n{\"a\":3}", "a.txt": "no json", "c.jsonl.gz": gzipped(t, "{\"a\":4}\n"),
		"d/e.ndjson": "x\n", "f.jsonl.zst": zstded(t, "[5]\n"), "g.bin": "\x00", "p.parquet": "PAR1",
	})
	got, stats, err := lines(InputOptions{Paths: []string{dir, dir + "/a.txt", "-"}, Stdin: strings.NewReader("{}\n")}, accept)
	want := []string{`b.jsonl:1 {"a":1}`, `b.jsonl:4 {"a":2}`, `b.jsonl:5 {"a":3}`, `c.jsonl.gz:1 {"a":4}`, `e.ndjson:1 x`,
		`f.jsonl.zst:1 [5]`, `a.txt:1 no json`, `-:1 {}`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
	if stats.Documents != 8 || stats.Files != 6 || stats.Bad != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func TestWalkLinesErrors(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.jsonl": "1\n2\n3\n4\n", "t/t.txt": "text", "p.parquet": "PAR1", "cut.jsonl.gz": gzipped(t, "1\n2\n")[:20],
		"blank.jsonl": "\n\n"})
	bad := func(l Line) error {
		if string(l.JSON) == "2" || string(l.JSON) == "4" {
			return &BadInputError{Path: l.Source, Line: l.Line, Err: errors.New("even")}
		}
		return nil
	}
	opt := InputOptions{Paths: []string{dir + "/a.jsonl"}}
	if got, _, err := lines(opt, bad); err == nil || !strings.Contains(err.Error(), "a.jsonl:2: even") || len(got) != 2 {
		t.Errorf("read %q, %v", got, err)
	}
	opt.SkipBad = true
	if got, stats, err := lines(opt, bad); err != nil || len(got) != 4 || stats.Bad != 2 || stats.Documents != 2 {
		t.Errorf("with SkipBad: read %q, %+v, %v", got, stats, err)
	}
	boom := errors.New("boom")
	if _, _, err := lines(opt, func(Line) error { return boom }); !errors.Is(err, boom) {
		t.Errorf("an error of the function: got %v", err)
	}
	if got, _, err := lines(opt, func(Line) error { return Stop }); err != nil || len(got) != 1 {
		t.Errorf("Stop: read %q, %v", got, err)
	}
	for want, path := range map[string]string{"no .jsonl": dir + "/t", "is parquet": dir + "/p.parquet", "cut.jsonl.gz": dir + "/cut.jsonl.gz",
		"no text in": dir + "/blank.jsonl", "no such file": dir + "/none.jsonl"} {
		if _, _, err := lines(InputOptions{Paths: []string{path}}, accept); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}
