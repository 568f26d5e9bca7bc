package eval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tezgah/bpe"
	"tezgah/model"
	"tezgah/op"
)

// someItems differ in everything that scoring looks at: length, script, where
// the space stands, no context, more context than fits.
func someItems() []Item {
	long := strings.Repeat("one two three four, ", 12)
	items := []Item{
		{Context: "the weaver", Choices: []string{" mends the net", " sings", " weather was wet. the weather is warm"}, Label: 1},
		{Context: "the weaver ", Choices: []string{"sings", "mends"}, Label: 0},
		{Context: "", Choices: []string{"the", "Ankara'da hava güzel", "你好"}, Label: 2},
		{Context: "\n", Choices: []string{"one", "two"}, Label: 0},
		{Context: long, Choices: []string{"one", "five", "the weaver mends"}, Label: 0},
		{Context: "the wea", Choices: []string{"ther", "ver"}, Label: 1},
		{Context: "İzmir'de yağmur", Choices: []string{" var", " yok, şöyle böyle", "\x00"}, Label: 0},
	}
	for i := range items {
		items[i].File, items[i].Line, items[i].Task = "f.jsonl", i+1, fmt.Sprint("t", i%2)
	}
	return items
}

// TestScore compares every number with the plain twin: a decoder that reads
// context and choice from the beginning, token by token, in float64.
func TestScore(t *testing.T) {
	tok := newTokenizer(t)
	c := tinyConfig(tok.VocabSize())
	p := refParams(t, c)
	twin := newPlain(t, p)
	items := someItems()
	scores := must[[]Score](t)(ScoreTasks(t.Context(), p, tok, items, Options{Batch: 2}))
	for i, s := range scores {
		if s.Item != &items[i] || len(s.Choices) != len(items[i].Choices) {
			t.Fatalf("score %d is of %+v with %d choices", i, s.Item, len(s.Choices))
		}
		for k, got := range s.Choices {
			e := encodePair(tok, tok.EndOfDocument(), items[i].Context, items[i].Choices[k])
			read := e.context
			want := 0.0
			for _, id := range e.choice {
				// All that is read must fit the context with the choice's later tokens.
				begin := max(0, len(e.context)+len(e.choice)-1-c.Context)
				want += twin.logProb(read[begin:], id)
				read = append(slices.Clone(read), id)
			}
			close64(t, fmt.Sprintf("item %d, choice %d", i, k), got.LogLikelihood, want, 1e-6)
			if got.Tokens != len(e.choice) || got.Bytes != len(items[i].Choices[k]) || !(got.LogLikelihood < 0) {
				t.Errorf("item %d, choice %d: %+v, want %d tokens", i, k, got, len(e.choice))
			}
		}
	}
	if scores[4].Cut == 0 || scores[0].Cut != 0 {
		t.Errorf("cut %d tokens of a long context and %d of a short one", scores[4].Cut, scores[0].Cut)
	}
	if !scores[5].Alone || scores[0].Alone {
		t.Errorf("alone: %v and %v, want true and false", scores[5].Alone, scores[0].Alone)
	}
}

// TestScoreOrder: the same items in another order give the same bits; other
// batches, and fewer items beside, change rounding alone.
func TestScoreOrder(t *testing.T) {
	tok := newTokenizer(t)
	p := cpuParams(t, tinyConfig(tok.VocabSize()))
	items := someItems()
	run := func(items []Item, o Options) []Score {
		t.Helper()
		return must[[]Score](t)(ScoreTasks(t.Context(), p, tok, items, o))
	}
	want := run(items, Options{})
	backward := slices.Clone(items)
	slices.Reverse(backward)
	got := run(backward, Options{})
	slices.Reverse(got)
	for i := range want {
		if !slices.Equal(got[i].Choices, want[i].Choices) {
			t.Errorf("item %d: %v in another order, %v before", i, got[i].Choices, want[i].Choices)
		}
	}
	for _, batch := range []int{1, 3, 64} {
		for i, s := range run(items, Options{Batch: batch}) {
			for k, c := range s.Choices {
				close64(t, fmt.Sprintf("batch %d, item %d, choice %d", batch, i, k), c.LogLikelihood, want[i].Choices[k].LogLikelihood, 2e-6)
			}
		}
	}
	for i := range items {
		alone := run(items[i:i+1], Options{Batch: 1})
		close64(t, fmt.Sprint("alone, item ", i), alone[0].Choices[0].LogLikelihood, want[i].Choices[0].LogLikelihood, 2e-6)
	}
}

// TestScoreContext: a shorter context cuts more, a longer one less.
func TestScoreContext(t *testing.T) {
	tok := newTokenizer(t)
	p := cpuParams(t, tinyConfig(tok.VocabSize()))
	items := someItems()[4:5]
	cut := map[int]int{}
	for _, T := range []int{12, 24, 100} {
		cut[T] = must[[]Score](t)(ScoreTasks(t.Context(), p, tok, items, Options{Context: T}))[0].Cut
	}
	if cut[100] != 0 || cut[24] == 0 || cut[12] != cut[24]+12 {
		t.Errorf("tokens cut by context: %v", cut)
	}
}

