package bpe

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unicode/utf8"
)

// TrainOptions says what to train. The zero value of a field means its default.
type TrainOptions struct {
	VocabSize     int      // ids in all: 256 bytes, merges and special tokens; default 32,768, at most 131,072
	Pattern       string   // pre-token pattern, see Patterns; default "llama3"
	SpecialTokens []string // nil means "<|endoftext|>" alone; an empty slice means none. They take the last ids
	MinPairCount  int      // pairs that occur less often are not merged; default 2
	NFC           bool     // bring text to normalisation form C, in training and in encoding
	MaxTokenBytes int      // longest token; default no limit
	Threads       int      // default one per processor; the result does not depend on it
	Progress      func(Progress)
}

// Progress tells how far training is. It is called now and then, from the goroutine that calls Add or Train.
type Progress struct {
	Stage string // "count" or "merge"
	Done  int64  // bytes counted, or tokens made
	Total int64  // 0 while unknown, or tokens to make
}

// MaxVocabSize is the largest vocabulary that can be trained.
const MaxVocabSize = 1 << 17

// Trainer learns a vocabulary: Add every document, then Train once. Its methods must not be called concurrently; they
// spread the work over threads themselves.
type Trainer struct {
	opt      TrainOptions
	rules    rules
	words    *wordCounts
	counters []*counter // one per thread
	batch    *batch     // being filled
	running  chan *batch
	seen     int64 // bytes
	done     bool
}

// NewTrainer checks the options.
func NewTrainer(opt TrainOptions) (*Trainer, error) {
	setDefaults(&opt)
	r, err := rulesByName(opt.Pattern)
	if err != nil {
		return nil, err
	}
	if err := checkSpecials(opt.SpecialTokens); err != nil {
		return nil, err
	}
	least := 256 + len(opt.SpecialTokens)
	switch {
	case opt.VocabSize < least || opt.VocabSize > MaxVocabSize:
		return nil, fmt.Errorf("bpe: vocabulary size is %d, want %d (256 bytes and %d special tokens) to %d", opt.VocabSize,
			least, len(opt.SpecialTokens), MaxVocabSize)
	case opt.MinPairCount < 1:
		return nil, fmt.Errorf("bpe: minimum pair count is %d, want at least 1", opt.MinPairCount)
	case opt.MaxTokenBytes < 0:
		return nil, fmt.Errorf("bpe: longest token is %d bytes, want at least 1, or 0 for no limit", opt.MaxTokenBytes)
	case opt.Threads < 0:
		return nil, fmt.Errorf("bpe: number of threads is %d, want at least 1, or 0 for one per processor", opt.Threads)
	}
	t := &Trainer{opt: opt, rules: r, words: newWordCounts(), batch: new(batch), running: make(chan *batch, 1)}
	t.running <- new(batch)
	for range opt.Threads {
		t.counters = append(t.counters, t.words.newCounter())
	}
	return t, nil
}

func setDefaults(opt *TrainOptions) {
	if opt.VocabSize == 0 {
		opt.VocabSize = 32768
	}
	if opt.Pattern == "" {
		opt.Pattern = string(Llama3)
	}
	if opt.SpecialTokens == nil {
		opt.SpecialTokens = []string{"<|endoftext|>"}
	}
	if opt.MinPairCount == 0 {
		opt.MinPairCount = 2
	}
	if opt.Threads == 0 {
		opt.Threads = runtime.GOMAXPROCS(0)
	}
}

// checkSpecials refuses contents that a tokenizer.json could not tell from ordinary tokens.
func checkSpecials(contents []string) error {
	seen := make(map[string]bool)
	for _, s := range contents {
		switch {
		case s == "":
			return errors.New("bpe: a special token is empty")
		case !utf8.ValidString(s):
			return fmt.Errorf("bpe: special token %q is not valid UTF-8", s)
		case seen[s]:
			return fmt.Errorf("bpe: special token %q is given twice", s)
		case utf8.RuneCountInString(s) == 1 && isByteChar(s):
			return fmt.Errorf("bpe: special token %q is already the token of a single byte; choose a longer one", s)
		}
		seen[s] = true
	}
	return nil
}

func isByteChar(s string) bool {
	_, ok := fromAlphabet(s)
	return ok
}

// batch is a run of documents that is counted in one go.
type batch struct {
	data []byte
	ends []int // of each part in data
}

const (
	batchPerThread = 1 << 20   // bytes
	partSize       = 128 << 10 // documents are cut into parts of about this size
)

var errTrained = errors.New("bpe: the trainer has already trained; make a new one")

// Add counts the pre-tokens of one document. The document is copied, and counted together with others while the caller
// goes on. Special tokens in it are ordinary text.
func (t *Trainer) Add(doc []byte) error {
	if t.done {
		return errTrained
	}
	limit := batchPerThread * len(t.counters)
	pieces(doc, partSize, func(part []byte) {
		if len(t.batch.data)+len(part) > limit && len(t.batch.data) > 0 {
			t.launch()
		}
		t.batch.data = append(t.batch.data, part...)
		t.batch.ends = append(t.batch.ends, len(t.batch.data))
		t.seen += int64(len(part))
	})
	return nil
}

// AddBatch adds several documents.
func (t *Trainer) AddBatch(docs [][]byte) error {
	for _, doc := range docs {
		if err := t.Add(doc); err != nil {
			return err
		}
	}
	return nil
}

// launch waits for the batch being counted, starts counting the full one and goes on filling the other.
func (t *Trainer) launch() {
	free := <-t.running
	full := t.batch
	go func() {
		t.countBatch(full)
		t.running <- full
	}()
	free.data, free.ends = free.data[:0], free.ends[:0]
	t.batch = free
	t.report("count", t.seen, 0)
}

// countBatch spreads the parts of a batch over the counters.
func (t *Trainer) countBatch(b *batch) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for _, c := range t.counters {
		wg.Go(func() {
			for {
				k := int(next.Add(1)) - 1
				if k >= len(b.ends) {
					return
				}
				start := 0
				if k > 0 {
					start = b.ends[k-1]
				}
				text := b.data[start:b.ends[k]]
				if t.opt.NFC {
					text = normalizeNFC(text)
				}
				c.count(&t.rules, text)
			}
		})
	}
	wg.Wait()
}

func (t *Trainer) report(stage string, done, total int64) {
	if t.opt.Progress != nil {
		t.opt.Progress(Progress{stage, done, total})
	}
}

// Train learns the merges from everything that was added and returns the tokenizer. It has fewer than VocabSize ids when
// the text has no further pair that occurs MinPairCount times. A cancelled context ends it with the context's error.
func (t *Trainer) Train(ctx context.Context) (*Tokenizer, error) {
	if t.done {
		return nil, errTrained
	}
	t.done = true
	t.launch()
	<-t.running
	for _, c := range t.counters {
		c.flush()
	}
	t.counters, t.batch = nil, nil
	l, err := newLearner(t)
	if err != nil {
		return nil, err
	}
	t.words = nil
	if err := l.run(ctx, t); err != nil {
		return nil, err
	}
	d := l.definition(t)
	return newTokenizer(d, writeJSON(d))
}
