package chat

import (
	"crypto/sha256"
	"encoding/binary"

	"tezgah/tensor"
)

// conversationKey is a number that looks random and depends on the messages and the seed alone.
func conversationKey(msgs []Message, seed uint64) uint64 {
	h := sha256.New()
	var n [8]byte
	for _, m := range msgs {
		for _, s := range []string{m.Role, m.Content} {
			binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
			h.Write(n[:])
			h.Write([]byte(s))
		}
	}
	return tensor.NewRNG(seed, splitStream).Uint64(binary.LittleEndian.Uint64(h.Sum(nil)))
}

// The streams keep the uses of one seed apart.
const (
	splitStream = 0x63686174_73706c74
	packStream  = 0x63686174_7061636b
	orderStream = 0x63686174_6f726472
)

// split deals the conversations by their keys. Where that would leave one side empty, one conversation (with those that
// equal it) goes there all the same: the one whose key is nearest to that side.
func (b *builder) split() (train, val []int32) {
	all := make([]int32, len(b.store.spans))
	for i := range all {
		all[i] = int32(i)
	}
	if b.opt.ValFraction == 0 {
		return all, nil
	}
	limit := b.limit()
	for _, i := range all {
		if b.keys[i] <= limit {
			val = append(val, i)
		} else {
			train = append(train, i)
		}
	}
	if len(train) == 0 { // all conversations are equal
		return all, nil
	}
	return train, val
}

// limit is the largest key that is held out.
func (b *builder) limit() uint64 {
	least, most := ^uint64(0), uint64(0)
	for _, k := range b.keys {
		least, most = min(least, k), max(most, k)
	}
	limit := uint64(b.opt.ValFraction*(1<<53)) << 11
	if limit >= most {
		limit = most - 1
	}
	return max(limit, least)
}
