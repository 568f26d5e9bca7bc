package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A log of many lines, and of lines longer than the buffer, is read to its end.
func TestLogFileReadsLongLogs(t *testing.T) {
	for _, tc := range []struct{ lines, width int }{{1, 10}, {5000, 60}, {3000, 64}, {3, 300_000}} {
		path := filepath.Join(t.TempDir(), "log.jsonl")
		var b strings.Builder
		for i := range tc.lines {
			fmt.Fprintf(&b, "{%q:%d}\n", strings.Repeat("x", tc.width), i)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		l := &logFile{path: path}
		seen := 0
		err := l.grow(func() { t.Error("a first read is no restart") }, func(n int, line []byte) {
			seen++
			if n != seen || len(line) < tc.width {
				t.Fatalf("line %d has number %d and %d bytes", seen, n, len(line))
			}
		})
		if err != nil || seen != tc.lines {
			t.Errorf("%d lines of %d bytes: read %d, error %v", tc.lines, tc.width, seen, err)
		}
	}
}
