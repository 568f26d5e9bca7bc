package bpe

import "math/bits"

// neighbours collects what stands on one side of the places of a merge: for each id the weight and the places of the pair
// that it now forms with the merged token.
type neighbours struct {
	slot   []int32 // by id: 1 + index into found
	found  []neighbour
	events []neighbourEvent
}

type neighbour struct {
	id     int32
	number uint32
	weight int64
	places []uint32
}

type neighbourEvent struct {
	found uint32
	place uint32
}

// reset makes room for n ids and forgets the last merge.
func (n *neighbours) reset(ids int) {
	for _, f := range n.found {
		n.slot[f.id] = 0
	}
	for len(n.slot) < ids {
		n.slot = append(n.slot, 0)
	}
	n.found, n.events = n.found[:0], n.events[:0]
}

func (n *neighbours) add(id int32, weight int64, place uint32) {
	at := n.slot[id]
	if at == 0 {
		n.found = append(n.found, neighbour{id: id})
		at = int32(len(n.found))
		n.slot[id] = at
	}
	f := &n.found[at-1]
	f.number++
	f.weight += weight
	n.events = append(n.events, neighbourEvent{uint32(at - 1), place})
}

// distribute gives each neighbour a list of its places, of exactly the size needed.
func (n *neighbours) distribute() {
	for i := range n.found {
		n.found[i].places = make([]uint32, 0, n.found[i].number)
	}
	for _, e := range n.events {
		f := &n.found[e.found]
		f.places = append(f.places, e.place)
	}
}

// pairIndex finds the entry of a pair: open addressing, at most half full. Entries are never removed.
type pairIndex struct {
	slots   []uint32 // 1 + index into entries; 0 is empty
	entries []pair
}

// get returns the entry of a pair, a new empty one if need be. It is valid until the next call.
func (p *pairIndex) get(left, right int32) *pair {
	if 2*len(p.entries) >= len(p.slots) {
		p.grow()
	}
	mask := uint64(len(p.slots) - 1)
	shift := 64 - bits.Len64(mask)
	for i := hashPair(pairKey(left, right)) >> shift; ; i = (i + 1) & mask {
		at := p.slots[i]
		if at == 0 {
			p.entries = append(p.entries, pair{left: left, right: right})
			at = uint32(len(p.entries))
			p.slots[i] = at
		}
		if e := &p.entries[at-1]; e.left == left && e.right == right {
			return e
		}
	}
}

func (p *pairIndex) grow() {
	p.slots = make([]uint32, max(1<<12, 2*len(p.slots)))
	mask := uint64(len(p.slots) - 1)
	shift := 64 - bits.Len64(mask)
	for k := range p.entries {
		i := hashPair(pairKey(p.entries[k].left, p.entries[k].right)) >> shift
		for p.slots[i] != 0 {
			i = (i + 1) & mask
		}
		p.slots[i] = uint32(k + 1)
	}
}

// candidate is a pair in the queue with the count that it had when it was put there. Counts in the queue may be out of
// date, but only too high, because a pair's count never grows; learner.run compares them when they come up.
type candidate struct {
	count int64
	key   uint64 // pairKey
	pair  uint32 // index
}

// before says whether a is merged before b.
func (a candidate) before(b candidate) bool {
	return a.count > b.count || a.count == b.count && a.key < b.key
}

// candidates is a heap with four children per node, the best candidate first.
type candidates []candidate

func (q candidates) init() {
	for i := len(q) / 4; i >= 0; i-- {
		q.down(i)
	}
}

func (q candidates) down(i int) {
	if i >= len(q) {
		return
	}
	x := q[i]
	for {
		first := 4*i + 1
		if first >= len(q) {
			break
		}
		best := first
		for k := first + 1; k < min(first+4, len(q)); k++ {
			if q[k].before(q[best]) {
				best = k
			}
		}
		if !q[best].before(x) {
			break
		}
		q[i] = q[best]
		i = best
	}
	q[i] = x
}

func (q candidates) up(i int) {
	x := q[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !x.before(q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = x
}

func (q *candidates) pop() {
	last := len(*q) - 1
	(*q)[0] = (*q)[last]
	*q = (*q)[:last]
	q.down(0)
}

func (q candidates) replaceTop(c candidate) {
	q[0] = c
	q.down(0)
}
