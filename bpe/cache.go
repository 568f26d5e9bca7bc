package bpe

import (
	"encoding/binary"
	"math/bits"
)

// wordCache remembers the ids of recent pre-tokens. Natural text repeats a few thousand words most of the time, so that
// most pre-tokens cost one look-up instead of their merges. Its two tables have a fixed size, so memory is bounded and
// nothing is ever cleared: one for short words, in which a set of two entries fills one cache line of 64 bytes, and one
// for the rest. Both are two-way set-associative with the newer entry first.
type wordCache struct {
	short []shortSet
	long  []longSet
}

const (
	maxShortBytes  = 15 // longest pre-token in the short table
	maxShortIDs    = 3
	maxCachedBytes = 31 // longest pre-token in the long table
	maxCachedIDs   = 7

	smallText           = 1 << 12 // bytes; for less text the small tables do
	smallSets           = 1 << 6
	shortSets, longSets = 1 << 15, 1 << 13 // 2 MiB and 1 MiB
)

// wordKey is a pre-token of at most 31 bytes, padded with zeros, and its length in the last byte.
type wordKey [4]uint64

// shortKey is a pre-token of at most 15 bytes, padded with zeros, and its length in the last byte.
type shortKey [2]uint64

type shortEntry struct {
	key   shortKey
	ids   [maxShortIDs]int32
	count uint32
}

type longEntry struct {
	key   wordKey
	ids   [maxCachedIDs]int32
	count uint32
}

type (
	shortSet [2]shortEntry
	longSet  [2]longEntry
)

// ready makes the tables, or larger ones, for a text of n bytes.
func (c *wordCache) ready(n int) {
	short, long := smallSets, smallSets
	if n > smallText {
		short, long = shortSets, longSets
	}
	if len(c.short) < short {
		c.short, c.long = make([]shortSet, short), make([]longSet, long)
	}
}

// lowBytes[n] keeps the first n of 32 bytes that were read as four words.
var lowBytes = func() (masks [33]wordKey) {
	for n := range masks {
		var b [32]byte
		for i := range n {
			b[i] = 0xff
		}
		for w := range masks[n] {
			masks[n][w] = binary.LittleEndian.Uint64(b[8*w:])
		}
	}
	return masks
}()

// shortKeyOf makes the key of text[i:end], which has 1 to 15 bytes.
func shortKeyOf(text []byte, i, end int) shortKey {
	n := uint(end-i) % 16
	if i+16 > len(text) {
		var b [16]byte
		copy(b[:], text[i:end])
		return shortKey{binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint64(b[8:]) | uint64(n)<<56}
	}
	b, mask := (*[16]byte)(text[i:]), &lowBytes[n]
	return shortKey{binary.LittleEndian.Uint64(b[:]) & mask[0],
		binary.LittleEndian.Uint64(b[8:])&mask[1] | uint64(n)<<56}
}

// longKeyOf makes the key of text[i:end], which has 1 to 31 bytes.
func longKeyOf(text []byte, i, end int) (key wordKey) {
	var b [32]byte
	copy(b[:], text[i:end])
	b[31] = byte(end - i)
	for w := range key {
		key[w] = binary.LittleEndian.Uint64(b[8*w:])
	}
	return key
}

// mix multiplies two words into 128 bits and folds them (as in wyhash).
func mix(a, b uint64) uint64 {
	high, low := bits.Mul64(a^0xa0761d6478bd642f, b^0xe7037ed1a0b428db)
	return high ^ low
}

// shortSet returns the set to which key belongs.
func (c *wordCache) shortSet(key shortKey) *shortSet {
	return &c.short[mix(key[0], key[1])&uint64(len(c.short)-1)]
}

// longSet returns the set to which key belongs.
func (c *wordCache) longSet(key *wordKey) *longSet {
	return &c.long[mix(mix(key[0], key[1]), mix(key[2], key[3]))&uint64(len(c.long)-1)]
}

// find returns the entry of key, or nil.
func (s *shortSet) find(key shortKey) *shortEntry {
	if s[0].key == key {
		return &s[0]
	}
	if s[1].key == key {
		return &s[1]
	}
	return nil
}

func (s *longSet) find(key *wordKey) *longEntry {
	if s[0].key == *key {
		return &s[0]
	}
	if s[1].key == *key {
		return &s[1]
	}
	return nil
}

// put enters key in first place and moves the entry that was there to the second. ids must fit.
func (s *shortSet) put(key shortKey, ids []int32) {
	s[1] = s[0]
	s[0].key, s[0].count = key, uint32(len(ids))
	copy(s[0].ids[:], ids)
}

func (s *longSet) put(key *wordKey, ids []int32) {
	s[1] = s[0]
	s[0].key, s[0].count = *key, uint32(len(ids))
	copy(s[0].ids[:], ids)
}
