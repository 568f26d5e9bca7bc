//go:build !darwin && !windows

package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// dataDir is where programs keep a user's data (XDG Base Directory
// Specification).
func dataDir() (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".local", "share"), err
}

// screenHere reports whether there is a screen to open a browser on.
func screenHere() bool { return os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != "" }

// browserCommand shows a URL in the user's browser.
func browserCommand(url string) (string, []string) { return "xdg-open", []string{url} }

// addressInUse reports whether another program listens there.
func addressInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
