package bpe

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
)

// learner merges pairs. All distinct pre-tokens lie in one array of tokens (spans, see merge.go), one element per byte,
// with a separator between them. For each pair of neighbours it knows the count and the places, so that a merge touches
// only the places of its own pair and the counts of the pairs around them.
//
// No two merges make the same token, so every merge makes a new id and no pair comes back once it has been merged. For
// suppose that a string S stands in two places, as l1 r1 and as l2 r2, with token bounds at both of its ends. Tokens only
// grow, so the bounds at its ends were there at every earlier step, and each step treated the inside of S the same in
// both places. Hence l1 = l2.
type learner struct {
	places spans
	wordOf []uint32 // by place: index into counts
	counts []int64  // by word

	tokens   [][]byte        // by id
	tokenLen []uint32        // by id
	byteID   [256]int32      // of the single-byte tokens
	blocked  map[string]bool // byte strings that may not become a token, because a special token is spelled so

	pairs  pairIndex
	queue  candidates
	merges [][2]int32

	left, right neighbours // what the current merge finds before and behind it
	minCount    int64
	maxLen      uint32
}

// pair is two ids that stand side by side somewhere.
type pair struct {
	left, right int32
	count       int64    // occurrences in the text
	places      []uint32 // where left begins, ascending; some may be out of date
}

// separator stands in spans before, between and behind words.
const separator = -1

// newLearner lays out the counted words. It empties the trainer's table as it goes.
func newLearner(t *Trainer) (*learner, error) {
	words, size := 0, uint64(1)
	for i := range t.words.shards {
		table := t.words.shards[i].table
		words += len(table.words)
		for k := range table.words {
			size += uint64(table.words[k].size) + 1
		}
	}
	if words == 0 {
		return nil, errors.New("bpe: train: no text was added; give at least one document that is not empty")
	}
	if size > math.MaxUint32 || uint64(int(size)) != size {
		return nil, fmt.Errorf("bpe: train: the distinct pre-tokens have %d bytes, want at most %d; train on a part of the "+
			"corpus", size, uint32(math.MaxUint32))
	}
	l := &learner{places: make(spans, 0, size), wordOf: make([]uint32, 0, size), counts: make([]int64, 0, words),
		minCount: int64(t.opt.MinPairCount), maxLen: math.MaxUint32}
	if t.opt.MaxTokenBytes > 0 {
		l.maxLen = uint32(min(int64(t.opt.MaxTokenBytes), math.MaxUint32))
	}
	l.addBytes(t.opt.SpecialTokens)
	l.layOut(t.words)
	l.countPairs()
	return l, nil
}

// addBytes makes the 256 single-byte tokens, in the order of the byte alphabet.
func (l *learner) addBytes(specials []string) {
	for _, b := range byteOrder {
		l.byteID[b] = l.newToken([]byte{b})
	}
	l.blocked = make(map[string]bool)
	for _, s := range specials {
		if token, ok := fromAlphabet(s); ok {
			l.blocked[string(token)] = true
		}
	}
}

func (l *learner) newToken(token []byte) int32 {
	l.tokens = append(l.tokens, token)
	l.tokenLen = append(l.tokenLen, uint32(len(token)))
	return int32(len(l.tokens) - 1)
}

func (l *learner) layOut(words *wordCounts) {
	l.places, l.wordOf = append(l.places, separator), append(l.wordOf, 0)
	for i := range words.shards {
		table := words.shards[i].table
		for k := range table.words {
			w := uint32(len(l.counts))
			l.counts = append(l.counts, table.words[k].count)
			for _, b := range table.bytes(&table.words[k]) {
				l.places, l.wordOf = append(l.places, l.byteID[b]), append(l.wordOf, w)
			}
			l.places, l.wordOf = append(l.places, separator), append(l.wordOf, w)
		}
		words.shards[i].table = nil
	}
}

// countPairs enters every pair of neighbouring bytes.
func (l *learner) countPairs() {
	var number [256 * 256]uint32
	for p, a := range l.places[:len(l.places)-1] {
		if b := l.places[p+1]; a >= 0 && b >= 0 {
			number[a<<8|b]++
		}
	}
	for p, a := range l.places[:len(l.places)-1] {
		if b := l.places[p+1]; a >= 0 && b >= 0 {
			e := l.pairs.get(a, b)
			if e.places == nil {
				e.places = make([]uint32, 0, number[a<<8|b])
			}
			e.places = append(e.places, uint32(p))
			e.count += l.counts[l.wordOf[p]]
		}
	}
	for i := range l.pairs.entries {
		l.offer(uint32(i))
	}
	l.queue.init()
}

