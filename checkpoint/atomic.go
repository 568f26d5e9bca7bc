package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// tempMark is in the name of every temporary file:
// ".NAME.tezgah-tmp-RANDOM" becomes "NAME".
const tempMark = ".tezgah-tmp-"

// atomicFile is a file on its way to its final name. While it is being written
// it is locked, so that a stale one can be told from a living one.
type atomicFile struct {
	f     *os.File
	final string
}

// createAtomic makes an empty temporary file beside path, after removing those
// that killed processes left there for the same path.
func createAtomic(path string) (*atomicFile, error) {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return nil, fmt.Errorf("save %s: there is something that is not a regular file; choose another name", path)
	}
	dir, base := filepath.Split(path)
	removeTemps(dir, base)
	for {
		name := filepath.Join(dir, fmt.Sprintf(".%s%s%016x", base, tempMark, rand.Uint64()))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("save %s: %w", path, err)
		}
		a := &atomicFile{f, path}
		if _, err := tryLock(f); err != nil {
			a.abort()
			return nil, fmt.Errorf("save %s: %w", path, err)
		}
		if a.lost() { // another process cleaned up between create and lock
			f.Close()
			continue
		}
		return a, nil
	}
}

// lost reports whether the temporary name no longer leads to the open file.
func (a *atomicFile) lost() bool {
	here, err1 := a.f.Stat()
	there, err2 := os.Stat(a.f.Name())
	return err1 != nil || err2 != nil || !os.SameFile(here, there)
}

// commit makes the file durable and gives it its final name. On an error the
// file that was there before is untouched and the temporary one is removed.
func (a *atomicFile) commit() error {
	temp := a.f.Name()
	if err := a.f.Sync(); err != nil {
		a.abort()
		return err
	}
	if err := a.f.Close(); err != nil {
		os.Remove(temp)
		return err
	}
	if err := os.Rename(temp, a.final); err != nil {
		os.Remove(temp)
		return err
	}
	return syncDir(filepath.Dir(a.final))
}

// abort gives the file up.
func (a *atomicFile) abort() {
	a.f.Close()
	os.Remove(a.f.Name())
}

// WriteFileAtomic writes what write produces to path: to a temporary file in
// the same folder first, which is flushed to the disk and then renamed, the
// folder flushed too. Whatever happens, path has either its old content or the
// whole new one. When write fails, its error is returned and path is as it was.
func WriteFileAtomic(path string, write func(io.Writer) error) error {
	a, err := createAtomic(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(a.f, 1<<16)
	err = write(b)
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		a.abort()
		return saveError(path, 0, err)
	}
	return saveError(path, 0, a.commit())
}

// WriteBytesAtomic is WriteFileAtomic for content that lies in memory.
func WriteBytesAtomic(path string, content []byte) error {
	return WriteFileAtomic(path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// removeTemps removes the temporary files for base in dir ("" for all of them)
// that no living process is writing. It is a clean-up: what it cannot remove
// does no harm.
func removeTemps(dir, base string) {
	if dir == "" {
		dir = "."
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range files {
		name, _, ok := strings.Cut(e.Name(), tempMark)
		if !ok || !e.Type().IsRegular() || !strings.HasPrefix(name, ".") || base != "" && name != "."+base {
			continue
		}
		removeStale(filepath.Join(dir, e.Name()))
	}
}

func removeStale(path string) {
	if !hasLocks {
		return
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	free, err := tryLock(f)
	switch {
	case err != nil || !free:
		f.Close()
	case canDeleteOpen:
		os.Remove(path)
		f.Close()
	default:
		f.Close()
		os.Remove(path)
	}
}
