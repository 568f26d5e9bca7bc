package chat

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// learned is the bit of a stored token that says that the loss counts it; ids are below it.
const learned = 1 << 31

// blockTokens is the size of the blocks that a store grows by, so that growing copies nothing.
const blockTokens = 1 << 20

// store is the memory behind one or two sets: the conversations one after the other, each whole in one block.
type store struct {
	blocks [][]uint32 // ids, with the bit learned
	spans  []span     // by number of the conversation
}

// span is where a conversation lies.
type span struct {
	block, start int32
	tokens       int32
	last         int32 // place of its last learned token; behind it nothing is worth a row's space
}

// add appends a conversation that has a learned token.
func (s *store) add(ids []int32, learn []bool) {
	last := len(s.blocks) - 1
	if last < 0 || len(s.blocks[last])+len(ids) > cap(s.blocks[last]) {
		s.blocks = append(s.blocks, make([]uint32, 0, max(blockTokens, len(ids))))
		last++
	}
	sp := span{block: int32(last), start: int32(len(s.blocks[last])), tokens: int32(len(ids))}
	for i, id := range ids {
		x := uint32(id)
		if learn[i] {
			x |= learned
			sp.last = int32(i)
		}
		s.blocks[last] = append(s.blocks[last], x)
	}
	s.spans = append(s.spans, sp)
}

// conversation returns the stored tokens of number i.
func (s *store) conversation(i int32) []uint32 {
	sp := s.spans[i]
	return s.blocks[sp.block][sp.start : sp.start+sp.tokens]
}

// Set is a number of encoded conversations in memory. It does not change after Load.
type Set struct {
	store  *store
	member []int32 // numbers of the conversations in the store
	tokens int64
	learn  int64
	hash   [32]byte
}

func newSet(s *store, member []int32) *Set {
	set := &Set{store: s, member: member}
	h := sha256.New()
	for _, i := range member {
		conv := s.conversation(i)
		set.tokens += int64(len(conv))
		for _, x := range conv {
			if x&learned != 0 {
				set.learn++
			}
		}
		hashTokens(h, conv)
	}
	h.Sum(set.hash[:0])
	return set
}

func hashTokens(h hash.Hash, conv []uint32) {
	buf := binary.LittleEndian.AppendUint64(nil, uint64(len(conv)))
	for _, x := range conv {
		buf = binary.LittleEndian.AppendUint32(buf, x)
	}
	h.Write(buf)
}

// Len is the number of conversations.
func (s *Set) Len() int { return len(s.member) }

// Tokens is the number of tokens of all conversations.
func (s *Set) Tokens() int64 { return s.tokens }

// Learned is the number of tokens that the loss counts, before any conversation is cut to a row.
func (s *Set) Learned() int64 { return s.learn }

// Hash is a SHA-256 of all tokens and of what is learned: equal for equal conversations in the same order, encoded alike.
func (s *Set) Hash() [32]byte { return s.hash }

// Conversation returns the tokens of conversation i and which of them are learned.
func (s *Set) Conversation(i int) (ids []int32, learn []bool) {
	for _, x := range s.store.conversation(s.member[i]) {
		ids = append(ids, int32(x&^learned))
		learn = append(learn, x&learned != 0)
	}
	return ids, learn
}