// offer puts a pair into the queue if it may be merged.
func (l *learner) offer(i uint32) {
	e := &l.pairs.entries[i]
	if e.count >= l.minCount && uint64(l.tokenLen[e.left])+uint64(l.tokenLen[e.right]) <= uint64(l.maxLen) {
		l.queue = append(l.queue, candidate{e.count, pairKey(e.left, e.right), i})
	}
}

// run merges until the vocabulary is full or no pair is left. In each step the pair with the highest count goes; of
// several, the one with the smallest left id, then right id.
func (l *learner) run(ctx context.Context, t *Trainer) error {
	want := t.opt.VocabSize - len(t.opt.SpecialTokens)
	for steps := 0; len(l.tokens) < want && len(l.queue) > 0; steps++ {
		if steps%256 == 0 {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("bpe: train: stopped after %d of %d tokens: %w", len(l.tokens), want, err)
			}
			t.report("merge", int64(len(l.tokens)), int64(want))
		}
		top := l.queue[0]
		e := &l.pairs.entries[top.pair]
		switch {
		case e.count == top.count:
			l.queue.pop()
			l.merge(top.pair)
		case e.count >= l.minCount: // lower than when it was queued
			l.queue.replaceTop(candidate{e.count, top.key, top.pair})
		default:
			l.queue.pop()
		}
	}
	t.report("merge", int64(len(l.tokens)), int64(want))
	return nil
}

// merge joins the pair wherever it stands.
func (l *learner) merge(i uint32) {
	e := &l.pairs.entries[i]
	a, b := e.left, e.right
	joined := slices.Concat(l.tokens[a], l.tokens[b])
	if l.blocked[string(joined)] {
		return
	}
	c := l.newToken(joined)
	l.merges = append(l.merges, [2]int32{a, b})
	places := e.places
	e.places = nil
	l.left.reset(len(l.tokens))
	l.right.reset(len(l.tokens))
	l.join(places, a, b, c)

	// What stood beside a and b now stands beside c. All counts are raised before any is lowered: where two joined pairs
	// touch, the first raises a count that the second takes back.
	first := len(l.pairs.entries)
	l.raise(c)
	for k := range l.left.found {
		n := &l.left.found[k]
		l.pairs.get(n.id, a).count -= n.weight
	}
	for k := range l.right.found {
		n := &l.right.found[k]
		l.pairs.get(b, n.id).count -= n.weight
	}
	l.pairs.entries[i].count = 0
	for k := first; k < len(l.pairs.entries); k++ {
		before := len(l.queue)
		l.offer(uint32(k))
		if len(l.queue) > before {
			l.queue.up(before)
		}
	}
}

// join replaces a and b by c at all places where they still stand and notes the neighbours. Going up through the places
// joins "aaa" from the left.
func (l *learner) join(places []uint32, a, b, c int32) {
	lenA, lenB := int(l.tokenLen[a]), int(l.tokenLen[b])
	s := l.places
	for _, place := range places {
		at := int(place)
		next := at + lenA
		if s[at] != a || s[next] != b {
			continue
		}
		end := next + lenB
		weight := l.counts[l.wordOf[at]]
		if x := s[at-1]; x >= 0 {
			l.left.add(x, weight, place-l.tokenLen[x])
		}
		if y := s[end]; y >= 0 {
			l.right.add(y, weight, place)
		}
		s.join(at, next, end, c)
	}
}

// raise enters the new pairs (x, c) and (c, y) with their places.
func (l *learner) raise(c int32) {
	l.left.distribute()
	for k := range l.left.found {
		n := &l.left.found[k]
		e := l.pairs.get(n.id, c)
		e.count, e.places = n.weight, n.places
	}
	l.right.distribute()
	for k := range l.right.found {
		n := &l.right.found[k]
		e := l.pairs.get(c, n.id)
		e.count, e.places = n.weight, n.places
	}
}

// definition returns what was learned, the special tokens behind it.
func (l *learner) definition(t *Trainer) *definition {
	d := &definition{rules: t.rules, nfc: t.opt.NFC, vocab: make(map[string]int32, len(l.tokens))}
	for id, token := range l.tokens {
		d.vocab[toAlphabet(token)] = int32(id)
	}
	d.merges = make([][2]string, len(l.merges))
	for i, m := range l.merges {
		d.merges[i] = [2]string{toAlphabet(l.tokens[m[0]]), toAlphabet(l.tokens[m[1]])}
	}
	for i, s := range t.opt.SpecialTokens {
		d.added = append(d.added, addedToken{id: int32(len(l.tokens) + i), content: s, special: true})
	}
	return d
}
