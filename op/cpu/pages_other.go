//go:build !linux

package cpu

// mapPages has no pages of its own to offer here.
func mapPages(int) []byte { return nil }

func unmapPages([]byte) {}
