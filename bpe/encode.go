package bpe

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// encoder is the scratch memory of one running Encode call.
type encoder struct {
	cache wordCache
	long  longMerger
	ids   []int32
}

// acquire takes an encoder from the idle ones, so that its cache stays warm from call to call.
func (t *Tokenizer) acquire() *encoder {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.idle); n > 0 {
		e := t.idle[n-1]
		t.idle = t.idle[:n-1]
		return e
	}
	return new(encoder)
}

func (t *Tokenizer) release(e *encoder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) < runtime.GOMAXPROCS(0) {
		t.idle = append(t.idle, e)
	}
}

// Encode appends the ids of text to dst. Special tokens in the text are ordinary text: a corpus that happens to contain
// "<|endoftext|>" cannot forge a document end.
func (t *Tokenizer) Encode(dst []int32, text []byte) []int32 {
	e := t.acquire()
	dst = t.encode(e, dst, t.normalize(text))
	t.release(e)
	return dst
}

// EncodeWithSpecials is Encode, except that added tokens in the text become their ids, as Hugging Face's encode does
// with add_special_tokens=False.
func (t *Tokenizer) EncodeWithSpecials(dst []int32, text []byte) []int32 {
	e := t.acquire()
	t.added.split(text, t.normalize, func(part []byte, id int32) {
		if id >= 0 {
			dst = append(dst, id)
		} else {
			dst = t.encode(e, dst, part)
		}
	})
	t.release(e)
	return dst
}

// encode cuts normalised text into pre-tokens and appends their ids.
func (t *Tokenizer) encode(e *encoder, dst []int32, text []byte) []int32 {
	e.cache.ready(len(text))
	for i := 0; i < len(text); {
		end := t.rules.next(text, i)
		if end-i > maxShortBytes {
			dst = t.encodeLong(e, dst, text, i, end)
			i = end
			continue
		}
		key := shortKeyOf(text, i, end)
		set := e.cache.shortSet(key)
		if found := set.find(key); found != nil {
			// Appending all places and cutting off the unused ones is cheaper than a copy of varying length.
			n := len(dst) + int(found.count)
			dst = append(dst, found.ids[0], found.ids[1], found.ids[2])[:n]
		} else {
			start := len(dst)
			dst = t.encodeLong(e, dst, text, i, end)
			if len(dst)-start <= maxShortIDs {
				set.put(key, dst[start:])
			}
		}
		i = end
	}
	return dst
}

// encodeLong appends the ids of one pre-token that the table for short words does not have.
func (t *Tokenizer) encodeLong(e *encoder, dst []int32, text []byte, i, end int) []int32 {
	if end-i > maxCachedBytes {
		return t.mergeWord(dst, text[i:end], &e.long)
	}
	key := longKeyOf(text, i, end)
	set := e.cache.longSet(&key)
	if found := set.find(&key); found != nil {
		return append(dst, found.ids[:found.count]...)
	}
	start := len(dst)
	dst = t.mergeWord(dst, text[i:end], &e.long)
	if n := len(dst) - start; n <= maxCachedIDs && (n > maxShortIDs || end-i > maxShortBytes) {
		set.put(&key, dst[start:])
	}
	return dst
}

// batchPiece is the size in bytes above which EncodeBatch spreads one document over several threads.
const batchPiece = 1 << 20

// EncodeBatch encodes documents in parallel; result i belongs to docs[i] and equals Encode(nil, docs[i]). threads ≤ 0
// means one per processor.
func (t *Tokenizer) EncodeBatch(docs [][]byte, threads int) [][]int32 {
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	jobs, first := batchJobs(docs)
	parts := make([][]int32, len(jobs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(threads, len(jobs)) {
		wg.Go(func() {
			e := t.acquire()
			defer t.release(e)
			for {
				j := int(next.Add(1)) - 1
				if j >= len(jobs) {
					return
				}
				e.ids = t.encode(e, e.ids[:0], t.normalize(jobs[j]))
				parts[j] = append(make([]int32, 0, len(e.ids)), e.ids...)
			}
		})
	}
	wg.Wait()
	out := make([][]int32, len(docs))
	for i := range docs {
		mine := parts[first[i]:first[i+1]]
		if len(mine) == 1 {
			out[i] = mine[0]
			continue
		}
		total := 0
		for _, p := range mine {
			total += len(p)
		}
		out[i] = make([]int32, 0, total)
		for j, p := range mine {
			out[i] = append(out[i], p...)
			mine[j] = nil
		}
	}
	return out
}

// batchJobs cuts long documents at safe places. The jobs of document i are jobs[first[i]:first[i+1]].
func batchJobs(docs [][]byte) (jobs [][]byte, first []int) {
	first = make([]int, 0, len(docs)+1)
	for _, doc := range docs {
		first = append(first, len(jobs))
		pieces(doc, batchPiece, func(p []byte) { jobs = append(jobs, p) })
	}
	return jobs, append(first, len(jobs))
}
