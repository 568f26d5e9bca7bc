package generate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"tezgah/bpe"
	"tezgah/chat"
)

// newChat makes an untrained model whose tokenizer has a template's tokens.
func newChat(t *testing.T, template string, slots int, opt Options) *Chat {
	t.Helper()
	tpl, err := chat.Lookup(template)
	if err != nil {
		t.Fatal(err)
	}
	g := newGeneratorWith(t, slots, func(tok *bpe.Tokenizer) *bpe.Tokenizer {
		tok, err := tok.WithSpecials(tpl.Specials()...)
		if err != nil {
			t.Fatal(err)
		}
		return tok
	})
	c, err := NewChat(g, tpl, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func ask(t *testing.T, c *Chat, text string) (ids []int32, res Result) {
	t.Helper()
	res, err := c.Ask(context.Background(), text, func(p Piece) error {
		if p.ID >= 0 {
			ids = append(ids, p.ID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, res.IDs) {
		t.Errorf("emitted %v, the result has %v", ids, res.IDs)
	}
	return ids, res
}

// TestChatCacheChangesNothing: a conversation whose decoder remembers answers
// as one does that reads everything anew for every turn, and reads only what
// is new.
func TestChatCacheChangesNothing(t *testing.T) {
	for _, template := range chat.Names() {
		opt := Options{MaxTokens: 9, IgnoreEnd: true, Sampling: Sampling{Temperature: 0.7, Seed: 5, RepetitionPenalty: 1.1}}
		warm, cold := newChat(t, template, 200, opt), newChat(t, template, 200, opt)
		for _, c := range []*Chat{warm, cold} {
			if err := c.SetSystem("be a loom"); err != nil {
				t.Fatal(err)
			}
		}
		for turn, text := range []string{"hums", "The thread?", strings.Repeat("ışıl ", 12), "東京"} {
			seen := warm.gen.Decoder.Pos()
			a, resA := ask(t, warm, text)
			cold.forget()
			b, resB := ask(t, cold, text)
			if !slices.Equal(a, b) {
				t.Fatalf("%s, turn %d: %v with the cache, %v without", template, turn, a, b)
			}
			if resA.CachedTokens != seen || resB.CachedTokens != 0 || turn > 0 && seen == 0 {
				t.Errorf("%s, turn %d: %d of %d tokens seen were used, %d without the cache", template, turn, resA.CachedTokens, seen, resB.CachedTokens)
			}
			if resA.PromptTokens != resB.PromptTokens {
				t.Errorf("%s, turn %d: prompts of %d and %d tokens", template, turn, resA.PromptTokens, resB.PromptTokens)
			}
		}
		if !slices.Equal(warm.Messages(), cold.Messages()) || len(warm.Messages()) != 9 {
			t.Errorf("%s: the conversations are %v and %v", template, warm.Messages(), cold.Messages())
		}
	}
}

// TestChatPrompt: the first prompt is the template's, and a later one has the
// drawn tokens between the template's.
func TestChatPrompt(t *testing.T) {
	c := newChat(t, "chatml", 128, Options{MaxTokens: 5})
	c.SetSystem("be a loom")
	_, res := ask(t, c, "hums")
	first, err := c.template.Prompt(c.gen.Tokenizer, c.Messages()[:2])
	if err != nil || res.PromptTokens != len(first) {
		t.Errorf("the prompt has %d tokens, the template's %d (%v)", res.PromptTokens, len(first), err)
	}
	c.turns = append(c.turns, turn{ids: c.encode(chat.Message{Role: chat.User, Content: "x"})})
	want := append(slices.Clone(first), res.IDs...)
	want = c.template.Tail(append(want, c.template.End(c.gen.Tokenizer)), c.gen.Tokenizer)
	want = append(want, c.encode(chat.Message{Role: chat.User, Content: "x"})...)
	want = c.template.Open(want, c.gen.Tokenizer, chat.Assistant)
	if got := c.join(); !slices.Equal(got, want) {
		t.Errorf("second prompt\ngot  %v\nwant %v", got, want)
	}
}

// TestChatStopsAtTurnEnd: any special token of the template ends an answer of
// a nearly uniform model, and is not in it.
func TestChatStopsAtTurnEnd(t *testing.T) {
	c := newChat(t, "llama3", 4000, Options{MaxTokens: 3000, Sampling: Sampling{Temperature: 5, Seed: 2}})
	ids, res := ask(t, c, "hums")
	if res.Reason != "end" {
		t.Fatalf("ended by %s after %d tokens", res.Reason, res.NewTokens)
	}
	for _, id := range ids {
		if c.gen.Tokenizer.IsSpecial(id) {
			t.Errorf("special token %d is part of the answer", id)
		}
	}
}

// TestChatDropsOldest: when the context is full the oldest exchanges leave the
// prompt whole, the system message stays, and nothing leaves the conversation.
func TestChatDropsOldest(t *testing.T) {
	const slots = 100
	c := newChat(t, "chatml", slots, Options{MaxTokens: 12, IgnoreEnd: true})
	c.SetSystem("be a loom")
	noted := 0
	for turn := range 12 {
		_, res := ask(t, c, "The loom hums and the thread")
		for _, n := range res.Notes {
			if strings.Contains(n, "no longer sees the first") {
				noted++
			}
		}
		if c.gen.Decoder.Pos() > slots {
			t.Fatalf("turn %d: the decoder is at %d of %d", turn, c.gen.Decoder.Pos(), slots)
		}
		if c.turns[c.from].Role != chat.User || c.from%2 != 0 {
			t.Fatalf("turn %d: the prompt begins with message %d of the %s", turn, c.from, c.turns[c.from].Role)
		}
		if got := c.join()[:len(c.system.ids)]; !slices.Equal(got, c.system.ids) {
			t.Fatalf("turn %d: the prompt does not begin with the system message", turn)
		}
	}
	if noted == 0 || c.from == 0 {
		t.Errorf("nothing was dropped in %d slots", slots)
	}
	if n := len(c.Messages()); n != 25 {
		t.Errorf("the conversation has %d messages, want 25", n)
	}
}

// TestChatContextFull: an answer ends where the context does; a message that
// does not fit at all is refused and leaves no trace.
func TestChatContextFull(t *testing.T) {
	c := newChat(t, "chatml", 40, Options{MaxTokens: 200, IgnoreEnd: true})
	ids, res := ask(t, c, "hums")
	if res.Reason != "context" || res.PromptTokens+len(ids) != 41 {
		t.Errorf("prompt of %d and answer of %d tokens, ended by %s", res.PromptTokens, len(ids), res.Reason)
	}
	before := c.Messages()
	_, err := c.Ask(context.Background(), strings.Repeat("静", 60), func(Piece) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "context holds 40") || !slices.Equal(c.Messages(), before) {
		t.Errorf("a long message: %v, then %v", err, c.Messages())
	}
	ask(t, c, "and now?")
}

// TestChatCancel keeps what came before a cancellation and goes on; other
// errors leave the conversation as it was.
func TestChatCancel(t *testing.T) {
	c := newChat(t, "chatml", 200, Options{MaxTokens: 30, IgnoreEnd: true})
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	res, err := c.Ask(ctx, "hums", func(Piece) error {
		if n++; n == 4 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || res.NewTokens != 4 || len(c.Messages()) != 2 || c.Messages()[1].Content != res.Text {
		t.Fatalf("%d tokens, %v, conversation %v", res.NewTokens, err, c.Messages())
	}
	if _, err := c.Ask(ctx, "again", nil); !errors.Is(err, context.Canceled) || len(c.Messages()) != 2 {
		t.Errorf("with a context that has ended: %v, conversation %v", err, c.Messages())
	}
	boom := errors.New("boom")
	if _, err := c.Ask(context.Background(), "x", func(Piece) error { return boom }); !errors.Is(err, boom) || len(c.Messages()) != 2 {
		t.Errorf("an error of emit: %v, conversation %v", err, c.Messages())
	}
	if _, res := ask(t, c, "go on"); res.NewTokens != 30 || len(c.Messages()) != 4 {
		t.Errorf("going on: %d tokens, conversation %v", res.NewTokens, c.Messages())
	}
	c.Reset()
	if _, res := ask(t, c, "hums"); res.CachedTokens != 0 || len(c.Messages()) != 2 {
		t.Errorf("after Reset: %d tokens from before, conversation %v", res.CachedTokens, c.Messages())
	}
}

// TestChatStopText: what a stop text cut off is not in the next prompt.
func TestChatStopText(t *testing.T) {
	free := newChat(t, "chatml", 200, Options{MaxTokens: 20, IgnoreEnd: true})
	_, res := ask(t, free, "hums")
	runes := []rune(res.Text)
	stop := string(runes[len(runes)/2:][:2])
	c := newChat(t, "chatml", 200, Options{MaxTokens: 20, IgnoreEnd: true, Stop: []string{stop}})
	_, cut := ask(t, c, "hums")
	want, _, _ := strings.Cut(res.Text, stop)
	if cut.Reason != "stop" || cut.Text != want || want == "" {
		t.Fatalf("ended by %s with %q, want %q", cut.Reason, cut.Text, want)
	}
	if got := c.turns[1].ids; !slices.Equal(got, c.encode(c.turns[1].Message)) {
		t.Errorf("the answer's tokens %v are not those of its text", got)
	}
	ask(t, c, "more")
}

func TestChatRefuses(t *testing.T) {
	c := newChat(t, "chatml", 64, Options{})
	for _, text := range []string{"", " \n", "\xff"} {
		if _, err := c.Ask(context.Background(), text, nil); err == nil || len(c.Messages()) != 0 {
			t.Errorf("%q: error %v, conversation %v", text, err, c.Messages())
		}
	}
	if err := c.SetSystem("\xff"); err == nil {
		t.Error("a system message that is not UTF-8 was taken")
	}
	llama, _ := chat.Lookup("llama3")
	if _, err := NewChat(c.gen, llama, Options{}); err == nil || !strings.Contains(err.Error(), "<|eot_id|>") {
		t.Errorf("a template whose tokens are missing: %v", err)
	}
	if _, err := NewChat(c.gen, c.template, Options{MaxTokens: -1}); err == nil {
		t.Error("a negative number of tokens was taken")
	}
}
