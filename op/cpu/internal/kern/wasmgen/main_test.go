package main

import (
	"bytes"
	"os"
	"testing"
)

// TestGenerated wants the committed modules, byte for byte.
func TestGenerated(t *testing.T) {
	for name, got := range modules() {
		if want, err := os.ReadFile("../" + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the generator writes (%v); run go generate", name, err)
		}
	}
}

// TestConstants checks the encoding of signed numbers at its edges (LEB128,
// core specification 5.2.2).
func TestConstants(t *testing.T) {
	for n, want := range map[int32][]byte{
		0: {0}, 63: {63}, 64: {0xc0, 0}, -1: {0x7f}, -64: {0x40}, -65: {0xbf, 0x7f}, 128: {0x80, 1}, 1 << 30: {0x80, 0x80, 0x80, 0x80, 4},
	} {
		f := &function{}
		f.i(n)
		if got := f.code[1:]; !bytes.Equal(got, want) {
			t.Errorf("%d is encoded as % x, want % x", n, got, want)
		}
	}
}
