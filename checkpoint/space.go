package checkpoint

import (
	"fmt"
	"path/filepath"
)

// freeBytes reports the space that an ordinary user may fill on the disk that
// holds dir; ok is false where the platform does not tell. Tests replace it.
var freeBytes = diskFree

// FreeBytes reports the space that an ordinary user may fill on the disk that
// holds dir; ok is false where the platform does not tell.
func FreeBytes(dir string) (sizeBytes int64, ok bool) { return freeBytes(dir) }

// SpaceError says that a file did not fit on its disk.
type SpaceError struct {
	Path      string // the file
	NeedBytes int64  // its size, 0 if unknown
	HaveBytes int64  // free on the disk, -1 if unknown
	Err       error  // the operating system's error, nil if the check before the save found out
}

func (e *SpaceError) Error() string {
	s := fmt.Sprintf("save %s: the disk is full", e.Path)
	switch {
	case e.NeedBytes > 0 && e.HaveBytes >= 0:
		s = fmt.Sprintf("save %s: it needs %s, the disk has %s free", e.Path, size(e.NeedBytes), size(e.HaveBytes))
	case e.NeedBytes > 0:
		s += fmt.Sprintf(", it needs %s", size(e.NeedBytes))
	}
	return s + "; nothing was changed: free some space, keep fewer checkpoints, or save to another disk"
}

// Unwrap returns the operating system's error.
func (e *SpaceError) Unwrap() error { return e.Err }

// checkSpace fails with a *SpaceError when needBytes do not fit beside path.
func checkSpace(path string, needBytes int64) error {
	have, ok := freeBytes(filepath.Dir(path))
	if ok && have < needBytes {
		return &SpaceError{path, needBytes, have, nil}
	}
	return nil
}

// saveError says which file could not be saved; a full disk becomes a
// *SpaceError. nil stays nil.
func saveError(path string, needBytes int64, err error) error {
	if err == nil {
		return nil
	}
	if isDiskFull(err) {
		have, ok := freeBytes(filepath.Dir(path))
		if !ok {
			have = -1
		}
		return &SpaceError{path, needBytes, have, err}
	}
	return fmt.Errorf("save %s: %w", path, err)
}

// size writes a number of bytes for people, in powers of ten.
func size(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d bytes", n)
}
