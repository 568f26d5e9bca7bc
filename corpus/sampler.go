package corpus

import (
	"errors"
	"fmt"
	"math"
)

// IgnoreTarget is the target of a position that does not count in the loss.
const IgnoreTarget = -1

// Source is a range of tokens of a dataset, [Lo, Hi), and its share in a mixture.
type Source struct {
	Data   *Dataset
	Lo, Hi int64
	// Weight is the share of the tokens drawn from this source, relative to the sum of the weights. When all weights are
	// 0 the shares are the sizes.
	Weight float64
}

// Whole is all of a dataset.
func Whole(d *Dataset) Source { return Source{Data: d, Hi: d.Len()} }

// Len is the number of tokens.
func (s Source) Len() int64 { return s.Hi - s.Lo }

// check makes sure that the source has at least one window of T tokens with their targets.
func (s Source) check(T int) error {
	switch {
	case s.Data == nil:
		return errors.New("source without data")
	case T < 1:
		return fmt.Errorf("context of %d tokens, want at least 1", T)
	case s.Lo < 0 || s.Hi > s.Data.Len() || s.Lo > s.Hi:
		return fmt.Errorf("source %s: range %d to %d, it has %d tokens", s.Data.Name(), s.Lo, s.Hi, s.Data.Len())
	case s.Len() < int64(T)+1:
		return fmt.Errorf("source %s: %d tokens are fewer than one window of %d and its last target: give more text or a "+
			"shorter context", s.Data.Name(), s.Len(), T)
	}
	return nil
}

// SamplerOptions configures NewSampler.
type SamplerOptions struct {
	Sources []Source
	Context int // T, tokens of a window
	Seed    uint64
	// DocMask keeps the documents of a window apart: Next fills docStart so that attention does not cross a document's
	// start, and the target of a document's last token, which would be the first token of the next document, is
	// IgnoreTarget. Without it documents are simply packed one after the other.
	DocMask bool
}

// Sampler draws training windows. In each epoch every window of a source comes once, in an order of its own that a
// seeded permutation computes without a table. The windows of an epoch begin at a random offset, so that they are cut
// elsewhere each time. From several sources the next window is always taken where the number drawn lags most behind the
// weight. So everything drawn follows from the seed and one integer per source, the number of windows drawn. It must not
// be used from several goroutines at once.
type Sampler struct {
	opt     SamplerOptions
	sources []sampled
	row     []int32 // T+1 tokens
}

// sampled is a source with its place in its order.
type sampled struct {
	Source
	windows int64 // of an epoch
	slack   int64 // the offset of an epoch is at most this
	weight  float64
	drawn   int64

	epoch  int64 // for which order and offset are made
	order  permutation
	offset int64
}

// phaseWindows is the number of windows from which on one of them is given up for a free choice of the offset.
const phaseWindows = 16

// NewSampler checks the sources and stands before the first window.
func NewSampler(opt SamplerOptions) (*Sampler, error) {
	if len(opt.Sources) == 0 {
		return nil, errors.New("sampler: no sources")
	}
	if err := checkSources(&opt); err != nil {
		return nil, fmt.Errorf("sampler: %w", err)
	}
	s := &Sampler{opt: opt, row: make([]int32, opt.Context+1)}
	for _, src := range opt.Sources {
		s.sources = append(s.sources, newSampled(src, opt.Context))
	}
	return s, nil
}

func checkSources(opt *SamplerOptions) error {
	weighted := 0
	for _, src := range opt.Sources {
		if err := src.check(opt.Context); err != nil {
			return err
		}
		if err := sameVocabulary(opt.Sources[0].Data, src.Data); err != nil {
			return err
		}
		if !(src.Weight >= 0 && src.Weight <= math.MaxFloat32) {
			return fmt.Errorf("source %s has weight %v, want a positive number", src.Data.Name(), src.Weight)
		}
		if src.Weight > 0 {
			weighted++
		}
	}
	if weighted > 0 && weighted < len(opt.Sources) {
		return errors.New("some sources have a weight and some do not: give one to each or to none")
	}
	return nil
}

func newSampled(src Source, T int) sampled {
	n, t := src.Len()-1, int64(T) // each window needs the token after it as a target
	d := sampled{Source: src, windows: n / t, weight: src.Weight, epoch: -1}
	if d.windows >= phaseWindows {
		d.windows--
	}
	d.slack = n - d.windows*t
	if d.weight == 0 {
		d.weight = float64(d.windows)
	}
	return d
}

// sameVocabulary refuses to mix token files of different tokenizers.
func sameVocabulary(a, b *Dataset) error {
	if a.VocabSize() != b.VocabSize() {
		return fmt.Errorf("%s has a vocabulary of %d and %s of %d: build both with one tokenizer", a.Name(), a.VocabSize(),
			b.Name(), b.VocabSize())
	}
	var none [32]byte
	if x, y := a.TokenizerHash(), b.TokenizerHash(); x != y && x != none && y != none {
		return fmt.Errorf("%s and %s were made with different tokenizers: build both with one", a.Name(), b.Name())
	}
	return nil
}

