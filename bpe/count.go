package bpe

import (
	"hash/maphash"
	"sync"
)

// wordTable counts distinct pre-tokens: open addressing over an arena, without a pointer per word, so that millions of
// words cost about 40 bytes each and the garbage collector has nothing to follow.
type wordTable struct {
	seed   maphash.Seed
	slots  []uint32 // 1 + index into words; 0 is empty
	words  []wordCount
	chunks [][]byte
}

type wordCount struct {
	count      int64
	hash       uint32 // low half of the hash
	chunk, off uint32 // where the bytes are
	size       uint32
}

const arenaChunk = 1 << 18 // bytes

func newWordTable(seed maphash.Seed) *wordTable {
	return &wordTable{seed: seed, slots: make([]uint32, 1<<10)}
}

func (w *wordTable) bytes(c *wordCount) []byte {
	return w.chunks[c.chunk][c.off : c.off+c.size]
}

// add adds n to the count of word, which has the given hash.
func (w *wordTable) add(word []byte, hash uint64, n int64) {
	mask := uint64(len(w.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		at := w.slots[i]
		if at == 0 {
			w.words = append(w.words, w.store(word, uint32(hash), n))
			w.slots[i] = uint32(len(w.words))
			if 2*len(w.words) > len(w.slots) {
				w.grow()
			}
			return
		}
		c := &w.words[at-1]
		if c.hash == uint32(hash) && string(w.bytes(c)) == string(word) {
			c.count += n
			return
		}
	}
}

// store copies word into the arena.
func (w *wordTable) store(word []byte, hash uint32, n int64) wordCount {
	last := len(w.chunks) - 1
	if last < 0 || len(w.chunks[last])+len(word) > cap(w.chunks[last]) {
		w.chunks = append(w.chunks, make([]byte, 0, max(arenaChunk, len(word))))
		last++
	}
	off := len(w.chunks[last])
	w.chunks[last] = append(w.chunks[last], word...)
	return wordCount{count: n, hash: hash, chunk: uint32(last), off: uint32(off), size: uint32(len(word))}
}

func (w *wordTable) grow() {
	w.slots = make([]uint32, 2*len(w.slots))
	mask := uint32(len(w.slots) - 1)
	for k := range w.words {
		i := w.words[k].hash & mask
		for w.slots[i] != 0 {
			i = (i + 1) & mask
		}
		w.slots[i] = uint32(k + 1)
	}
}

// clear empties the table and keeps its memory.
func (w *wordTable) clear() {
	clear(w.slots)
	w.words = w.words[:0]
	for i := range w.chunks {
		w.chunks[i] = w.chunks[i][:0]
	}
	if len(w.chunks) > 1 {
		w.chunks = w.chunks[:1]
	}
}

// localWords is the number of distinct pre-tokens that a worker collects before it hands them to the shared table.
// It bounds what the workers hold twice, however many there are.
const localWords = 1 << 16

// shardCount is the number of independently locked parts of the shared table.
const shardCount = 64

// wordCounts is the table of all pre-tokens, shared by the workers.
type wordCounts struct {
	seed   maphash.Seed
	shards [shardCount]struct {
		sync.Mutex
		table *wordTable
	}
}

func newWordCounts() *wordCounts {
	w := &wordCounts{seed: maphash.MakeSeed()}
	for i := range w.shards {
		w.shards[i].table = newWordTable(w.seed)
	}
	return w
}

// counter is one worker's view: a small table of its own in front of the shared one.
type counter struct {
	local  *wordTable
	shared *wordCounts
	order  [shardCount][]uint32
}

func (w *wordCounts) newCounter() *counter {
	return &counter{local: newWordTable(w.seed), shared: w}
}

// count cuts text into pre-tokens and counts them.
func (c *counter) count(r *rules, text []byte) {
	for i := 0; i < len(text); {
		end := r.next(text, i)
		word := text[i:end]
		c.local.add(word, maphash.Bytes(c.shared.seed, word), 1)
		i = end
		if len(c.local.words) >= localWords {
			c.flush()
		}
	}
}

// flush adds the local counts to the shared table, shard by shard.
func (c *counter) flush() {
	for i := range c.order {
		c.order[i] = c.order[i][:0]
	}
	for k := range c.local.words {
		shard := c.local.words[k].hash >> 26 % shardCount
		c.order[shard] = append(c.order[shard], uint32(k))
	}
	for i, mine := range c.order {
		shard := &c.shared.shards[i]
		shard.Lock()
		for _, k := range mine {
			word := &c.local.words[k]
			shard.table.add(c.local.bytes(word), uint64(word.hash), word.count)
		}
		shard.Unlock()
	}
	c.local.clear()
}
