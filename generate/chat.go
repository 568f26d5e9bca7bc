package generate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tezgah/chat"
)

// Chat is a conversation with a model. It keeps the decoder's keys and values
// from turn to turn, so that a new message costs its own tokens only. When
// the context is full, the oldest exchanges (a user's message with its answer)
// no longer go into the prompt; the system message always does. It must not be
// used from several goroutines at once, and the decoder by nobody else.
type Chat struct {
	gen      Generator
	template *chat.Template
	opt      Options
	sampler  *Sampler

	system *turn  // nil for none
	turns  []turn // all that was said, a user's message and an answer in turn
	from   int    // turns before it are no longer in the prompt
	cached []int32
}

// turn is a message and its tokens, from the header to the tail. Those of an
// answer are the tokens that the model drew, which need not be the ones that
// its text has when it is encoded.
type turn struct {
	chat.Message
	ids []int32
}

// NewChat starts an empty conversation. An answer ends at the template's end
// token, at any other of its special tokens, at opt.StopIDs and opt.Stop. The
// sampler's random numbers run through the whole conversation.
func NewChat(g Generator, t *chat.Template, opt Options) (*Chat, error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	if err := t.Check(g.Tokenizer); err != nil {
		return nil, err
	}
	s, err := NewSampler(opt.Sampling)
	if err != nil {
		return nil, err
	}
	opt.noSlide = true
	opt.StopIDs = slices.Clone(opt.StopIDs)
	for _, content := range t.Specials() {
		id, _ := g.Tokenizer.SpecialID(content)
		opt.StopIDs = append(opt.StopIDs, id)
	}
	return &Chat{gen: g, template: t, opt: opt, sampler: s}, nil
}

// SetSystem replaces the system message; white space alone removes it. What
// was said stays.
func (c *Chat) SetSystem(text string) error {
	if strings.TrimSpace(text) == "" {
		c.system = nil
		return nil
	}
	m := chat.Message{Role: chat.System, Content: text}
	if err := chat.Validate([]chat.Message{m}); err != nil {
		return err
	}
	c.system = &turn{m, c.encode(m)}
	return nil
}

// Reset forgets everything said, but not the system message.
func (c *Chat) Reset() { c.turns, c.from = nil, 0 }

// Messages returns the whole conversation, with what the prompt no longer has.
func (c *Chat) Messages() []chat.Message {
	var list []chat.Message
	if c.system != nil {
		list = append(list, c.system.Message)
	}
	for _, t := range c.turns {
		list = append(list, t.Message)
	}
	return list
}

// encode returns the tokens of a whole message.
func (c *Chat) encode(m chat.Message) []int32 {
	tok := c.gen.Tokenizer
	ids := c.template.Content(c.template.Open(nil, tok, m.Role), tok, m)
	return c.template.Tail(append(ids, c.template.End(tok)), tok)
}

// Ask says something and streams the answer to emit as Generate does. An
// answer that a cancelled context cuts short stays in the conversation as far
// as it came, and comes back with the context's error; after any other error,
// and when the answer is empty, it is as if nothing had been said.
func (c *Chat) Ask(ctx context.Context, text string, emit func(Piece) error) (Result, error) {
	m := chat.Message{Role: chat.User, Content: text}
	if err := chat.Validate([]chat.Message{m}); err != nil {
		return Result{}, err
	}
	before, from := len(c.turns), c.from
	c.turns = append(c.turns, turn{m, c.encode(m)})
	res, err := c.answer(ctx, emit)
	answer := chat.Message{Role: chat.Assistant, Content: res.Text}
	empty := chat.Validate([]chat.Message{answer}) != nil
	if empty || err != nil && res.Reason != "canceled" {
		c.turns, c.from = c.turns[:before], from
		if err == nil {
			res.Notes = append(res.Notes, "the answer is empty: neither it nor the message is kept")
		}
		return res, err
	}
	c.turns = append(c.turns, turn{answer, c.answerIDs(answer, res)})
	return res, err
}

