package main

import (
	"errors"
	"os"
	"syscall"
)

// dataDir is where programs keep a user's data: the folder that does not roam,
// because models are large.
func dataDir() (string, error) { return os.UserCacheDir() }

// screenHere reports whether there is a screen to open a browser on.
func screenHere() bool { return os.Getenv("SSH_CONNECTION") == "" }

// browserCommand shows a URL in the user's browser.
func browserCommand(url string) (string, []string) {
	return "rundll32", []string{"url.dll,FileProtocolHandler", url}
}

// addressInUse reports whether another program listens there (WSAEADDRINUSE).
func addressInUse(err error) bool { return errors.Is(err, syscall.Errno(10048)) }
