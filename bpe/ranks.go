package bpe

import "math/bits"

// noRank marks a pair that no merge joins. It is larger than every rank.
const noRank = ^uint32(0)

// rankTable maps a pair of ids to the rank of its merge: open addressing with linear probing, at most half full, built
// once and then only read.
type rankTable struct {
	slots []rankSlot
	shift uint
}

type rankSlot struct {
	pair uint64 // left id in the high half, right id in the low half
	rank uint32 // noRank: empty
}

// pairKey packs a pair of ids into one word; comparing keys compares pairs by left id, then by right id.
func pairKey(left, right int32) uint64 {
	return uint64(uint32(left))<<32 | uint64(uint32(right))
}

// hashPair spreads a pair key over 64 bits (Fibonacci hashing; the constants are 2⁶⁴/φ and an odd number from Steele
// et al. 2014, splitmix64).
func hashPair(key uint64) uint64 {
	key ^= key >> 29
	key *= 0xbf58476d1ce4e5b9
	key ^= key >> 32
	return key * 0x9e3779b97f4a7c15
}

// newRankTable indexes merges by rank. A pair that occurs twice keeps its later rank, as in Hugging Face tokenizers.
func newRankTable(merges [][2]int32) rankTable {
	logSize := max(4, bits.Len(uint(2*len(merges))))
	t := rankTable{slots: make([]rankSlot, 1<<logSize), shift: uint(64 - logSize)}
	for i := range t.slots {
		t.slots[i].rank = noRank
	}
	for rank, m := range merges {
		if m[0] < 0 {
			continue // a merge of tokens outside the byte alphabet, which bytes never reach
		}
		slot := t.find(pairKey(m[0], m[1]))
		*slot = rankSlot{pairKey(m[0], m[1]), uint32(rank)}
	}
	return t
}

func (t *rankTable) find(key uint64) *rankSlot {
	mask := len(t.slots) - 1
	for i := int(hashPair(key)>>t.shift) & mask; ; i = (i + 1) & mask {
		s := &t.slots[i]
		if s.rank == noRank || s.pair == key {
			return s
		}
	}
}

// rank returns the rank of the merge of left and right, or noRank.
func (t *rankTable) rank(left, right int32) uint32 {
	return t.find(pairKey(left, right)).rank
}
