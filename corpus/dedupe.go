package corpus

import "encoding/binary"

// hashSet is a set of 128-bit hashes: open addressing with linear probing, 16 bytes a slot, at most three quarters
// full. A Go map would take about twice the memory, and a corpus has tens of millions of documents.
type hashSet struct {
	slots [][2]uint64 // a power of two of them; {0, 0} is an empty one
	used  int
}

// add puts a hash into the set and tells whether it was there before.
func (s *hashSet) add(sum [16]byte) (found bool) {
	key := [2]uint64{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
	if key == [2]uint64{} {
		key[0] = 1 // an all-zero hash must not look like an empty slot
	}
	if 4*(s.used+1) > 3*len(s.slots) {
		s.grow()
	}
	slot := s.find(key)
	if *slot == key {
		return true
	}
	*slot = key
	s.used++
	return false
}

// find returns the slot that holds key or would take it.
func (s *hashSet) find(key [2]uint64) *[2]uint64 {
	mask := uint64(len(s.slots) - 1)
	for i := key[0] & mask; ; i = (i + 1) & mask {
		if slot := &s.slots[i]; *slot == key || *slot == [2]uint64{} {
			return slot
		}
	}
}

func (s *hashSet) grow() {
	old := s.slots
	s.slots = make([][2]uint64, max(1024, 2*len(old)))
	for _, key := range old {
		if key != [2]uint64{} {
			*s.find(key) = key
		}
	}
}
