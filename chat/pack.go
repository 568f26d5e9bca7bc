package chat

import (
	"errors"
	"fmt"
	"math/bits"

	"tezgah/tensor"
)

// ignoreTarget is corpus.IgnoreTarget: the target of a position that does not count in the loss.
const ignoreTarget = -1

// Packing says how the conversations of a set fill rows of T positions.
type Packing struct {
	Rows          int64 `json:"rows"`          // in one pass over all conversations
	Conversations int64 `json:"conversations"` // in those rows, each once
	Targets       int64 `json:"targets"`       // learned tokens in those rows
	Positions     int64 `json:"positions"`     // that conversations take of Rows·T; the others are padding
	Truncated     int64 `json:"truncated"`     // conversations longer than a row: their end is cut off
	Lost          int64 `json:"lost"`          // learned tokens cut off, of truncated and skipped conversations
	Skipped       int64 `json:"skipped"`       // conversations left out because nothing learned lies in their first T+1 tokens
}

// rows is a set packed into rows of T positions. A conversation takes one position for every token before its last
// learned one, which is a target only; what follows that is not trained on. One that needs more than T is cut at T.
// None is spread over two rows, and one row holds only whole (or cut) conversations, so that whichever rows are drawn,
// every learned token has all of its context.
//
// Packing is first-fit decreasing (Johnson 1973), which fills a row with the longest conversation that is left and
// then always with the longest that still fits; those of equal length are shuffled by the seed. It is done once and not
// anew for every epoch: conversations of a row do not see each other, so that only the order of the rows matters.
type rows struct {
	Packing
	set   *Set
	T     int
	order []int32 // conversations by their number in the store, row after row
	first []int32 // row r holds order[first[r]:first[r+1]]
}

func newRows(set *Set, T int, seed uint64) (*rows, error) {
	if set == nil || set.Len() == 0 {
		return nil, errors.New("no conversations")
	}
	if T < 1 || T > 1<<30 {
		return nil, fmt.Errorf("context of %d tokens, want 1 to %d", T, 1<<30)
	}
	r := &rows{set: set, T: T}
	byLength := r.sort(seed)
	if r.Conversations == 0 {
		return nil, fmt.Errorf("none of the %d conversations has an assistant's token within the first %d: give a longer context",
			set.Len(), T+1)
	}
	r.pack(byLength)
	return r, nil
}

// need is the number of positions that a conversation takes.
func (r *rows) need(conversation int32) int {
	return min(int(r.set.store.spans[conversation].last), r.T)
}

// sort lists the conversations by the positions that they need, those of equal length in random order, and counts them.
func (r *rows) sort(seed uint64) (byLength [][]int32) {
	shuffled := make([]int32, 0, r.set.Len())
	for _, c := range r.set.member {
		if r.count(c) {
			shuffled = append(shuffled, c)
		}
	}
	shuffle(shuffled, tensor.NewRNG(seed, packStream), 0)
	sizes := make([]int32, r.T+1)
	for _, c := range shuffled {
		sizes[r.need(c)]++
	}
	byLength = make([][]int32, r.T+1)
	all := make([]int32, len(shuffled))
	for n, size := range sizes {
		byLength[n], all = all[:0:size], all[size:]
	}
	for _, c := range shuffled {
		byLength[r.need(c)] = append(byLength[r.need(c)], c)
	}
	return byLength
}

// count enters one conversation into the numbers of the packing and reports whether it is used.
func (r *rows) count(c int32) bool {
	sp := r.set.store.spans[c]
	targets, lost := int64(0), int64(0)
	for i, x := range r.set.store.conversation(c) {
		if x&learned == 0 {
			continue
		}
		if i >= 1 && i <= r.T {
			targets++
		} else {
			lost++
		}
	}
	r.Lost += lost
	if targets == 0 {
		r.Skipped++
		return false
	}
	if int(sp.last) > r.T {
		r.Truncated++
	}
	r.Conversations++
	r.Targets += targets
	r.Positions += int64(r.need(c))
	return true
}

// pack fills order and first; it empties byLength.
func (r *rows) pack(byLength [][]int32) {
	r.order = make([]int32, 0, r.Conversations)
	left := newLengths(byLength)
	for len(r.order) < cap(r.order) {
		r.first = append(r.first, int32(len(r.order)))
		for space := r.T; ; {
			n := left.longest(space)
			if n == 0 {
				break
			}
			list := byLength[n]
			r.order = append(r.order, list[0])
			if byLength[n] = list[1:]; len(list) == 1 {
				left.remove(n)
			}
			space -= n
		}
	}
	r.Rows = int64(len(r.first))
	r.first = append(r.first, int32(len(r.order)))
}

// lengths is the set of lengths of which conversations are left, one bit each.
type lengths []uint64

func newLengths(byLength [][]int32) lengths {
	l := make(lengths, len(byLength)/64+1)
	for n, list := range byLength {
		if len(list) > 0 {
			l[n/64] |= 1 << (n % 64)
		}
	}
	return l
}

func (l lengths) remove(n int) { l[n/64] &^= 1 << (n % 64) }

// longest returns the largest length up to most, 0 for none.
func (l lengths) longest(most int) int {
	word := most / 64
	x := l[word] & (1<<(most%64)<<1 - 1)
	for x == 0 {
		if word--; word < 0 {
			return 0
		}
		x = l[word]
	}
	return 64*word + bits.Len64(x) - 1
}

// shuffle puts a list into random order (Fisher and Yates) with the values of rng from counter on.
func shuffle(list []int32, rng tensor.RNG, counter uint64) {
	for i := len(list) - 1; i > 0; i-- {
		j := rng.Intn(counter+uint64(i), i+1)
		list[i], list[j] = list[j], list[i]
	}
}

// read fills one row: tokens, targets and docStart, each (T). Positions behind the conversations are token 0 and see
// themselves alone; their targets do not count.
func (r *rows) read(row int64, tokens, targets, docStart []int32) {
	at := 0
	for _, c := range r.order[r.first[row]:r.first[row+1]] {
		n := r.need(c)
		conv := r.set.store.conversation(c)[:n+1]
		for i, x := range conv[:n] {
			tokens[at+i] = int32(x &^ learned)
			targets[at+i] = ignoreTarget
			if next := conv[i+1]; next&learned != 0 {
				targets[at+i] = int32(next &^ learned)
			}
			docStart[at+i] = int32(at)
		}
		at += n
	}
	pad(at, tokens, targets, docStart)
}

// pad fills positions from at on with what counts nowhere.
func pad(at int, tokens, targets, docStart []int32) {
	for ; at < len(tokens); at++ {
		tokens[at], targets[at], docStart[at] = 0, ignoreTarget, int32(at)
	}
}

func (r *rows) checkBatch(tokens, targets, docStart []int32) error {
	switch {
	case len(tokens) == 0 || len(tokens)%r.T != 0:
		return fmt.Errorf("tokens has %d elements, want B·T with T %d", len(tokens), r.T)
	case len(targets) != len(tokens):
		return fmt.Errorf("targets has %d elements, want %d as tokens", len(targets), len(tokens))
	case docStart == nil:
		return errors.New("docStart is nil, but packed conversations must not see each other: turn the document mask on")
	case len(docStart) != len(tokens):
		return fmt.Errorf("docStart has %d elements, want %d as tokens", len(docStart), len(tokens))
	}
	return nil
}
