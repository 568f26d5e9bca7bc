//go:build !linux && !darwin && !windows && !js

package cpu

// availableBytes is unknown here; an allocation that cannot be had ends in the
// run-time system's own error.
func availableBytes() int64 { return 0 }

func processorName() string { return unnamedProcessor() }
