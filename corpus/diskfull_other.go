//go:build !windows

package corpus

import (
	"errors"
	"syscall"
)

// isDiskFull tells that a device or the user's share of it is full.
func isDiskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
