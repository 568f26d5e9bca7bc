//go:build unix && !aix && !solaris && !illumos

package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A file can be removed while it is open, so that the lock on a stale one can
// be held until it is gone.
const (
	hasLocks      = true
	canDeleteOpen = true
)

// tryLock takes the exclusive lock of an open file without waiting, and
// reports whether it was free. The lock ends when the file is closed.
func tryLock(f *os.File) (free bool, err error) {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, unix.EINTR):
			return false, err
		}
	}
}

// syncDir flushes a folder, so that a rename in it survives a power cut. Some
// file systems cannot, and say EINVAL.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}
