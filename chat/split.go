package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"tezgah/tensor"
)

// builder fills a store from a walk.
type builder struct {
	opt    *LoadOptions
	store  *store
	keys   []uint64 // by conversation: what its side depends on; only with ValFraction
	tokens int64
}

// progressEvery is the number of conversations between two calls of Progress.
const progressEvery = 1000

// errNothingLearned is a conversation that teaches nothing.
var errNothingLearned = errors.New("the conversation has no assistant message to learn from")

func (b *builder) add(c Conversation) error {
	ids, learn, err := b.opt.Template.Encode(b.opt.Tokenizer, c.Messages)
	if err != nil {
		return c.Bad(err)
	}
	if !hasAssistant(c.Messages) {
		return c.Bad(errNothingLearned)
	}
	if b.tokens += int64(len(ids)); b.tokens > b.opt.MaxTokens {
		return fmt.Errorf("%s:%d: the conversations up to here have more than %d tokens, which is all that is kept in memory: "+
			"fine-tune on a part of them", c.Source, c.Line, b.opt.MaxTokens)
	}
	b.store.add(ids, learn)
	if b.opt.ValFraction > 0 {
		b.keys = append(b.keys, conversationKey(c.Messages, b.opt.Seed))
	}
	if n := len(b.store.spans); b.opt.Progress != nil && n%progressEvery == 0 {
		b.opt.Progress(int64(n), b.tokens)
	}
	return nil
}

func hasAssistant(msgs []Message) bool {
	for _, m := range msgs {
		if m.Role == Assistant {
			return true
		}
	}
	return false
}

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
