package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tezgah/bpe"
	"tezgah/model"
)

// Options of one generation.
type Options struct {
	Sampling
	MaxTokens int      // new tokens; 0: 256
	Stop      []string // end before the first of these texts
	StopIDs   []int32  // end at any of these tokens, as at the end-of-document token
	// IgnoreEnd goes on past the end-of-document token and StopIDs.
	IgnoreEnd bool
	// Alternatives asks for so many of the likeliest tokens with each Piece.
	Alternatives int

	noSlide bool // end when the context is full
}

// Piece is one generated token. Text is what can be shown now: it is empty
// while a UTF-8 character or a possible stop text is incomplete.
type Piece struct {
	ID           int32
	Text         string
	Prob         float64 // under the sampling settings
	Alternatives []Candidate
}

// Result says how a generation ended.
type Result struct {
	Text         string  // all new text
	IDs          []int32 // the new tokens, without the one that ended them
	PromptTokens int     // after cutting
	CachedTokens int     // of the prompt that were read in an earlier turn; Chat only
	NewTokens    int
	Reason       string        // "end" of document or turn, "stop" text, "length", "context" full (Chat only), "canceled"
	Notes        []string      // for the user: a cut prompt, sliding past the context
	PromptTime   time.Duration // reading the prompt
	DecodeTime   time.Duration
}

// TokPerSec is the speed of the new tokens after the first.
func (r Result) TokPerSec() float64 {
	if r.NewTokens < 2 || r.DecodeTime <= 0 {
		return 0
	}
	return float64(r.NewTokens-1) / r.DecodeTime.Seconds()
}

// Generator holds what one generation needs. Decoder and Tokenizer must belong
// to the same model.
type Generator struct {
	Decoder   *model.Decoder
	Tokenizer *bpe.Tokenizer
}

// Generate continues a prompt and calls emit with each piece as it comes. An
// empty prompt starts a new document. A prompt longer than the context keeps
// its end, with a note; generation past the context goes on with a window that
// slides. The text before a cancellation is returned with the context's error.
func (g Generator) Generate(ctx context.Context, prompt string, opt Options, emit func(Piece) error) (Result, error) {
	return g.GenerateIDs(ctx, g.Tokenizer.EncodeWithSpecials(nil, []byte(prompt)), opt, emit)
}

// GenerateIDs is Generate with a prompt of tokens, such as a chat template's
// Prompt with its End among opt.StopIDs.
func (g Generator) GenerateIDs(ctx context.Context, prompt []int32, opt Options, emit func(Piece) error) (Result, error) {
	var res Result
	if err := opt.check(); err != nil {
		return res, err
	}
	s, err := NewSampler(opt.Sampling)
	if err != nil {
		return res, err
	}
	if prompt, err = g.fit(prompt, &res); err != nil {
		return res, err
	}
	s.See(prompt...)
	g.Decoder.Reset()
	begin := time.Now()
	logits, err := g.Decoder.Prefill(prompt)
	if err != nil {
		return res, err
	}
	res.PromptTime = time.Since(begin)
	return g.decode(ctx, logits, s, opt, emit, res)
}

// check fills in the default of MaxTokens.
func (opt *Options) check() error {
	if opt.MaxTokens == 0 {
		opt.MaxTokens = 256
	}
	if opt.MaxTokens < 0 {
		return fmt.Errorf("max-tokens is %d, want a positive number", opt.MaxTokens)
	}
	return nil
}

// fit cuts the prompt to what the decoder's cache holds.
func (g Generator) fit(ids []int32, res *Result) ([]int32, error) {
	if len(ids) == 0 {
		end := g.Tokenizer.EndOfDocument()
		if end < 0 {
			return nil, errors.New("the prompt is empty and the tokenizer has no end-of-document token to start from: give a --prompt")
		}
		ids = []int32{end}
	}
	if n := g.Decoder.Slots(); len(ids) > n {
		res.Notes = append(res.Notes, fmt.Sprintf("the prompt has %d tokens and the model's context holds %d: only the last %d are read", len(ids), n, n))
		ids = ids[len(ids)-n:]
	}
	res.PromptTokens = len(ids)
	return ids, nil
}

func (g Generator) decode(ctx context.Context, logits []float32, s *Sampler, opt Options, emit func(Piece) error, res Result) (Result, error) {
	out := newStream(g.Tokenizer.NewStream(), opt.Stop)
	begin := time.Now()
	finish := func(reason string, err error) (Result, error) {
		res.DecodeTime = time.Since(begin)
		res.Reason = reason
		if rest := out.flush(); rest != "" && err == nil {
			err = emit(Piece{ID: -1, Text: rest})
		}
		res.Text = out.text.String()
		return res, err
	}
	slid := false
	for {
		if err := ctx.Err(); err != nil {
			return finish("canceled", err)
		}
		var alternatives []Candidate
		if opt.Alternatives > 0 {
			alternatives = Top(logits, opt.Alternatives)
		}
		c, err := s.Next(logits)
		if err != nil {
			return finish("failed", err)
		}
		if !opt.IgnoreEnd && (c.ID == g.Tokenizer.EndOfDocument() || slices.Contains(opt.StopIDs, c.ID)) {
			return finish("end", nil)
		}
		res.IDs = append(res.IDs, c.ID)
		res.NewTokens++
		text, stopped := out.push(c.ID)
		if err := emit(Piece{ID: c.ID, Text: text, Prob: c.Prob, Alternatives: alternatives}); err != nil {
			return finish("failed", err)
		}
		switch {
		case stopped:
			return finish("stop", nil)
		case res.NewTokens == opt.MaxTokens:
			return finish("length", nil)
		}
		if g.Decoder.Pos() >= g.Decoder.Slots() && opt.noSlide {
			return finish("context", nil)
		}
		if g.Decoder.Pos() >= g.Decoder.Slots() && !slid {
			slid = true
			res.Notes = append(res.Notes, fmt.Sprintf("past the model's context of %d tokens the window slides: earlier text is forgotten", g.Decoder.Slots()))
		}
		if logits, err = g.Decoder.Step([]int32{c.ID}); err != nil {
			return finish("failed", err)
		}
	}
}

// stream turns ids into text to show, holding back what may become a stop text.
type stream struct {
	dec  *bpe.Stream
	stop []string
	held string
	text strings.Builder
	done bool
}

func newStream(dec *bpe.Stream, stop []string) *stream {
	s := &stream{dec: dec}
	for _, x := range stop {
		if x != "" {
			s.stop = append(s.stop, x)
		}
	}
	return s
}

// push adds one token and returns the text that can be shown; stopped means
// that a stop text came, which is not shown.
func (s *stream) push(id int32) (show string, stopped bool) {
	s.held += s.dec.Push(id)
	cut := -1
	for _, x := range s.stop {
		if i := strings.Index(s.held, x); i >= 0 && (cut < 0 || i < cut) {
			cut = i
		}
	}
	if cut >= 0 {
		show, s.held, s.done = s.held[:cut], "", true
		s.text.WriteString(show)
		return show, true
	}
	keep := 0
	for _, x := range s.stop {
		keep = max(keep, overlap(s.held, x))
	}
	show, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
	s.text.WriteString(show)
	return show, false
}

// overlap is the length of the longest end of text that begins stop.
func overlap(text, stop string) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if strings.HasSuffix(text, stop[:n]) {
			return n
		}
	}
	return 0
}

// flush returns what is still held back at the end of a generation that no
// stop text ended.
func (s *stream) flush() string {
	if s.done {
		return ""
	}
	rest := s.held + s.dec.Flush()
	s.held = ""
	s.text.WriteString(rest)
	return rest
}