// answerIDs are the tokens of an answer. One that a stop text ended has tokens
// beyond its text, which is encoded anew.
func (c *Chat) answerIDs(m chat.Message, res Result) []int32 {
	if res.Reason == "stop" {
		return c.encode(m)
	}
	tok := c.gen.Tokenizer
	ids := append(c.template.Open(nil, tok, chat.Assistant), res.IDs...)
	return c.template.Tail(append(ids, c.template.End(tok)), tok)
}

// answer generates the answer to the last turn.
func (c *Chat) answer(ctx context.Context, emit func(Piece) error) (res Result, err error) {
	prompt, err := c.prompt(&res)
	if err != nil {
		return res, err
	}
	dec := c.gen.Decoder
	c.sampler.seen = c.sampler.seen[:0]
	c.sampler.See(prompt...)
	begin := time.Now()
	logits, err := c.read(ctx, prompt, &res)
	if err == nil {
		res.PromptTime = time.Since(begin)
		res, err = c.gen.decode(ctx, logits, c.sampler, c.opt, emit, res)
	}
	c.cached = append(prompt, res.IDs...)
	if c.cached = c.cached[:min(dec.Pos(), len(c.cached))]; err != nil && !errors.Is(err, context.Canceled) {
		c.forget()
	}
	return res, err
}

// forget drops what the decoder has read.
func (c *Chat) forget() {
	c.gen.Decoder.Reset()
	c.cached = nil
}

// readPiece is the number of tokens that are read between two looks at the
// context.
const readPiece = 32

// read brings the decoder to the end of the prompt. What it has read before
// and still begins the prompt is kept.
func (c *Chat) read(ctx context.Context, prompt []int32, res *Result) (logits []float32, err error) {
	dec, n := c.gen.Decoder, len(c.cached)
	if n >= len(prompt) || n != dec.Pos() || !slices.Equal(c.cached, prompt[:n]) {
		c.forget()
		n = 0
	}
	res.PromptTokens, res.CachedTokens = len(prompt), n
	for n < len(prompt) {
		if err := ctx.Err(); err != nil {
			res.Reason = "canceled"
			return nil, err
		}
		end := len(prompt)
		if n > 0 {
			end = min(end, n+readPiece)
		}
		if logits, err = dec.Prefill(prompt[n:end]); err != nil {
			return nil, err
		}
		n = end
	}
	return logits, nil
}

// prompt puts together what the model reads: all turns that still fit with
// room for an answer, as whole exchanges.
func (c *Chat) prompt(res *Result) ([]int32, error) {
	slots := c.gen.Decoder.Slots()
	room := max(1, min(c.opt.MaxTokens, slots/4))
	before, ids := c.from, c.join()
	for next := c.nextExchange(); len(ids)+room > slots && next < len(c.turns); next = c.nextExchange() {
		c.from = next
		ids = c.join()
	}
	if len(ids) >= slots {
		return nil, fmt.Errorf("the message needs %d tokens with the system message, but the model's context holds %d, answer included: "+
			"say it in fewer words", len(ids), slots)
	}
	if c.from > before {
		res.Notes = append(res.Notes, fmt.Sprintf("the context of %d tokens is full: the model no longer sees the first %d messages",
			slots, c.from))
	}
	return ids, nil
}

// nextExchange is the place of the user's message after the oldest one that
// the prompt has.
func (c *Chat) nextExchange() int {
	for i := c.from + 1; i < len(c.turns); i++ {
		if c.turns[i].Role == chat.User {
			return i
		}
	}
	return len(c.turns)
}

// join returns the tokens of the prompt as it is.
func (c *Chat) join() []int32 {
	ids := c.template.Begin(nil, c.gen.Tokenizer)
	if c.system != nil {
		ids = append(ids, c.system.ids...)
	}
	for _, t := range c.turns[c.from:] {
		ids = append(ids, t.ids...)
	}
	return c.template.Open(ids, c.gen.Tokenizer, chat.Assistant)
}
