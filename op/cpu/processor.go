package cpu

import "runtime"

// unnamedProcessor is what is known of a processor on every platform.
func unnamedProcessor() string { return runtime.GOOS + "/" + runtime.GOARCH + " processor" }
