package corpus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
)

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(s))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstded(t *testing.T, s string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return string(w.EncodeAll([]byte(s), nil))
}

type parquetRow struct {
	ID   int64    `parquet:"id"`
	Text *string  `parquet:"text,optional,dict"`
	Body string   `parquet:"body,zstd"`
	Tags []string `parquet:"tags,list"`
}

// parquetFile returns a file of several row groups; every fifth text is null.
func parquetFile(t *testing.T, n int) (content string, texts []string) {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&b, parquet.MaxRowsPerRowGroup(int64(n/3+1)), parquet.PageBufferSize(200))
	for i := range n {
		text := fmt.Sprintf("row %d %s", i%7, strings.Repeat("ş", i%11))
		row := parquetRow{ID: int64(i), Body: fmt.Sprintf("body %d", i), Tags: []string{"a", "b"}}
		if i%5 != 4 {
			row.Text = &text
			texts = append(texts, text)
		}
		if _, err := w.Write([]parquetRow{row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String(), texts
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Fatalf("%s: got %.300q, want %.300q", what, got, want)
	}
}

func TestWalkKindsAndOrder(t *testing.T) {
	pq, rows := parquetFile(t, 40)
	dir := writeTree(t, map[string]string{
		"01.txt": "one", "02.md.gz": gzipped(t, "two"), "03.jsonl.zst": zstded(t, "{\"text\":\"three\"}\n"),
		"04.ndjson": `{"text":"four"}`, "05.parquet": pq, "06.parquet.gz": gzipped(t, pq), "07.tar.gz": gzipped(t, "archive"),
		"08.bin": "\x00", "09/x.txt": "nine", "1.txt": "ten", "cut.gz": gzipped(t, "binary\x00"), ".git/x": "no", "sub/.git/y": "no",
	})
	want := append([]string{"one", "two", "three", "four"}, rows...)
	want = append(append(want, rows...), "nine", "ten")
	docs, stats := walkAll(t, InputOptions{Paths: []string{dir}})
	same(t, "folder", docs, want)
	if stats.Binary != 2 || stats.Empty != 2*8 || stats.Files != 8 || stats.Documents != int64(len(want)) {
		t.Fatalf("stats %+v", stats)
	}
	docs, _ = walkAll(t, InputOptions{Paths: []string{dir + "/1.txt", dir + "/01.txt"}})
	same(t, "order of the paths", docs, []string{"ten", "one"})
	docs, _ = walkAll(t, InputOptions{Paths: []string{dir}, Include: []string{"*.txt"}, Exclude: []string{"09"}})
	same(t, "globs", docs, []string{"one", "ten"})
	docs, _ = walkAll(t, InputOptions{Paths: []string{dir + "/08.bin"}})
	same(t, "named binary file", docs, []string{"\x00"})
}

func TestWalkParquetColumn(t *testing.T) {
	pq, _ := parquetFile(t, 9)
	dir := writeTree(t, map[string]string{"a.parquet": pq})
	docs, _ := walkAll(t, InputOptions{Paths: []string{dir}, Column: "body"})
	if len(docs) != 9 || docs[8] != "body 8" {
		t.Fatalf("got %q", docs)
	}
	for column, want := range map[string]string{"nope": "it has id, text, body", "id": "want strings", "tags.list.element": "lists"} {
		_, err := Walk(context.Background(), InputOptions{Paths: []string{dir}, Column: column, SkipBad: true},
			func(Document) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a.parquet") {
			t.Errorf("column %q: %v, want an error with %q", column, err, want)
		}
	}
}

func TestWalkStdin(t *testing.T) {
	pq, rows := parquetFile(t, 12)
	for _, c := range []struct {
		content, format string
		want            []string
	}{
		{"text", "", []string{"text"}}, {gzipped(t, "packed"), "text", []string{"packed"}},
		{zstded(t, "{\"text\":\"line\"}"), "jsonl", []string{"line"}}, {pq, "parquet", rows},
	} {
		docs, _ := walkAll(t, InputOptions{Paths: []string{"-"}, Stdin: strings.NewReader(c.content), StdinFormat: c.format})
		same(t, "standard input as "+c.format, docs, c.want)
	}
}

func TestWalkErrors(t *testing.T) {
	pq, _ := parquetFile(t, 30)
	long := gzipped(t, prose(4, 100_000))
	dir := writeTree(t, map[string]string{
		"cut.txt.gz": long[:len(long)/2], "flip.txt.gz": long[:len(long)-6] + "!" + long[len(long)-5:], "no.gz": "plain",
		"cut.jsonl.zst": zstded(t, strings.Repeat("{\"text\":\"x\"}\n", 9))[:20], "no.zst": "plain",
		"cut.parquet": pq[:len(pq)/2], "no.parquet": "plain text", "empty.txt": "", "x.zip": "PK",
	})
	for path, want := range map[string]string{
		"cut.txt.gz": "broken gzip data: unexpected EOF", "flip.txt.gz": "broken gzip data", "no.gz": "broken gzip data",
		"cut.jsonl.zst": ":1: broken zstd data", "no.zst": "broken zstd data", "cut.parquet": "parquet: ", "no.parquet": "parquet: ",
		"empty.txt": "no text in", "x.zip": "unpack it", "missing": "no such file", "": "no text in",
	} {
		opt := InputOptions{Paths: []string{filepath.Join(dir, path)}}
		if path == "" {
			opt = InputOptions{Paths: []string{dir}, Include: []string{"empty.*"}}
		}
		_, err := Walk(context.Background(), opt, func(Document) error { return nil })
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("%q: got %v, want an error with %q", path, err, want)
		}
	}
	// Broken files are skipped on request; the text before a break is kept.
	docs, stats := walkAll(t, InputOptions{Paths: []string{dir}, SkipBad: true})
	if stats.Bad != 7 || len(docs) == 0 || !strings.HasPrefix(prose(4, 100_000), docs[0]) {
		t.Errorf("skip-bad: %+v", stats)
	}
	for _, opt := range []InputOptions{{}, {Paths: []string{dir}, Include: []string{"*.none"}}, {Paths: []string{"-"}, StdinFormat: "xml"}} {
		if _, err := Walk(context.Background(), opt, func(Document) error { return nil }); err == nil {
			t.Errorf("%+v was accepted", opt)
		}
	}
}

