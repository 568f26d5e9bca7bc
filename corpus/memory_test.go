package corpus

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"testing"
)

// endless makes n bytes of text: one line of words without end, or jsonl.
type endless struct {
	n     int
	line  []byte
	at    int
	count int
	jsonl bool
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n <= 0 && e.at == len(e.line) {
		return 0, io.EOF
	}
	if e.at == len(e.line) {
		e.at, e.line = 0, e.line[:0]
		for range 1000 {
			e.count++
			if e.jsonl {
				e.line = fmt.Appendf(e.line, "{\"text\":\"document number %d, not so long\"}\n", e.count)
			} else {
				e.line = fmt.Appendf(e.line, "word %d and more of them ", e.count)
			}
		}
	}
	n := copy(p, e.line[e.at:])
	e.at += n
	e.n -= n
	return n, nil
}

// TestBuildMemoryIsBounded: the heap of a build does not grow with the text, be it one document or a million.
func TestBuildMemoryIsBounded(t *testing.T) {
	const text = 40 << 20
	for _, format := range []string{"text", "jsonl"} {
		var before, now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		var most uint64
		opt := BuildOptions{Input: InputOptions{Paths: []string{"-"}, StdinFormat: format, Stdin: &endless{n: text, jsonl: format == "jsonl"}},
			Tokenizer: narrow, Threads: 2, Out: filepath.Join(t.TempDir(), "o.bin")}
		jobs := 0
		opt.written = func() error {
			if jobs++; jobs%16 == 0 {
				runtime.ReadMemStats(&now)
				most = max(most, now.HeapInuse)
			}
			return nil
		}
		r, err := Build(context.Background(), opt)
		if err != nil {
			t.Fatal(err)
		}
		// Six jobs of a quarter of a MiB hold that much text, twice as much in tokens and four times in ids, a job buffer
		// grows by doubling, and the collector lets the heap double: under 64 MiB even on a busy machine. Tokens and text are 120 MiB.
		if grown := int64(most) - int64(before.HeapInuse); grown > 64<<20 || jobs < 80 {
			t.Errorf("%s: the heap grew by %d MiB over %d MiB of text in %d jobs", format, grown>>20, r.TextBytes>>20, jobs)
		}
	}
}
