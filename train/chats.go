package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/corpus"
)

// ChatInfo describes the conversations of a run.
type ChatInfo struct {
	Template string       `json:"template"`
	Train    chat.Packing `json:"train"`
	Held     chat.Packing `json:"held"`
	Added    []string     `json:"added,omitempty"` // special tokens that the tokenizer lacked
	Bad      int64        `json:"bad,omitempty"`   // broken lines that SkipBad left out
}

// openChats reads the conversations of c, encodes them with the base model's
// tokenizer, to which it adds what the template needs, and packs them.
func (d *data) openChats(ctx context.Context, c Config, base baseModel) error {
	if err := d.chatTokenizer(c, base); err != nil {
		return err
	}
	train, held, err := d.loadChats(ctx, c)
	if err != nil {
		return err
	}
	if d.hash, err = checkHash(c, train, held); err != nil {
		return err
	}
	s, err := chat.NewSampler(train, c.Context, c.Seed)
	if err != nil {
		return err
	}
	w, err := chat.NewWindows(held, c.Context)
	if err != nil {
		return fmt.Errorf("held-out conversations: %w", err)
	}
	d.batches, d.held = s, []Windows{w}
	d.chats.Train, d.chats.Held = s.Packing(), w.Packing()
	d.passTokens = d.chats.Train.Rows * int64(c.Context)
	d.heldTokens = d.chats.Held.Rows * int64(c.Context)
	d.chatNotices(c)
	return nil
}

// chatTokenizer settles template and tokenizer.
func (d *data) chatTokenizer(c Config, base baseModel) error {
	name, t := cmp.Or(c.Template, base.template, chat.Default), base.tokenizer
	var err error
	if d.chatTemplate, err = chat.Lookup(name); err != nil {
		return err
	}
	if c.InitFrom == "" {
		if t, err = bpe.Load(c.Tokenizer); err != nil {
			return err
		}
	}
	if t == nil {
		return fmt.Errorf("%s holds no tokenizer, without which conversations cannot be read: import it again from a folder that has tokenizer.json", base.path)
	}
	d.template = d.chatTemplate.Name()
	d.chats = &ChatInfo{Template: d.template, Added: d.chatTemplate.Missing(t)}
	if d.tokenizer, err = t.WithSpecials(d.chatTemplate.Specials()...); err != nil {
		return fmt.Errorf("adding the tokens of the chat template %s: %w", d.template, err)
	}
	d.vocab = d.tokenizer.VocabSize()
	d.fresh = idRange{t.VocabSize(), d.vocab}
	return nil
}

// loadChats reads what is trained on and what is held out.
func (d *data) loadChats(ctx context.Context, c Config) (train, held *chat.Set, err error) {
	opt := chat.LoadOptions{
		Input: corpus.InputOptions{Paths: c.Chats, SkipBad: c.SkipBad}, Template: d.chatTemplate, Tokenizer: d.tokenizer,
		ValFraction: c.ValFraction, Seed: c.Seed,
	}
	if c.ValData != "" {
		opt.ValFraction = 0
	}
	l, err := chat.Load(ctx, opt)
	if err != nil {
		return nil, nil, err
	}
	d.chats.Bad = l.Files.Bad
	if l.Train.Len() == 0 {
		return nil, nil, fmt.Errorf("no conversations in %s", strings.Join(c.Chats, ", "))
	}
	if c.ValData == "" && l.Val.Len() == 0 {
		return nil, nil, fmt.Errorf("%s: all of the %d conversations are equal, so none can be held out to measure on: give more of them, or others with --val-data",
			strings.Join(c.Chats, ", "), l.Train.Len())
	}
	if c.ValData == "" {
		return l.Train, l.Val, nil
	}
	opt.Input.Paths = []string{c.ValData}
	v, err := chat.Load(ctx, opt)
	if err != nil {
		return nil, nil, err
	}
	d.chats.Bad += v.Files.Bad
	return l.Train, v.Train, nil
}

// HeldOutChats reads the conversations that the run of c holds out, written
// with the tokenizer of its model, in rows of T tokens; ctx ends the reading.
// The files must be those that the run began with. byteLens, which
// NewWindowsEvaluator takes, are the bytes of text behind each id.
func HeldOutChats(ctx context.Context, c Config, tok *bpe.Tokenizer, T int) (w *chat.Windows, byteLens []int32, err error) {
	c = c.withDefaults()
	d := &data{tokenizer: tok, chats: &ChatInfo{}}
	if d.chatTemplate, err = chat.Lookup(cmp.Or(c.Template, chat.Default)); err != nil {
		return nil, nil, err
	}
	train, held, err := d.loadChats(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	if _, err := checkHash(c, train, held); err != nil {
		return nil, nil, err
	}
	if w, err = chat.NewWindows(held, T); err != nil {
		return nil, nil, err
	}
	return w, corpus.TokenBytes(tok.Decode, tok.VocabSize(), tok.EndOfDocument(), tok.IsSpecial), nil
}

// checkHash makes sure that a resumed run has the conversations that it began
// with: its cursor means nothing in others.
func checkHash(c Config, train, held *chat.Set) (string, error) {
	a, b := train.Hash(), held.Hash()
	sum := sha256.Sum256(append(a[:], b[:]...))
	hash := hex.EncodeToString(sum[:])
	if c.ChatsHash != "" && c.ChatsHash != hash {
		return "", fmt.Errorf("the conversations in %s are not those that the run began with: give it the same files back, or start a new run with --init",
			strings.Join(c.Chats, ", "))
	}
	return hash, nil
}

// chatNotices says what of the conversations is not as it could be.
func (d *data) chatNotices(c Config) {
	say := func(format string, args ...any) { d.notices = append(d.notices, fmt.Sprintf(format, args...)) }
	if n := d.chats.Bad; n > 0 {
		say("broken lines of conversations left out: %d", n)
	}
	p := d.chats.Train
	if p.Truncated > 0 {
		say("%d of %d conversations are longer than the context of %d tokens and are cut there: a longer --context keeps them whole",
			p.Truncated, p.Conversations, c.Context)
	}
	if p.Skipped > 0 {
		say("%d conversations are left out: their first answer begins past the context of %d tokens", p.Skipped, c.Context)
	}
}
