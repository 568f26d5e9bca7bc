//go:build (linux || windows || darwin) && (amd64 || arm64)

package gpu

import (
	"slices"
	"testing"
)

func TestDropWorkgroupInit(t *testing.T) {
	ins := func(op uint32, operands ...uint32) []uint32 {
		return append([]uint32{uint32(len(operands)+1)<<16 | op}, operands...)
	}
	head := []uint32{0x07230203, 0x10300, 0, 99, 0}
	shared, private := ins(opVariable, 1, 10, storageWorkgroup), ins(opVariable, 1, 11, 6)
	null := ins(opConstantNull, 2, 20)
	keep := [][]uint32{head, null, shared, private, ins(opStore, 11, 20), ins(opStore, 10, 21), ins(253)}
	all := slices.Concat(head, null, shared, private, ins(opStore, 10, 20), ins(opStore, 11, 20), ins(opStore, 10, 21), ins(253))
	if got, want := dropWorkgroupInit(all), slices.Concat(keep...); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	for _, broken := range [][]uint32{{}, {1, 2}, slices.Concat(head, []uint32{0}), slices.Concat(head, []uint32{9 << 16})} {
		if got := dropWorkgroupInit(broken); !slices.Equal(got, broken) {
			t.Errorf("%x became %x, want it unchanged", broken, got)
		}
	}
}
