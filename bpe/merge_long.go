package bpe

import "slices"

// longMerger is the scratch memory of mergeLong, kept between calls.
type longMerger struct {
	spans   spans
	heap    []uint64 // candidate merges as rank<<32 | position, a binary min-heap
	buckets buckets
}

// mergeLong joins the pairs of a long pre-token. A heap brings the candidates in order of rank; when the pre-token is so
// long that a list per rank pays, those lists do the same in linear time.
func (t *Tokenizer) mergeLong(dst []int32, word []byte, m *longMerger) []int32 {
	s := m.spans.reset(len(word))
	for i, b := range word {
		s[i] = t.byteID[b]
	}
	if t.ascending && len(word) >= max(bucketWord, len(t.merges)/4) {
		t.joinByBuckets(s, word, &m.buckets)
	} else {
		t.joinByHeap(s, word, m)
	}
	for i := 0; i < len(s); i += int(t.tokenLen[s[i]]) {
		dst = append(dst, s[i])
	}
	if cap(m.spans) > keepLong {
		*m = longMerger{}
	}
	return dst
}

const (
	bucketWord = 1 << 12 // bytes from which a pre-token may be merged by buckets
	keepLong   = 1 << 16 // bytes of a pre-token up to which its scratch memory is kept
)

// joinAt performs the merge of the given rank at position at, if its pair still stands there, and returns the bounds of
// the joined token.
func (t *Tokenizer) joinAt(s spans, rank, at int) (end int, ok bool) {
	left, right := t.merges[rank][0], t.merges[rank][1]
	next := at + int(t.tokenLen[left])
	if s[at] != left || next >= len(s) || s[next] != right {
		return 0, false
	}
	end = next + int(t.tokenLen[right])
	s.join(at, next, end, t.mergedID[rank])
	return end, true
}

// joinByHeap takes O(n log n) for n bytes, whatever they are. Candidates are not removed when a neighbour changes; they
// are recognised as stale when they surface.
func (t *Tokenizer) joinByHeap(s spans, word []byte, m *longMerger) {
	m.heap = m.heap[:0]
	for i := 0; i+1 < len(word); i++ {
		if r := t.byteRank[word[i]][word[i+1]]; r != noRank {
			m.heap = append(m.heap, uint64(r)<<32|uint64(i))
		}
	}
	heapify(m.heap)
	for len(m.heap) > 0 {
		rank, at := int(m.heap[0]>>32), int(uint32(m.heap[0]))
		m.heap = popMin(m.heap)
		end, ok := t.joinAt(s, rank, at)
		if !ok {
			continue
		}
		if at > 0 {
			m.push(t.ranks.rank(s[at-1], s[at]), at-int(t.tokenLen[s[at-1]]))
		}
		if end < len(s) {
			m.push(t.ranks.rank(s[at], s[end]), at)
		}
	}
}

func (m *longMerger) push(rank uint32, at int) {
	if rank != noRank {
		m.heap = pushMin(m.heap, uint64(rank)<<32|uint64(at))
	}
}

// buckets holds candidate positions by rank. Those of the first pass over the bytes are sorted by counting; later ones
// are linked lists in nodes, of which used ones are taken again.
type buckets struct {
	first []uint32 // by rank: where its positions begin in bytes; one more at the end
	bytes []uint32 // positions by rank, ascending
	head  []uint32 // by rank: index into nodes, 0 for none
	nodes []bucketNode
	free  uint32
	turn  []uint32 // positions of the rank whose turn it is
}

type bucketNode struct{ at, next uint32 }

// joinByBuckets takes linear time. It needs ranks that ascend (see Tokenizer.ascending): a merge then makes only pairs of
// higher rank than its own, and each rank has its turn once. Within a rank, the order matters only if a token joins with
// itself, as in "aaa".
func (t *Tokenizer) joinByBuckets(s spans, word []byte, b *buckets) {
	b.fill(t, word)
	for rank := range t.merges {
		b.take(rank, t.merges[rank][0] == t.merges[rank][1])
		for _, at := range b.turn {
			end, ok := t.joinAt(s, rank, int(at))
			if !ok {
				continue
			}
			if at > 0 {
				b.add(t.ranks.rank(s[at-1], s[at]), at-t.tokenLen[s[at-1]])
			}
			if end < len(s) {
				b.add(t.ranks.rank(s[at], s[end]), at)
			}
		}
	}
}

// fill sorts the pairs of neighbouring bytes by rank.
func (b *buckets) fill(t *Tokenizer, word []byte) {
	b.first = append(b.first[:0], make([]uint32, len(t.merges)+1)...)
	b.head = append(b.head[:0], make([]uint32, len(t.merges))...)
	b.nodes, b.free = append(b.nodes[:0], bucketNode{}), 0
	total := uint32(0)
	for i := 0; i+1 < len(word); i++ {
		if r := t.byteRank[word[i]][word[i+1]]; r != noRank {
			b.first[r]++
			total++
		}
	}
	end := uint32(0)
	for r, n := range b.first {
		end += n
		b.first[r] = end
	}
	b.bytes = slices.Grow(b.bytes[:0], int(total))[:total]
	for i := len(word) - 2; i >= 0; i-- { // backwards, so that each rank's end moves down to its beginning
		if r := t.byteRank[word[i]][word[i+1]]; r != noRank {
			b.first[r]--
			b.bytes[b.first[r]] = uint32(i)
		}
	}
}

// take moves the positions of a rank to turn, in ascending order if sorted is set, and frees their nodes.
func (b *buckets) take(rank int, sorted bool) {
	b.turn = append(b.turn[:0], b.bytes[b.first[rank]:b.first[rank+1]]...)
	for n := b.head[rank]; n != 0; {
		node := &b.nodes[n]
		b.turn = append(b.turn, node.at)
		n, node.next, b.free = node.next, b.free, n
	}
	if sorted && b.head[rank] != 0 {
		slices.Sort(b.turn)
	}
}

func (b *buckets) add(rank, at uint32) {
	if rank == noRank {
		return
	}
	n := b.free
	if n != 0 {
		b.free = b.nodes[n].next
	} else {
		n = uint32(len(b.nodes))
		b.nodes = append(b.nodes, bucketNode{})
	}
	b.nodes[n] = bucketNode{at, b.head[rank]}
	b.head[rank] = n
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
