//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package corpus

import (
	"fmt"
	"os"
	"syscall"
)

// lockOutput keeps two builds from writing the same output. The lock goes with the process, even when it is killed.
func lockOutput(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if err == syscall.EWOULDBLOCK {
			return nil, fmt.Errorf("another build is writing this output: wait for it or choose another name")
		}
		return func() {}, nil // a file system without locks
	}
	return func() {
		os.Remove(path)
		f.Close()
	}, nil
}
