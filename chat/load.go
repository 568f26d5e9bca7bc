package chat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"tezgah/bpe"
	"tezgah/corpus"
)

// DefaultMaxTokens bounds the memory of a Load to 8 GiB of tokens.
const DefaultMaxTokens = 1 << 31

// LoadOptions says what Load reads and how.
type LoadOptions struct {
	Input     corpus.InputOptions // paths, globs, SkipBad; Column, Split and StdinFormat are not used
	Template  *Template
	Tokenizer *bpe.Tokenizer
	// ValFraction of the conversations, at least 0 and less than 1, are held out, chosen by a hash of the conversation
	// and Seed: equal conversations are always on the same side, whatever else the files hold.
	ValFraction float64
	Seed        uint64
	MaxTokens   int64                             // more is an error; 0 means DefaultMaxTokens
	Progress    func(conversations, tokens int64) // now and then; may be nil
}

// Loaded is what Load read.
type Loaded struct {
	Train, Val *Set             // Val is empty without ValFraction, or when there is only one conversation to choose from
	Files      corpus.WalkStats // conversations count as documents
}

// Load reads and encodes all conversations into memory, 4 bytes a token and 20 a conversation, on all processors; the
// result does not depend on their number. A conversation without an assistant's message is a bad line as one that cannot
// be parsed is: an error with file and line, or counted with SkipBad.
func Load(ctx context.Context, opt LoadOptions) (*Loaded, error) {
	if err := checkLoad(&opt); err != nil {
		return nil, fmt.Errorf("load chats: %w", err)
	}
	b := builder{opt: &opt, store: &store{}}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	train, val := b.split()
	return &Loaded{newSet(b.store, train), newSet(b.store, val), b.files}, nil
}

func checkLoad(opt *LoadOptions) error {
	if opt.MaxTokens == 0 {
		opt.MaxTokens = DefaultMaxTokens
	}
	switch {
	case opt.Template == nil || opt.Tokenizer == nil:
		return errors.New("no template or no tokenizer given")
	case !(opt.ValFraction >= 0 && opt.ValFraction < 1):
		return fmt.Errorf("validation fraction %v, want at least 0 and less than 1", opt.ValFraction)
	case opt.MaxTokens < 0:
		return fmt.Errorf("at most %d tokens, want a positive number", opt.MaxTokens)
	}
	return opt.Template.Check(opt.Tokenizer)
}

// builder fills a store: one goroutine reads lines into batches, others parse and encode them, and the caller's enters
// them in the order of the lines.
type builder struct {
	opt    *LoadOptions
	store  *store
	keys   []uint64 // by conversation: what its side depends on; only with ValFraction
	tokens int64
	files  corpus.WalkStats
}

// batch is a run of lines on its way.
type batch struct {
	lines []corpus.Line // with JSON of their own
	bytes int
	done  chan []encoded // receives one value: what became of each line
}

// encoded is a conversation, or why a line is none.
type encoded struct {
	ids   []int32
	learn []bool
	key   uint64
	err   error
}

// batchBytes is the size from which on a batch is handed over.
const batchBytes = 256 << 10

func (b *builder) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	threads := runtime.GOMAXPROCS(0)
	todo, order := make(chan *batch, 2*threads), make(chan *batch, 2*threads)
	var bad corpus.WalkStats
	var failed, ended error
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(todo)
		defer close(order)
		b.files, ended = b.read(ctx, func(x *batch) { order <- x; todo <- x })
	})
	for range threads {
		wg.Go(func() {
			for x := range todo {
				x.done <- b.encode(x.lines)
			}
		})
	}
	for x := range order {
		results := <-x.done
		if failed == nil {
			if failed = b.enter(x.lines, results, &bad); failed != nil {
				cancel()
			}
		}
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	b.files.Bad += bad.Bad
	b.files.Documents -= bad.Documents
	b.files.Bytes -= bad.Bytes
	if ended == nil && b.files.Documents == 0 {
		ended = fmt.Errorf("no conversations in %s: all %d lines are broken", strings.Join(b.opt.Input.Paths, ", "), b.files.Bad)
	}
	return ended
}

// read gives all lines away in batches.
func (b *builder) read(ctx context.Context, give func(*batch)) (corpus.WalkStats, error) {
	x := &batch{done: make(chan []encoded, 1)}
	files, err := corpus.WalkLines(ctx, b.opt.Input, func(l corpus.Line) error {
		l.JSON = bytes.Clone(l.JSON)
		x.lines = append(x.lines, l)
		if x.bytes += len(l.JSON); x.bytes >= batchBytes {
			give(x)
			x = &batch{done: make(chan []encoded, 1)}
		}
		return nil
	})
	if len(x.lines) > 0 {
		give(x)
	}
	return files, err
}

// encode parses and encodes lines; several goroutines do so at once.
func (b *builder) encode(lines []corpus.Line) []encoded {
	results := make([]encoded, len(lines))
	for i, l := range lines {
		r := &results[i]
		msgs, err := ParseLine(l.JSON)
		if err == nil && !slices.ContainsFunc(msgs, func(m Message) bool { return m.Role == Assistant }) {
			err = errNothingLearned
		}
		if err == nil {
			r.ids, r.learn, err = b.opt.Template.Encode(b.opt.Tokenizer, msgs)
		}
		if r.err = err; err == nil && b.opt.ValFraction > 0 {
			r.key = conversationKey(msgs, b.opt.Seed)
		}
	}
	return results
}

// errNothingLearned is a conversation that teaches nothing.
var errNothingLearned = errors.New("the conversation has no assistant message to learn from")

// progressEvery is the number of conversations between two calls of Progress.
const progressEvery = 1000

// enter adds the conversations of a batch to the store. Lines that are skipped are counted in bad, with what
// corpus.WalkLines counted them as.
func (b *builder) enter(lines []corpus.Line, results []encoded, bad *corpus.WalkStats) error {
	for i, r := range results {
		l := lines[i]
		if r.err != nil {
			if !b.opt.Input.SkipBad {
				return fmt.Errorf("%w (--skip-bad leaves broken lines out)", &corpus.BadInputError{Path: l.Source, Line: l.Line, Err: r.err})
			}
			bad.Bad, bad.Documents, bad.Bytes = bad.Bad+1, bad.Documents+1, bad.Bytes+int64(len(l.JSON))
			continue
		}
		if b.tokens += int64(len(r.ids)); b.tokens > b.opt.MaxTokens {
			return fmt.Errorf("%s:%d: the conversations up to here have more than %d tokens, which is all that is kept in memory: "+
				"fine-tune on a part of them", l.Source, l.Line, b.opt.MaxTokens)
		}
		b.store.add(r.ids, r.learn)
		if b.opt.ValFraction > 0 {
			b.keys = append(b.keys, r.key)
		}
		if n := len(b.store.spans); b.opt.Progress != nil && n%progressEvery == 0 {
			b.opt.Progress(int64(n), b.tokens)
		}
	}
	return nil
}