func TestScoreErrors(t *testing.T) {
	tok := newTokenizer(t)
	p := cpuParams(t, tinyConfig(tok.VocabSize()))
	items := someItems()
	fails := func(want string, p *model.Params, items []Item, o Options) {
		t.Helper()
		_, err := ScoreTasks(t.Context(), p, tok, items, o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	fails("f.jsonl:1: choice 2 has 12 tokens and the context holds 6", p, items[:1], Options{Context: 6})
	fails("context is -1", p, items, Options{Context: -1})
	fails("batch -2", p, items, Options{Batch: -2})

	bad := cpuParams(t, tinyConfig(tok.VocabSize()))
	for _, s := range bad.Weights() {
		if s.Name == "final_norm" {
			op.WriteSlice(bad.Runner(), s.T, slices.Repeat([]float32{float32(math.NaN())}, s.T.Len()))
		}
	}
	fails("f.jsonl:1: the log-likelihood of choice 0 is NaN", bad, items, Options{})

	small := tinyConfig(270) // not the tokenizer's model
	fails("want 0 to 269", cpuParams(t, small), items, Options{})

	none := must[*bpe.Trainer](t)(bpe.NewTrainer(bpe.TrainOptions{VocabSize: 256, SpecialTokens: []string{}}))
	if err := none.Add([]byte(trainedOn)); err != nil {
		t.Fatal(err)
	}
	bare := must[*bpe.Tokenizer](t)(none.Train(t.Context()))
	_, err := ScoreTasks(t.Context(), p, bare, items[3:4], Options{})
	if err == nil || !strings.Contains(err.Error(), "f.jsonl:4: the context is empty") {
		t.Errorf("without a start token: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ScoreTasks(ctx, p, tok, items, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestScoreCancelled stops between batches.
func TestScoreCancelled(t *testing.T) {
	tok := newTokenizer(t)
	p := cpuParams(t, tinyConfig(tok.VocabSize()))
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := ScoreTasks(ctx, p, tok, someItems(), Options{Batch: 1, Progress: func(done, total int) {
		calls++
		if done > total || done == 0 {
			t.Errorf("progress %d of %d", done, total)
		}
		cancel()
	}})
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("%d batches, error %v", calls, err)
	}
}

// TestPack: every request once, in rows that hold it, in batches that are not
// too large.
func TestPack(t *testing.T) {
	const context, maxTokens = 100, 350
	var reqs []request
	for i := range 200 {
		n := 2 + (i*i*7+i)%context
		seq := make([]int32, n)
		for j := range seq {
			seq[j] = int32(i*j) % 50
		}
		reqs = append(reqs, request{seq: seq, scored: 1 + i%(n-1)})
	}
	reqs = append(reqs, request{seq: make([]int32, context+1), scored: context})
	seen := make([]int, len(reqs))
	padded, real := 0, 0
	for _, s := range pack(reqs, maxTokens, context) {
		if s.length > context || s.rows > 1 && s.rows*s.length > maxTokens || s.rows < 1 {
			t.Errorf("shape %d × %d", s.rows, s.length)
		}
		tokens, targets := make([]int32, s.rows*s.length), make([]int32, s.rows*s.length)
		for at := 0; at < len(s.order); at += s.rows {
			which := s.order[at:min(at+s.rows, len(s.order))]
			fill(tokens, targets, s.length, reqs, which)
			padded += len(tokens)
			for row, i := range which {
				seen[i]++
				real += reqs[i].inputs()
				checkRow(t, reqs[i], tokens[row*s.length:(row+1)*s.length], targets[row*s.length:(row+1)*s.length])
			}
			if n := model.CountTargets(targets[len(which)*s.length:]); n != 0 {
				t.Errorf("%d targets in rows without a request", n)
			}
		}
	}
	for i, n := range seen {
		if n != 1 {
			t.Errorf("request %d is in %d batches", i, n)
		}
	}
	if real*2 < padded {
		t.Errorf("%d of %d tokens are padding", padded-real, padded)
	}
}

// checkRow looks for a request in a row of a batch.
func checkRow(t *testing.T, r request, tokens, targets []int32) {
	t.Helper()
	n := r.inputs()
	if !slices.Equal(tokens[:n], r.seq[:n]) {
		t.Fatalf("tokens %v, want %v", tokens[:n], r.seq[:n])
	}
	for i, target := range targets {
		want := int32(model.IgnoreIndex)
		if i >= n-r.scored && i < n {
			want = r.seq[i+1]
		}
		if target != want {
			t.Fatalf("target %d of %d is %d, want %d", i, n, target, want)
		}
	}
}
