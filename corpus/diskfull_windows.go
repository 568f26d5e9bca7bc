package corpus

import (
	"errors"
	"syscall"
)

// isDiskFull recognizes ERROR_DISK_FULL and ERROR_HANDLE_DISK_FULL.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.Errno(112)) || errors.Is(err, syscall.Errno(39))
}
