//go:build linux || darwin || freebsd

package checkpoint

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

func diskFree(dir string) (freeBytes int64, ok bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	blocks := max(int64(st.Bavail), 0) // below zero when only root's reserve is left
	block := int64(st.Bsize)
	if block > 0 && blocks > math.MaxInt64/block {
		return math.MaxInt64, true
	}
	return blocks * block, true
}

func isDiskFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
