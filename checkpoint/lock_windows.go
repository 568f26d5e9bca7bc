package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Windows refuses to remove a file that this process has open, and equally one
// that another has, so no lock is needed while removing.
const (
	hasLocks      = true
	canDeleteOpen = false
)

// tryLock takes the exclusive lock of an open file without waiting, and
// reports whether it was free. The lock ends when the file is closed. Windows
// locks are mandatory, so the locked byte lies far beyond the content, which
// others may then still read.
func tryLock(f *os.File) (free bool, err error) {
	far := windows.Overlapped{OffsetHigh: 1 << 30}
	err = windows.LockFileEx(windows.Handle(f.Fd()),
		windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &far)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, windows.ERROR_LOCK_VIOLATION), errors.Is(err, windows.ERROR_IO_PENDING):
		return false, nil
	}
	return false, err
}

// syncDir does nothing: Windows has no flush of a folder, and NTFS journals
// renames.
func syncDir(string) error { return nil }