// Next fills tokens and targets, both (B, T), with the next B = len(tokens)/T windows. docStart, which may be nil, gets
// for each position the first position of its row that it may see: 0, or with DocMask the start of its document.
func (s *Sampler) Next(tokens, targets, docStart []int32) error {
	if err := checkRows(s.opt.Context, tokens, targets, docStart); err != nil {
		return fmt.Errorf("sampler: %w", err)
	}
	T := s.opt.Context
	for at := 0; at < len(tokens); at += T {
		i := s.pick()
		src := &s.sources[i]
		if err := src.Data.Read(s.row, s.start(i)); err != nil {
			return fmt.Errorf("sampler: %w", err)
		}
		src.drawn++
		var starts []int32
		if docStart != nil {
			starts = docStart[at : at+T]
		}
		fillRow(src.Data, s.row, tokens[at:at+T], targets[at:at+T], starts, s.opt.DocMask)
	}
	return nil
}

func checkRows(T int, tokens, targets, docStart []int32) error {
	if len(tokens) == 0 || len(tokens)%T != 0 {
		return fmt.Errorf("tokens has %d elements, want B·T with T %d", len(tokens), T)
	}
	if len(targets) != len(tokens) {
		return fmt.Errorf("targets has %d elements, want %d as tokens", len(targets), len(tokens))
	}
	if docStart != nil && len(docStart) != len(tokens) {
		return fmt.Errorf("docStart has %d elements, want %d as tokens, or nil", len(docStart), len(tokens))
	}
	return nil
}

// pick returns the source whose next window is due first: the one with the smallest (drawn+1)/weight, of equals the
// first. The share of each source then stays close to its weight at all times, not only in the long run.
func (s *Sampler) pick() int {
	best, least := 0, math.Inf(1)
	for i := range s.sources {
		if due := float64(s.sources[i].drawn+1) / s.sources[i].weight; due < least {
			best, least = i, due
		}
	}
	return best
}

// start returns the offset of the next window of source i.
func (s *Sampler) start(i int) int64 {
	src := &s.sources[i]
	if epoch := src.drawn / src.windows; epoch != src.epoch {
		src.setEpoch(epoch, mix64(s.opt.Seed)^mix64(uint64(i)+1))
	}
	w := int64(src.order.at(uint64(src.drawn % src.windows)))
	return src.Lo + src.offset + w*int64(s.opt.Context)
}

func (d *sampled) setEpoch(epoch int64, seed uint64) {
	d.epoch = epoch
	d.order = newPermutation(uint64(d.windows), seed, uint64(epoch))
	d.offset = int64(mix64(mix64(seed^0x0ff5e7)^uint64(epoch)) % uint64(d.slack+1))
}

// fillRow makes one row of a batch from T+1 tokens.
func fillRow(d *Dataset, row, tokens, targets, docStart []int32, docMask bool) {
	copy(tokens, row)
	copy(targets, row[1:])
	if docMask && d.endOfDocument >= 0 {
		for t, id := range tokens {
			if id == d.endOfDocument {
				targets[t] = IgnoreTarget
			}
		}
	}
	fillDocStart(d, tokens, docStart, docMask)
}

// fillDocStart relies on every document ending with the end-of-document token, which text never contains.
func fillDocStart(d *Dataset, tokens, docStart []int32, docMask bool) {
	first := int32(0)
	for t := range docStart {
		docStart[t] = first
		if docMask && d.endOfDocument >= 0 && tokens[t] == d.endOfDocument {
			first = int32(t) + 1
		}
	}
}

// Cursor returns the number of windows drawn from each source: with the options, the whole state of the sampler.
func (s *Sampler) Cursor() []int64 {
	c := make([]int64, len(s.sources))
	for i := range s.sources {
		c[i] = s.sources[i].drawn
	}
	return c
}

// SetCursor goes on where a sampler with the same options had this cursor.
func (s *Sampler) SetCursor(c []int64) error {
	if len(c) != len(s.sources) {
		return fmt.Errorf("sampler: cursor for %d sources, want %d: give the same data as before", len(c), len(s.sources))
	}
	for i, n := range c {
		if n < 0 {
			return fmt.Errorf("sampler: cursor %d of source %s is negative", n, s.sources[i].Data.Name())
		}
	}
	for i, n := range c {
		s.sources[i].drawn = n
	}
	return nil
}

// WindowsPerEpoch is the number of windows in one pass over all sources.
func (s *Sampler) WindowsPerEpoch() int64 {
	var n int64
	for i := range s.sources {
		n += s.sources[i].windows
	}
	return n
}

// Epoch is the number of windows drawn by the number in one pass over all sources.
func (s *Sampler) Epoch() float64 {
	var n int64
	for i := range s.sources {
		n += s.sources[i].drawn
	}
	return float64(n) / float64(s.WindowsPerEpoch())
}
