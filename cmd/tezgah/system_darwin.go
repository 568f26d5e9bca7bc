package main

import (
	"errors"
	"os"
	"syscall"
)

// dataDir is where programs keep a user's data.
func dataDir() (string, error) { return os.UserConfigDir() }

// screenHere reports whether there is a screen to open a browser on.
func screenHere() bool { return os.Getenv("SSH_CONNECTION") == "" }

// browserCommand shows a URL in the user's browser.
func browserCommand(url string) (string, []string) { return "open", []string{url} }

// addressInUse reports whether another program listens there.
func addressInUse(err error) bool { return errors.Is(err, syscall.EADDRINUSE) }
