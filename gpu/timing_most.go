//go:build !js

package gpu

// MaxTimed is the most dispatches that can be timed at once.
const MaxTimed = 16384
