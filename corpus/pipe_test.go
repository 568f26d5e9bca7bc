//go:build unix

package corpus

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestWalkPipe: a pipe under a name, such as the shell makes for <(command), is read like standard input.
func TestWalkPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip("no named pipes here:", err)
	}
	content := gzipped(t, "through a pipe")
	go os.WriteFile(path, []byte(content), 0)
	docs, _ := walkAll(t, InputOptions{Paths: []string{path}})
	same(t, "pipe", docs, []string{"through a pipe"})
}
