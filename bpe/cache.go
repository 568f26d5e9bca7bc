package bpe

import (
	"encoding/binary"
	"math/bits"
)

// wordCache remembers the ids of recent pre-tokens. Natural text repeats a few thousand words most of the time, so that
// nearly every pre-token costs one look-up instead of its merges. The table has a fixed size (4 MiB) and is two-way
// set-associative with the newer entry first: memory is bounded and nothing needs to be cleared.
type wordCache struct {
	sets []cacheSet
}

const (
	maxCachedBytes = 31 // longest pre-token that is cached
	maxCachedIDs   = 7
	smallSets      = 1 << 8  // for calls with little text
	largeSets      = 1 << 15 // 128 bytes each
	smallText      = 1 << 12 // bytes; beyond it the large table pays
)

// wordKey is a pre-token of at most 31 bytes, padded with zeros, and its length in the last byte.
type wordKey [4]uint64

// cacheEntry fills one cache line of 64 bytes.
type cacheEntry struct {
	key   wordKey
	ids   [maxCachedIDs]int32
	count uint32
}

type cacheSet [2]cacheEntry

// ready makes the table, or a larger one, for a text of n bytes.
func (c *wordCache) ready(n int) {
	want := smallSets
	if n > smallText {
		want = largeSets
	}
	if len(c.sets) < want {
		c.sets = make([]cacheSet, want)
	}
}

// wordKeyOf makes the key of text[i:end], which has 1 to 31 bytes.
func wordKeyOf(text []byte, i, end int) wordKey {
	var key wordKey
	n := end - i
	if i+32 <= len(text) {
		// Read 32 bytes at once and cut off what lies behind the word; far cheaper than copying n bytes.
		b := (*[32]byte)(text[i:])
		key[0] = binary.LittleEndian.Uint64(b[0:]) & lowBytes(n)
		if n > 8 {
			key[1] = binary.LittleEndian.Uint64(b[8:]) & lowBytes(n-8)
			if n > 16 {
				key[2] = binary.LittleEndian.Uint64(b[16:]) & lowBytes(n-16)
				if n > 24 {
					key[3] = binary.LittleEndian.Uint64(b[24:]) & lowBytes(n-24)
				}
			}
		}
	} else {
		var b [32]byte
		copy(b[:], text[i:end])
		for w := range key {
			key[w] = binary.LittleEndian.Uint64(b[8*w:])
		}
	}
	key[3] |= uint64(n) << 56
	return key
}

// lowBytes is a mask of the lowest n bytes, of all for n ≥ 8; n must be positive.
func lowBytes(n int) uint64 {
	if n >= 8 {
		return ^uint64(0)
	}
	return 1<<(8*uint(n)) - 1
}

// slot returns the set in which key belongs. The hash multiplies pairs of words into 128 bits (as in wyhash).
func (c *wordCache) slot(key *wordKey) *cacheSet {
	h1, l1 := bits.Mul64(key[0]^0xa0761d6478bd642f, key[1]^0xe7037ed1a0b428db)
	h2, l2 := bits.Mul64(key[2]^0x8ebc6af09c88c6e3, key[3]^0x589965cc75374cc3)
	h := (h1 ^ l1 ^ h2 ^ l2) * 0x9e3779b97f4a7c15
	return &c.sets[h>>32&uint64(len(c.sets)-1)]
}

// find returns the entry of key, or nil.
func (s *cacheSet) find(key *wordKey) *cacheEntry {
	if s[0].key == *key {
		return &s[0]
	}
	if s[1].key == *key {
		return &s[1]
	}
	return nil
}

// put enters key in first place and moves the entry that was there to the second. Words of more ids than fit are left out.
func (s *cacheSet) put(key *wordKey, ids []int32) {
	if len(ids) > maxCachedIDs {
		return
	}
	s[1] = s[0]
	s[0].key = *key
	s[0].count = uint32(len(ids))
	copy(s[0].ids[:], ids)
}