func TestWalkStopsAndCancels(t *testing.T) {
	dir := writeTree(t, map[string]string{"a.txt": "a", "b.txt": "b"})
	n := 0
	stats, err := Walk(context.Background(), InputOptions{Paths: []string{dir}}, func(Document) error { n++; return Stop })
	if err != nil || n != 1 || stats.Documents != 1 {
		t.Fatalf("Stop: %d documents, %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if _, err = Walk(ctx, InputOptions{Paths: []string{dir}}, func(Document) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled: %v", err)
	}
}

func TestWalkNoticesChanges(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"grown": func(path string) error { return os.WriteFile(path, []byte("longer than before"), 0o666) },
		"touched": func(path string) error {
			return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))
		},
		"replaced": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path+".new", []byte("a"), 0o666); err != nil {
				return err
			}
			if err := os.Chtimes(path+".new", info.ModTime(), info.ModTime()); err != nil {
				return err
			}
			return os.Rename(path+".new", path)
		},
	} {
		dir := writeTree(t, map[string]string{"a.txt": "a"})
		_, err := Walk(context.Background(), InputOptions{Paths: []string{dir}, SkipBad: true}, func(Document) error {
			return change(filepath.Join(dir, "a.txt"))
		})
		if !errors.Is(err, errChanged) {
			t.Errorf("%s: got %v, want an error that says so", name, err)
		}
	}
}

// FuzzParquet damages a file: whatever the library makes of it, there is an error or text, never a panic.
func FuzzParquet(f *testing.F) {
	f.Add(uint(10), byte(1), uint(0))
	f.Add(uint(300), byte(255), uint(5))
	f.Fuzz(func(t *testing.T, at uint, flip byte, cut uint) {
		pq, _ := parquetFile(t, 20)
		b := []byte(pq)
		b[at%uint(len(b))] ^= flip
		b = b[:uint(len(b))-cut%uint(len(b))]
		opt := InputOptions{Paths: []string{"-"}, Stdin: bytes.NewReader(b), StdinFormat: "parquet"}
		n := 0
		_, err := Walk(context.Background(), opt, func(Document) error { n++; return nil })
		if err == nil && n == 0 {
			t.Fatal("neither text nor an error")
		}
	})
}
