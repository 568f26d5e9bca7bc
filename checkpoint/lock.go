package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// lockName is the file in a run folder that its writer holds locked. It stays
// after the run: removing it would let two processes lock two files, which does
// no harm only in a folder without a run (see Discard).
const lockName = "run.lock"

// RunLock is the exclusive right to write to a run folder. It must be kept for
// as long as the folder is written to: one that is forgotten unlocks when the
// garbage collector finds it.
type RunLock struct {
	f               *os.File
	newFile, newDir bool // made by Lock
}

// holder is the content of the lock file, for messages only: what counts is
// the operating system's lock, which ends with the process that holds it.
type holder struct {
	PID   int       `json:"pid"`
	Host  string    `json:"host"`
	Since time.Time `json:"since"`
}

// LockedError says that another process is writing to a run folder.
type LockedError struct {
	Path  string // the run folder
	PID   int    // 0 when the lock file could not be read
	Host  string
	Since time.Time
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d on %s (since %s)", e.PID, e.Host, e.Since.Local().Format(time.DateTime))
	}
	return fmt.Sprintf("run folder %s is in use by %s; wait for it, stop it, or choose another --out", e.Path, who)
}

// Lock takes the run folder for this process, making it if need be, and
// removes temporary files that killed processes left there. When another
// process has it, the error is a *LockedError. The lock ends with Unlock or
// with the process, however that ends. It is advisory, and where the platform
// has no file locks it always succeeds. In a browser it holds within the tab.
func Lock(run string) (*RunLock, error) {
	path := filepath.Join(run, lockName)
	newDir, newFile := !exists(run), !exists(path)
	if err := os.MkdirAll(run, 0o777); err != nil {
		return nil, fmt.Errorf("run folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("lock run folder: %w", err)
	}
	free, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock run folder %s: %w; its file system may not support locks, use another one", run, err)
	}
	if !free {
		defer f.Close()
		var h holder
		b, _ := io.ReadAll(io.LimitReader(f, 4096))
		_ = json.Unmarshal(b, &h) // unreadable: the message does without
		return nil, &LockedError{run, h.PID, h.Host, h.Since}
	}
	removeTemps(run, "")
	host, _ := os.Hostname()
	b, err := json.Marshal(holder{os.Getpid(), host, time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = rewrite(f, append(b, '\n'))
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock run folder %s: %w", run, err)
	}
	return &RunLock{f, newFile, newDir}, nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func rewrite(f *os.File, b []byte) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt(b, 0)
	return err
}

// Discard is Unlock for a run that did not come about: what Lock made, the lock
// file and the folder, is removed, unless something else lies in the folder.
func (l *RunLock) Discard() error {
	if !l.newFile {
		return l.Unlock()
	}
	var errs []error
	remove := func() { errs = append(errs, os.Remove(l.f.Name())) }
	if canDeleteOpen { // nobody else can lock the file before it is gone
		remove()
	}
	errs = append(errs, l.f.Close())
	if !canDeleteOpen {
		remove()
	}
	if l.newDir {
		_ = os.Remove(filepath.Dir(l.f.Name())) // refused where it is not empty
	}
	return errors.Join(errs...)
}

// Unlock gives the folder back. The lock file stays, empty.
func (l *RunLock) Unlock() error {
	err := l.f.Truncate(0)
	if e := l.f.Close(); err == nil {
		err = e
	}
	return err
}
