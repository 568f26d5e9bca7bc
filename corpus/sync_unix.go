//go:build unix

package corpus

import "os"

// syncFolder makes renames in a folder survive a crash.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
