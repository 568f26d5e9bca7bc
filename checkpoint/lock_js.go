package checkpoint

import (
	"os"
	"sync"
	"syscall"
)

// A browser tab is one process: the locks of a page live in its memory, and
// end with it. (That two tabs do not share the files is up to the page.)
const (
	hasLocks      = true
	canDeleteOpen = true
)

// locked holds the files that are locked, by their inode. A file that was
// closed no longer counts.
var locked struct {
	mu    sync.Mutex
	files map[uint64]*os.File
}

// tryLock takes the exclusive lock of an open file, and reports whether it was
// free. The lock ends when the file is closed.
func tryLock(f *os.File) (free bool, err error) {
	st, err := f.Stat()
	if err != nil {
		return false, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return false, syscall.ENOSYS
	}
	locked.mu.Lock()
	defer locked.mu.Unlock()
	for ino, holder := range locked.files {
		if isClosed(holder) {
			delete(locked.files, ino)
		}
	}
	if holder := locked.files[sys.Ino]; holder != nil && holder != f {
		return false, nil
	}
	if locked.files == nil {
		locked.files = map[uint64]*os.File{}
	}
	locked.files[sys.Ino] = f
	return true, nil
}

// isClosed tells by the descriptor, which Fd makes −1 for a closed file.
func isClosed(f *os.File) bool { return f.Fd() == ^uintptr(0) }

// syncDir does nothing: the browser has no flush of a folder.
func syncDir(string) error { return nil }
