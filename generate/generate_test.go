package generate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"tezgah/bpe"
	"tezgah/model"
	"tezgah/op"
	"tezgah/op/cpu"
)

const sampleText = "Düş gördüm: İzmir'de bir dokuma tezgâhı, ışıl ışıl. 東京の朝は静かだ。 The loom hums 🧵🪡 and the thread runs on. "

// newGenerator makes an untrained model over a tokenizer of sampleText. Its
// text is nonsense, but every property of generation can be seen on it.
func newGenerator(t *testing.T, slots int) Generator {
	t.Helper()
	return newGeneratorWith(t, slots, func(tok *bpe.Tokenizer) *bpe.Tokenizer { return tok })
}

// newGeneratorWith lets change add tokens to the tokenizer first.
func newGeneratorWith(t *testing.T, slots int, change func(*bpe.Tokenizer) *bpe.Tokenizer) Generator {
	t.Helper()
	tr, err := bpe.NewTrainer(bpe.TrainOptions{VocabSize: 320, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Add([]byte(strings.Repeat(sampleText, 3))); err != nil {
		t.Fatal(err)
	}
	tok, err := tr.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	tok = change(tok)
	b, err := cpu.New(cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	r := op.NewRunner(b)
	cfg := model.Config{VocabSize: tok.VocabSize(), Context: slots, DModel: 32, Layers: 2, Heads: 4, KVHeads: 2, FFN: 48, Tied: true, InitStd: 0.3}
	p, err := model.NewParams(r, cfg, model.ParamOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Init(4); err != nil {
		t.Fatal(err)
	}
	d, err := model.NewDecoder(r, p, 1, slots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(); p.Close(); b.Close() })
	return Generator{Decoder: d, Tokenizer: tok}
}

func collect(t *testing.T, g Generator, prompt string, opt Options) (ids []int32, pieces []string, res Result) {
	t.Helper()
	res, err := g.Generate(context.Background(), prompt, opt, func(p Piece) error {
		if p.ID >= 0 {
			ids = append(ids, p.ID)
		}
		pieces = append(pieces, p.Text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids, pieces, res
}

// TestCacheChangesNothing decodes greedily with the cache, and again by
// reading the whole text anew for every token: the tokens are the same.
func TestCacheChangesNothing(t *testing.T) {
	g := newGenerator(t, 96)
	prompt := "The loom "
	ids, _, _ := collect(t, g, prompt, Options{MaxTokens: 40, IgnoreEnd: true})
	text := g.Tokenizer.EncodeWithSpecials(nil, []byte(prompt))
	for i, want := range ids {
		g.Decoder.Reset()
		logits, err := g.Decoder.Prefill(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := greedy(logits); got.ID != want {
			t.Fatalf("token %d is %d with the cache, %d without", i, want, got.ID)
		}
		text = append(text, want)
	}
}

// TestStreamIsWholeCharacters: every piece is valid UTF-8, and all pieces
// together are the decoded ids, in texts full of multi-byte characters.
func TestStreamIsWholeCharacters(t *testing.T) {
	g := newGenerator(t, 64)
	s := newStream(g.Tokenizer.NewStream(), nil)
	ids := g.Tokenizer.Encode(nil, []byte(sampleText))
	var all strings.Builder
	split := false
	for _, id := range ids {
		piece, _ := s.push(id)
		split = split || !utf8.Valid(g.Tokenizer.Token(id))
		if !utf8.ValidString(piece) {
			t.Errorf("piece %q of token %d is not whole", piece, id)
		}
		all.WriteString(piece)
	}
	all.WriteString(s.flush())
	if all.String() != sampleText {
		t.Errorf("streamed %q, want %q", all.String(), sampleText)
	}
	if !split {
		t.Error("no token of the sample splits a character: the test shows nothing")
	}
}

func TestSeedDecides(t *testing.T) {
	g := newGenerator(t, 64)
	opt := Options{MaxTokens: 30, IgnoreEnd: true, Sampling: Sampling{Temperature: 1, Seed: 1}}
	a, _, _ := collect(t, g, "thread", opt)
	b, _, _ := collect(t, g, "thread", opt)
	opt.Seed = 2
	c, _, _ := collect(t, g, "thread", opt)
	same := func(x, y []int32) bool {
		for i := range x {
			if x[i] != y[i] {
				return false
			}
		}
		return len(x) == len(y)
	}
	if !same(a, b) {
		t.Error("one seed gave two texts")
	}
	if same(a, c) {
		t.Error("two seeds gave one text")
	}
}

// TestSlidesPastContext generates more than the context holds.
func TestSlidesPastContext(t *testing.T) {
	g := newGenerator(t, 16)
	ids, _, res := collect(t, g, "The loom hums", Options{MaxTokens: 50, IgnoreEnd: true})
	if len(ids) != 50 || res.Reason != "length" {
		t.Errorf("%d tokens, ended by %s", len(ids), res.Reason)
	}
	if len(res.Notes) != 1 || !strings.Contains(res.Notes[0], "slides") {
		t.Errorf("notes %q do not say that the window slides", res.Notes)
	}
}

func TestLongPromptIsCut(t *testing.T) {
	g := newGenerator(t, 16)
	_, _, res := collect(t, g, strings.Repeat(sampleText, 4), Options{MaxTokens: 3, IgnoreEnd: true})
	if res.PromptTokens != 16 || len(res.Notes) == 0 || !strings.Contains(res.Notes[0], "only the last 16") {
		t.Errorf("prompt of %d tokens, notes %q", res.PromptTokens, res.Notes)
	}
}

// TestStopText feeds tokens by hand and cuts before the stop text wherever the
// tokens' bounds fall.
func TestStopText(t *testing.T) {
	g := newGenerator(t, 16)
	ids := g.Tokenizer.Encode(nil, []byte(sampleText))
	for _, stop := range []string{"runs", " hums 🧵", "İzmir", "Düş", "never", "on. "} {
		s := newStream(g.Tokenizer.NewStream(), []string{stop, ""})
		var shown strings.Builder
		stopped := false
		for _, id := range ids {
			var piece string
			if piece, stopped = s.push(id); true {
				shown.WriteString(piece)
			}
			if stopped {
				break
			}
		}
		shown.WriteString(s.flush())
		want, _, found := strings.Cut(sampleText, stop)
		if shown.String() != want || stopped != found {
			t.Errorf("stop %q: shown %q (stopped %v), want %q", stop, shown.String(), stopped, want)
		}
		if s.text.String() != want {
			t.Errorf("stop %q: text %q, want %q", stop, s.text.String(), want)
		}
	}
}

func TestCancelKeepsText(t *testing.T) {
	g := newGenerator(t, 64)
	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	res, err := g.Generate(ctx, "loom", Options{MaxTokens: 50, IgnoreEnd: true}, func(Piece) error {
		if n++; n == 5 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || res.NewTokens != 5 || res.Reason != "canceled" {
		t.Errorf("got %d tokens, reason %s, %v", res.NewTokens, res.Reason, err)
	}
}

// TestEndOfDocument: the model's own end token ends the text.
func TestEndOfDocument(t *testing.T) {
	g := newGenerator(t, 64)
	opt := Options{MaxTokens: 4000, Sampling: Sampling{Temperature: 3, Seed: 1}}
	ids, _, res := collect(t, g, "", opt)
	if res.Reason != "end" {
		t.Fatalf("ended by %s after %d tokens of a nearly uniform model", res.Reason, len(ids))
	}
	for _, id := range ids {
		if id == g.Tokenizer.EndOfDocument() {
			t.Error("the end token was emitted")
		}
	}
}

func TestAlternatives(t *testing.T) {
	g := newGenerator(t, 64)
	_, err := g.Generate(context.Background(), "loom", Options{MaxTokens: 3, IgnoreEnd: true, Alternatives: 5}, func(p Piece) error {
		if len(p.Alternatives) != 5 || p.Alternatives[0].ID != p.ID {
			t.Errorf("greedy token %d has alternatives %v", p.ID, p.Alternatives)
		}
		for i := 1; i < len(p.Alternatives); i++ {
			if p.Alternatives[i].Prob > p.Alternatives[i-1].Prob {
				t.Errorf("alternatives are not in order: %v", p.Alternatives)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
