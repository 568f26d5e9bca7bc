package chat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tezgah/corpus"
)

// lines writes n different conversations of very different lengths as jsonl.
func lines(rng *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`{"messages":[`)
		turns := 1 + rng.IntN(4)
		for k := range turns {
			if k > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"role":"user","content":"q%d %s"},{"role":"assistant","content":"%s"}`, i,
				strings.Repeat("loom ", rng.IntN(12)), "a"+strings.Repeat(" thread", rng.IntN(1+rng.IntN(40))))
		}
		if rng.IntN(3) == 0 {
			fmt.Fprintf(&b, `,{"role":"user","content":"thanks %s"}`, strings.Repeat("x", rng.IntN(30)))
		}
		b.WriteString("]}\n")
	}
	return b.String()
}

// load reads jsonl text with the tokenizer of newTokenizer.
func load(t testing.TB, text string, change func(*LoadOptions)) (*Loaded, error) {
	t.Helper()
	tpl, err := Lookup(Default)
	if err != nil {
		t.Fatal(err)
	}
	opt := LoadOptions{Input: corpus.InputOptions{Paths: []string{"-"}, Stdin: strings.NewReader(text)}, Template: tpl, Tokenizer: newTokenizer(t, "")}
	if change != nil {
		change(&opt)
	}
	return Load(context.Background(), opt)
}

func mustLoad(t testing.TB, text string, change func(*LoadOptions)) *Loaded {
	t.Helper()
	l, err := load(t, text, change)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLoadKeepsEncodings: the set gives back what Encode makes of each line, also over many blocks, and counts it.
func TestLoadKeepsEncodings(t *testing.T) {
	text := lines(rand.New(rand.NewPCG(1, 1)), 50) +
		`{"prompt":"long","completion":"` + strings.Repeat("qzx ", 300_000) + `"}` + "\n" + good
	tpl, _ := Lookup("llama3")
	tok := newTokenizer(t, "")
	set := mustLoad(t, text, func(o *LoadOptions) { o.Template, o.Tokenizer = tpl, tok }).Train
	if set.Len() != 52 || len(set.store.blocks) < 3 {
		t.Fatalf("%d conversations in %d blocks", set.Len(), len(set.store.blocks))
	}
	var tokens, learnedTokens int64
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		msgs, err := ParseLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		ids, learn, err := tpl.Encode(tok, msgs)
		if err != nil {
			t.Fatal(err)
		}
		gotIDs, gotLearn := set.Conversation(i)
		if !slices.Equal(gotIDs, ids) || !slices.Equal(gotLearn, learn) {
			t.Fatalf("conversation %d is not kept as it was encoded", i)
		}
		tokens += int64(len(ids))
		for _, l := range learn {
			if l {
				learnedTokens++
			}
		}
	}
	if set.Tokens() != tokens || set.Learned() != learnedTokens {
		t.Errorf("%d tokens and %d learned, want %d and %d", set.Tokens(), set.Learned(), tokens, learnedTokens)
	}
}

// TestLoadSplit: both sides together are the whole, equal conversations are on one side, the order of the lines and what
// else there is do not matter, the share is about the fraction, and another seed splits otherwise.
func TestLoadSplit(t *testing.T) {
	text := lines(rand.New(rand.NewPCG(2, 2)), 400)
	text += text[:len(text)/2][:strings.LastIndex(text[:len(text)/2], "\n")+1] // some twice
	sides := func(text string, seed uint64) (train, val []string) {
		l := mustLoad(t, text, func(o *LoadOptions) { o.ValFraction, o.Seed = 0.2, seed })
		for i := range l.Train.Len() {
			train = append(train, fmt.Sprint(l.Train.Conversation(i)))
		}
		for i := range l.Val.Len() {
			val = append(val, fmt.Sprint(l.Val.Conversation(i)))
		}
		return train, val
	}
	train, val := sides(text, 7)
	if n := strings.Count(text, "\n"); len(train)+len(val) != n || len(val) < n/8 || len(val) > n*3/10 {
		t.Errorf("%d and %d of %d conversations", len(train), len(val), n)
	}
	for _, v := range val {
		if slices.Contains(train, v) {
			t.Fatal("a conversation is on both sides")
		}
	}
	rows := strings.SplitAfter(text, "\n")
	slices.Reverse(rows)
	half := strings.Join(rows[:len(rows)/2], "")
	trainHalf, valHalf := sides(half, 7)
	for _, v := range valHalf {
		if !slices.Contains(val, v) {
			t.Fatal("a conversation changed its side with the rest of the file")
		}
	}
	if len(trainHalf) == 0 || len(valHalf) == 0 {
		t.Errorf("half of the file splits into %d and %d", len(trainHalf), len(valHalf))
	}
	if _, other := sides(text, 8); slices.Equal(val, other) {
		t.Error("two seeds gave one split")
	}
}

// TestLoadSplitOfFew: with two different conversations each side gets one whatever the fraction; a single one is all for
// training.
func TestLoadSplitOfFew(t *testing.T) {
	two := lines(rand.New(rand.NewPCG(3, 3)), 2)
	for _, f := range []float64{1e-12, 0.5, 1 - 1e-12} {
		l := mustLoad(t, two, func(o *LoadOptions) { o.ValFraction = f })
		if l.Train.Len() != 1 || l.Val.Len() != 1 {
			t.Errorf("fraction %v: %d and %d", f, l.Train.Len(), l.Val.Len())
		}
		l = mustLoad(t, good+good, func(o *LoadOptions) { o.ValFraction = f })
		if l.Train.Len() != 2 || l.Val.Len() != 0 {
			t.Errorf("fraction %v, one conversation twice: %d and %d", f, l.Train.Len(), l.Val.Len())
		}
	}
	if l := mustLoad(t, two, nil); l.Train.Len() != 2 || l.Val.Len() != 0 {
		t.Errorf("without a fraction: %d and %d", l.Train.Len(), l.Val.Len())
	}
}

func TestLoadRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		text   string
		change func(*LoadOptions)
	}{
		"-:2: the conversation has no assistant": {good + onlyAsking, nil},
		"-:3: the conversations up to here have": {good + good + good, func(o *LoadOptions) { o.MaxTokens = 50 }},
		"fraction 1":                             {good, func(o *LoadOptions) { o.ValFraction = 1 }},
		"no template":                            {good, func(o *LoadOptions) { o.Template = nil }},
		"no text in -":                           {"\n", nil},
		"at most -1":                             {good, func(o *LoadOptions) { o.MaxTokens = -1 }},
	} {
		if l, err := load(t, c.text, c.change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v\nwant an error with %q", l, err, want)
		}
	}
	skipping := func(o *LoadOptions) { o.Input.SkipBad = true }
	if l := mustLoad(t, good+onlyAsking+"{\n"+good, skipping); l.Train.Len() != 2 || l.Files.Bad != 2 {
		t.Errorf("with SkipBad: %d conversations, %+v", l.Train.Len(), l.Files)
	}
}

// TestLoadInOrder: over many batches the first broken line is the one that is named, the order is that of the lines, and
// a context that ends stops the reading.
func TestLoadInOrder(t *testing.T) {
	rows := strings.SplitAfter(strings.TrimSuffix(lines(rand.New(rand.NewPCG(4, 4)), 6000), "\n"), "\n")
	whole := mustLoad(t, strings.Join(rows, ""), nil)
	if whole.Train.Len() != len(rows) || whole.Files.Documents != int64(len(rows)) {
		t.Fatalf("%d conversations of %d lines, %+v", whole.Train.Len(), len(rows), whole.Files)
	}
	tok := newTokenizer(t, "")
	for _, i := range []int{0, 1, 2999, 5999} {
		ids, _ := whole.Train.Conversation(i)
		if text := string(tok.Decode(ids)); !strings.Contains(text, fmt.Sprintf("q%d ", i)) {
			t.Errorf("conversation %d is %q", i, text)
		}
	}
	rows[4000], rows[5500] = "{\n", "{}\n"
	if _, err := load(t, strings.Join(rows, ""), nil); err == nil || !strings.HasPrefix(err.Error(), "-:4001: ") {
		t.Errorf("lines 4001 and 5501 are broken: %v", err)
	}
	skipping := mustLoad(t, strings.Join(rows, ""), func(o *LoadOptions) { o.Input.SkipBad = true })
	if n := int64(len(rows)) - 2; skipping.Train.Len() != int(n) || skipping.Files.Bad != 2 || skipping.Files.Documents != n {
		t.Errorf("with SkipBad: %d conversations, %+v", skipping.Train.Len(), skipping.Files)
	}
	ctx, cancel := context.WithCancel(context.Background())
	tpl, _ := Lookup(Default)
	_, err := Load(ctx, LoadOptions{Input: corpus.InputOptions{Paths: []string{"-"}, Stdin: strings.NewReader(strings.Join(rows[:4000], ""))},
		Template: tpl, Tokenizer: tok, Progress: func(n, _ int64) { cancel() }})
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("after the context ended: %v", err)
	}
	cancel()
	if _, err := Load(ctx, LoadOptions{Input: corpus.InputOptions{Paths: []string{"-"}, Stdin: strings.NewReader(good)}, Template: tpl, Tokenizer: tok}); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
	if _, err := load(t, "{\n[]\n", func(o *LoadOptions) { o.Input.SkipBad = true }); err == nil || !strings.Contains(err.Error(), "all 2 lines are broken") {
		t.Errorf("nothing but broken lines: %v", err)
	}
}

// TestHash follows the tokens, their order and what is learned.
func TestHash(t *testing.T) {
	of := func(text string) [32]byte { return mustLoad(t, text, nil).Train.Hash() }
	asked := strings.Replace(good, `"assistant","content":"The loom."`, `"assistant","content":"The loom"`, 1)
	swapped := strings.NewReplacer("user", "assistant", "assistant", "user").Replace(good)
	all := [][32]byte{of(good), of(asked), of(swapped), of(good + asked), of(asked + good)}
	for i, h := range all {
		if slices.Index(all, h) != i {
			t.Errorf("sets %d and %d have one hash", i, slices.Index(all, h))
		}
	}
	if of(good) != all[0] {
		t.Error("one set has two hashes")
	}
}
