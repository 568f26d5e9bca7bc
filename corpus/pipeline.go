package corpus

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

// The pipeline of a build: one goroutine reads records in order into jobs, workers parse and encode jobs in any order,
// and the caller's goroutine receives the jobs in the order in which they were read. So the result does not depend on
// the number of threads, and there is a bounded number of jobs in memory.

const (
	// jobBytes is the amount of raw text from which on a job is handed to a worker, less than a piece of a long text.
	jobBytes = 192 << 10
	// jobRecords bounds the records of a job when documents are tiny.
	jobRecords = 4096
	// encodePiece is the length from which on one text is encoded in parts.
	encodePiece = 4 << 20
	// inFlightBytes bounds the raw text of all jobs together; it matters only for records of many megabytes.
	inFlightBytes = 192 << 20
)

// job is a run of records on its way through the pipeline.
type job struct {
	buf     []byte // raw bytes of the records
	records []record
	err     error // why reading ended after these records
	ready   chan struct{}
	weight  int64

	results []result // one per record, filled by a worker
	tokens  []byte
	ids     []int32
}

// result is what became of one record.
type result struct {
	err        error
	textBytes  int
	start, end int // of its tokens in job.tokens
	sum        [16]byte
}

func (j *job) reset() {
	j.records, j.results, j.err = j.records[:0], j.results[:0], nil
	if cap(j.buf) > 4*jobBytes { // do not keep the memory of a rare huge record
		j.buf, j.tokens, j.ids = nil, nil, nil
	}
	j.buf, j.tokens = j.buf[:0], j.tokens[:0]
}

// fill reads records until the job is large enough.
func (j *job) fill(s *stream) {
	for len(j.buf) < jobBytes && len(j.records) < jobRecords {
		var rec record
		if j.buf, rec, j.err = s.next(j.buf); j.err != nil {
			break
		}
		j.records = append(j.records, rec)
	}
	j.weight = int64(len(j.buf))
}

// encoder turns jobs into tokens.
type encoder struct {
	opt       *InputOptions
	list      []input
	tokenizer Tokenizer
	width     int
	sums      bool
}

func (e *encoder) work(j *job) {
	for i := range j.records {
		rec := &j.records[i]
		text, err := recordText(rec, j.buf[rec.start:rec.end:rec.end], &e.list[rec.file], e.opt)
		r := result{err: err, textBytes: len(text), start: len(j.tokens)}
		if e.sums && err == nil && rec.kind == kindText {
			sum := sha256.Sum256(text)
			r.sum = [16]byte(sum[:16])
		}
		if err == nil && rec.kind == kindText && !rec.replay && !(rec.first && rec.last && len(text) == 0) {
			r.err = e.encode(j, text, rec.last)
		}
		r.end = len(j.tokens)
		j.results = append(j.results, r)
	}
}

// encode appends the tokens of text to the job, and the end-of-document token after its last piece.
func (e *encoder) encode(j *job, text []byte, last bool) error {
	for len(text) > encodePiece {
		cut := lastSafeCut(text[:encodePiece])
		if cut == 0 {
			break
		}
		if err := e.encodePart(j, text[:cut]); err != nil {
			return err
		}
		text = text[cut:]
	}
	if err := e.encodePart(j, text); err != nil || !last {
		return err
	}
	j.ids = append(j.ids[:0], e.tokenizer.EndOfDocument())
	return e.appendIDs(j)
}

func (e *encoder) encodePart(j *job, text []byte) error {
	j.ids = e.tokenizer.Encode(j.ids[:0], text)
	return e.appendIDs(j)
}

// appendIDs writes j.ids in the width of the file.
func (e *encoder) appendIDs(j *job) error {
	v := uint32(e.tokenizer.VocabSize())
	var most uint32
	for _, id := range j.ids {
		most = max(most, uint32(id))
	}
	if most >= v {
		return fmt.Errorf("the tokenizer gave id %d, want ids below its vocabulary size %d", int32(most), v)
	}
	j.tokens = appendTokens(j.tokens, j.ids, e.width)
	return nil
}

// appendTokens appends ids in width bytes each, little-endian.
func appendTokens(dst []byte, ids []int32, width int) []byte {
	at := len(dst)
	dst = slices.Grow(dst, len(ids)*width)[:at+len(ids)*width]
	out := dst[at:]
	if width == 2 {
		for i, id := range ids {
			binary.LittleEndian.PutUint16(out[2*i:], uint16(id))
		}
		return dst
	}
	for i, id := range ids {
		binary.LittleEndian.PutUint32(out[4*i:], uint32(id))
	}
	return dst
}

// runPipeline reads s to its end, gives each job to work on one of the given number of threads and then, in order, to
// write. It returns the first error of write, else what ended the reading.
func runPipeline(ctx context.Context, s *stream, threads int, work func(*job), write func(*job) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctx = ctx
	n := 2*threads + 2
	free, todo, order := make(chan *job, n), make(chan *job, n), make(chan *job, n)
	for range n {
		free <- &job{ready: make(chan struct{}, 1)}
	}
	budget := newBudget(inFlightBytes)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(todo)
		defer close(order)
		for j := range free {
			j.fill(s)
			budget.acquire(j.weight)
			end := j.err != nil // read before the job is given away
			order <- j
			todo <- j
			if end {
				return
			}
		}
	})
	for range threads {
		wg.Go(func() {
			for j := range todo {
				work(j)
				j.ready <- struct{}{}
			}
		})
	}
	var failed, ended error
	for j := range order {
		<-j.ready
		if failed == nil {
			if failed = write(j); failed != nil {
				cancel()
			}
			ended = j.err
		}
		budget.release(j.weight)
		j.reset()
		free <- j
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	return ended
}

// budget bounds the sum of the weights that are out at one time. One weight alone may exceed it.
type budget struct {
	mu    sync.Mutex
	freed *sync.Cond
	used  int64
	most  int64
}

func newBudget(most int64) *budget {
	b := &budget{most: most}
	b.freed = sync.NewCond(&b.mu)
	return b
}

func (b *budget) acquire(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.used > 0 && b.used+n > b.most {
		b.freed.Wait()
	}
	b.used += n
}

func (b *budget) release(n int64) {
	b.mu.Lock()
	b.used -= n
	b.mu.Unlock()
	b.freed.Broadcast()
}
