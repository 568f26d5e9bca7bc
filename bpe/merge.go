package bpe

// shortWord is the longest pre-token, in bytes, that mergeShort takes. Its cost grows with the square of the length, but
// up to about this size it beats the heap.
const shortWord = 48

// mergeWord appends the ids of one pre-token to dst: beginning with one symbol per byte, the pair of neighbours with the
// lowest merge rank is joined, the leftmost first, until no pair has a rank.
func (t *Tokenizer) mergeWord(dst []int32, word []byte, long *longMerger) []int32 {
	if t.ignoreMerges {
		if id, ok := t.wordID[string(word)]; ok {
			return append(dst, id)
		}
	}
	if len(word) <= shortWord {
		return t.mergeShort(dst, word)
	}
	return t.mergeLong(dst, word, long)
}

// mergeShort keeps the symbols and the rank of each symbol with its right neighbour in two small arrays.
func (t *Tokenizer) mergeShort(dst []int32, word []byte) []int32 {
	var syms [shortWord]int32
	var ranks [shortWord]uint32
	n := len(word)
	for i, b := range word {
		syms[i] = t.byteID[b]
	}
	for i := 0; i+1 < n; i++ {
		ranks[i] = t.byteRank[word[i]][word[i+1]]
	}
	for n > 1 {
		best, at := noRank, 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		syms[at] = t.mergedID[best]
		copy(syms[at+1:n-1], syms[at+2:n])
		copy(ranks[at+1:n-1], ranks[at+2:n])
		n--
		if at > 0 {
			ranks[at-1] = t.ranks.rank(syms[at-1], syms[at])
		}
		if at+1 < n {
			ranks[at] = t.ranks.rank(syms[at], syms[at+1])
		}
	}
	return append(dst, syms[:n]...)
}

// longMerger is the scratch memory of mergeLong, kept between calls.
type longMerger struct {
	spans spans
	heap  []uint64 // candidate merges as rank<<32 | position, a binary min-heap
}

// mergeLong joins the pairs of a long pre-token in the order of a heap: O(n log n) for n bytes, whatever they are.
// Candidates are not removed when a neighbour changes; they are recognised as stale when they surface.
func (t *Tokenizer) mergeLong(dst []int32, word []byte, m *longMerger) []int32 {
	s := m.spans.reset(len(word))
	for i, b := range word {
		s[i] = t.byteID[b]
	}
	m.heap = m.heap[:0]
	for i := 0; i+1 < len(s); i++ {
		if r := t.ranks.rank(s[i], s[i+1]); r != noRank {
			m.heap = append(m.heap, uint64(r)<<32|uint64(i))
		}
	}
	heapify(m.heap)
	for len(m.heap) > 0 {
		top := m.heap[0]
		rank, at := top>>32, int(uint32(top))
		left, right := t.merges[rank][0], t.merges[rank][1]
		next := at + int(t.tokenLen[left])
		if s[at] != left || next >= len(s) || s[next] != right {
			m.heap = popMin(m.heap)
			continue
		}
		id := t.mergedID[rank]
		end := next + int(t.tokenLen[right])
		s.join(at, next, end, id)
		m.heap = popMin(m.heap)
		if at > 0 {
			prev := at - int(t.tokenLen[s[at-1]])
			m.push(t.ranks.rank(s[at-1], id), prev)
		}
		if end < len(s) {
			m.push(t.ranks.rank(id, s[end]), at)
		}
	}
	for i := 0; i < len(s); i += int(t.tokenLen[s[i]]) {
		dst = append(dst, s[i])
	}
	m.shrink()
	return dst
}

func (m *longMerger) push(rank uint32, at int) {
	if rank != noRank {
		m.heap = pushMin(m.heap, uint64(rank)<<32|uint64(at))
	}
}

// shrink lets go of the memory of an unusually long pre-token.
func (m *longMerger) shrink() {
	const keep = 1 << 16
	if cap(m.spans) > keep {
		*m = longMerger{}
	}
}

// spans holds a text as adjoining tokens without links: the token over bytes [i, j) writes its id at i and again at
// j−1, and covered elsewhere. From the start of a token the next one begins at i plus the token's length, and the
// previous one ends at i−1, where its id, and with it its length, stands. Tokens only ever grow, so a position that
// held the start of token v shows v again only if that token is still there.
type spans []int32

// covered marks a byte inside a token.
const covered = -2

// reset returns the spans with room for n bytes.
func (s *spans) reset(n int) spans {
	if cap(*s) < n {
		*s = make(spans, n)
	}
	*s = (*s)[:n]
	return *s
}

// join replaces the neighbouring tokens [at, next) and [next, end) by one token id.
func (s spans) join(at, next, end int, id int32) {
	s[next-1], s[next] = covered, covered
	s[at], s[end-1] = id, id
}

// heapify orders h as a binary min-heap.
func heapify(h []uint64) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
}

func siftDown(h []uint64, i int) {
	x := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if x <= h[child] {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = x
}

func popMin(h []uint64) []uint64 {
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	if last > 1 {
		siftDown(h, 0)
	}
	return h
}

func pushMin(h []uint64, x uint64) []uint64 {
	h = append(h, x)
	i := len(h) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent] <= x {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = x
	return h
}
