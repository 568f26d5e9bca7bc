//go:build !linux && !darwin && !freebsd && !windows

package checkpoint

import (
	"errors"
	"syscall"
)

func diskFree(string) (freeBytes int64, ok bool) { return 0, false }

func isDiskFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }
