// Package chat turns conversations into tokens: templates that write roles and messages with special tokens, the
// reading of {"messages": …} jsonl, and the batches of fine-tuning on them, where the loss counts the assistant's
// tokens alone.
//
//	template.go  Template: messages to tokens, with what is learned; names.go holds chatml and llama3
//	message.go   Message and its JSON
//	read.go      ParseLine: one line of jsonl
//	load.go      Load: the conversations of files and folders, encoded in memory (set.go), a part held out (split.go)
//	pack.go      conversations packed into rows of T tokens
//	sampler.go   Sampler: rows in a seeded order, for training; Windows: in a fixed order, for evaluation
//
// docs/chat.md shows the file shapes and both templates byte by byte. The package trains nothing, generates nothing
// (see generate.Chat) and interprets no Jinja: it recognises the templates that it has. Open template.go first.
package chat

import (
	"fmt"
	"strings"

	"tezgah/bpe"
)

// Template is a way to write a conversation as tokens: special tokens mark where a message begins and ends and whose it
// is. It does not change and may be used from several goroutines at once.
//
// Every piece of text is encoded on its own: the header of a message ("assistant" and a line break), its content, what
// follows it. A training text then begins an answer with exactly the tokens that Prompt ends with, whatever the answer
// is, and special tokens that a content spells out stay plain text, so that no user can forge the end of a turn.
// Encoding Text as a whole gives the same tokens unless a content begins with white space or spells a special token.
type Template struct {
	name  string
	begin string // special token before the first message; "" for none
	open  string // special token before the name of the role
	close string // special token after it; "" for none
	gap   string // text between that and the content
	end   string // special token after the content
	tail  string // text after that
	trim  bool   // contents lose the white space on both sides
	jinja string
}

// Name is the name that Lookup knows and model files carry.
func (t *Template) Name() string { return t.name }

// Specials lists the special tokens that a tokenizer must have, in the order in which bpe's WithSpecials should add them.
func (t *Template) Specials() []string {
	var list []string
	for _, s := range []string{t.begin, t.open, t.close, t.end} {
		if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// Missing lists those of Specials that tok does not have.
func (t *Template) Missing(tok *bpe.Tokenizer) []string {
	var list []string
	for _, s := range t.Specials() {
		if _, ok := tok.SpecialID(s); !ok {
			list = append(list, s)
		}
	}
	return list
}

// Check is an error that names what Missing lists.
func (t *Template) Check(tok *bpe.Tokenizer) error {
	if missing := t.Missing(tok); len(missing) > 0 {
		return fmt.Errorf("the tokenizer has no %s, which the chat template %s needs: fine-tuning on chats adds them (tezgah train --sft)",
			strings.Join(missing, ", "), t.name)
	}
	return nil
}

// Jinja is the template in the language of Hugging Face's chat_template. apply_chat_template of transformers makes of it
// the text that Text returns, with add_generation_prompt as with prompt.
func (t *Template) Jinja() string { return t.jinja }

// EndText is the content of the special token that ends a turn.
func (t *Template) EndText() string { return t.end }

// End is the token that ends a turn, at which generation stops; −1 when tok does not have it.
func (t *Template) End(tok *bpe.Tokenizer) int32 { return t.special(tok, t.end) }

func (t *Template) special(tok *bpe.Tokenizer, content string) int32 {
	if id, ok := tok.SpecialID(content); ok {
		return id
	}
	return -1
}

// Text is the conversation as text, special tokens as their contents. With prompt it ends by opening an assistant's turn.
func (t *Template) Text(msgs []Message, prompt bool) (string, error) {
	if err := Validate(msgs); err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(t.begin)
	for _, m := range msgs {
		b.WriteString(t.open + m.Role + t.close + t.gap + t.content(m) + t.end + t.tail)
	}
	if prompt {
		b.WriteString(t.open + Assistant + t.close + t.gap)
	}
	return b.String(), nil
}

func (t *Template) content(m Message) string {
	if t.trim {
		return trim(m.Content)
	}
	return m.Content
}

// Encode returns the tokens of a conversation. learn, of the same length, marks those that the loss counts: the
// contents of the assistant and the end token after each.
func (t *Template) Encode(tok *bpe.Tokenizer, msgs []Message) (ids []int32, learn []bool, err error) {
	if err := t.Check(tok); err != nil {
		return nil, nil, err
	}
	if err := Validate(msgs); err != nil {
		return nil, nil, err
	}
	ids = t.Begin(nil, tok)
	for _, m := range msgs {
		ids = t.Open(ids, tok, m.Role)
		learn = extend(learn, len(ids), false)
		ids = append(t.Content(ids, tok, m), t.End(tok))
		learn = extend(learn, len(ids), m.Role == Assistant)
		ids = t.Tail(ids, tok)
	}
	return ids, extend(learn, len(ids), false), nil
}

// extend appends v until there are n values.
func extend(learn []bool, n int, v bool) []bool {
	for len(learn) < n {
		learn = append(learn, v)
	}
	return learn
}

// Prompt returns the tokens after which the assistant's next answer follows: the conversation and the opening of an
// assistant's turn.
func (t *Template) Prompt(tok *bpe.Tokenizer, msgs []Message) ([]int32, error) {
	ids, _, err := t.Encode(tok, msgs)
	if err != nil {
		return nil, err
	}
	return t.Open(ids, tok, Assistant), nil
}

// Begin appends the tokens before the first message. Begin, Open, Content and Tail are the pieces of Encode and Prompt,
// for a session that grows message by message; tok must have passed Check.
func (t *Template) Begin(dst []int32, tok *bpe.Tokenizer) []int32 {
	if t.begin == "" {
		return dst
	}
	return append(dst, t.special(tok, t.begin))
}

// Open appends the header of a message.
func (t *Template) Open(dst []int32, tok *bpe.Tokenizer, role string) []int32 {
	dst = append(dst, t.special(tok, t.open))
	if t.close == "" {
		return tok.Encode(dst, []byte(role+t.gap))
	}
	dst = tok.Encode(dst, []byte(role))
	dst = append(dst, t.special(tok, t.close))
	return tok.Encode(dst, []byte(t.gap))
}

// Content appends the content of a message.
func (t *Template) Content(dst []int32, tok *bpe.Tokenizer, m Message) []int32 {
	return tok.Encode(dst, []byte(t.content(m)))
}

// Tail appends what follows the end token of a message.
func (t *Template) Tail(dst []int32, tok *bpe.Tokenizer) []int32 {
	return tok.Encode(dst, []byte(t.tail))
}
