package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFullDisk fills a real file system of 256 KiB: the first save fits, the
// next does not and must leave it alone.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	defer unix.Unmount(dir, 0)
	path := filepath.Join(dir, "model.llm")
	h, w, m := sample()
	if err := SaveLLM(path, h, w, m); err != nil {
		t.Fatal(err)
	}
	big := Float32s("big", []int{100_000}, make([]float32, 100_000))
	err := SaveLLM(path, h, append(w, big), m)
	var space *SpaceError
	if !errors.As(err, &space) || space.Err != nil || space.HaveBytes > 256<<10 || space.NeedBytes < 400_000 {
		t.Errorf("the check before the save gave %v", err)
	}
	// The same when the disk fills up after the check, and for small files.
	defer func(f func(string) (int64, bool)) { freeBytes = f }(freeBytes)
	freeBytes = func(string) (int64, bool) { return 1 << 40, true }
	err = SaveLLM(path, h, append(w, big), m)
	if !errors.As(err, &space) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("the save gave %v", err)
	}
	err = WriteFileAtomic(path, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 400_000))
		return err
	})
	if !errors.As(err, &space) || !errors.Is(err, unix.ENOSPC) {
		t.Errorf("WriteFileAtomic gave %v", err)
	}
	if err := verifyFile(path); err != nil {
		t.Error(err)
	}
	if names := folder(t, dir); len(names) != 1 {
		t.Errorf("folder has %q", names)
	}
}

func init() {
	// limited saves a file larger than the process may write.
	jobs["limited"] = func(dir string) error {
		signal.Ignore(unix.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}); err != nil {
			return err
		}
		h, w, m := sample()
		big := Float32s("big", []int{100_000}, make([]float32, 100_000))
		err := SaveLLM(filepath.Join(dir, "model.llm"), h, append(w, big), m)
		if !errors.Is(err, unix.EFBIG) {
			return fmt.Errorf("the save gave %v, want EFBIG", err)
		}
		os.Stdout.WriteString("\n")
		return nil
	}
}

// TestFailingWrites makes the operating system refuse a write half way.
func TestFailingWrites(t *testing.T) {
	dir := t.TempDir()
	h, w, m := sample()
	path := filepath.Join(dir, "model.llm")
	if err := SaveLLM(path, h, w, m); err != nil {
		t.Fatal(err)
	}
	if err := startJob(t, "limited", dir).Wait(); err != nil {
		t.Error(err)
	}
	if err := verifyFile(path); err != nil {
		t.Error(err)
	}
	if names := folder(t, dir); len(names) != 1 {
		t.Errorf("folder has %q", names)
	}
}
