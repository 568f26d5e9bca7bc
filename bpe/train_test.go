package bpe

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestTrainAgainstSlow trains on many small random texts, where ties are frequent.
func TestTrainAgainstSlow(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		alphabet := "aab cde"[:2+rng.IntN(6)]
		var b strings.Builder
		for range 20 + rng.IntN(400) {
			b.WriteByte(alphabet[rng.IntN(len(alphabet))])
		}
		text := b.String()
		if seed%10 == 0 {
			text = randomText(rng, 200)
		}
		pattern := Patterns()[rng.IntN(4)]
		minCount, maxBytes := 1+rng.IntN(3), 0
		if rng.IntN(3) == 0 {
			maxBytes = 2 + rng.IntN(4)
		}
		newTokens := rng.IntN(60)
		r, _ := rulesByName(pattern)
		counts := make(map[string]int64)
		for _, w := range words(r, text) {
			counts[w]++
		}
		wantTokens, wantMerges := slowTrain(counts, newTokens, int64(minCount), maxBytes)
		got := train(t, TrainOptions{VocabSize: 256 + newTokens + 1, Pattern: pattern, MinPairCount: minCount,
			MaxTokenBytes: maxBytes, Threads: 1 + int(seed%3)}, text)
		if got.VocabSize() != len(wantTokens)+1 {
			t.Fatalf("seed %d: %d tokens, want %d", seed, got.VocabSize()-1, len(wantTokens))
		}
		for id, want := range wantTokens {
			if !bytes.Equal(got.Token(int32(id)), want) {
				t.Fatalf("seed %d: token %d is %q, want %q", seed, id, got.Token(int32(id)), want)
			}
		}
		if !slices.Equal(got.Merges(), wantMerges) {
			t.Fatalf("seed %d: merges are %v, want %v", seed, got.Merges(), wantMerges)
		}
	}
}

// TestTrainThreads checks that the number of threads and the way documents arrive do not change a byte of the result.
func TestTrainThreads(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var docs []string
	for range 30 {
		docs = append(docs, randomText(rng, 3000))
	}
	docs = append(docs, strings.Repeat(strings.Join(docs[:3], "a b"), 12)) // cut into parts
	var want []byte
	for _, threads := range []int{1, 2, 5, 16} {
		got := train(t, TrainOptions{VocabSize: 1500, Threads: threads}, docs...)
		if want == nil {
			want = got.JSON()
		}
		if !bytes.Equal(got.JSON(), want) {
			t.Fatalf("%d threads give another tokenizer than 1", threads)
		}
		slices.Reverse(docs)
	}
}

func TestTrainFlush(t *testing.T) {
	// More distinct words than a worker holds by itself.
	var b strings.Builder
	for i := range 3 * localWords / 2 {
		b.WriteByte(' ')
		for k := i; k > 0; k /= 26 {
			b.WriteByte(byte('a' + k%26))
		}
	}
	text := b.String() + " same same"
	tr, _ := NewTrainer(TrainOptions{Threads: 2})
	if err := tr.Add([]byte(text)); err != nil {
		t.Fatal(err)
	}
	tr.launch()
	<-tr.running
	for _, c := range tr.counters {
		c.flush()
	}
	got := make(map[string]int64)
	for i := range tr.words.shards {
		table := tr.words.shards[i].table
		for k := range table.words {
			got[string(table.bytes(&table.words[k]))] += table.words[k].count
		}
	}
	want := make(map[string]int64)
	for _, w := range words(canonical[Llama3].rules, text) {
		want[w]++
	}
	if len(got) != len(want) {
		t.Fatalf("%d distinct words, want %d", len(got), len(want))
	}
	for w, n := range want {
		if got[w] != n {
			t.Fatalf("word %q counted %d times, want %d", w, got[w], n)
		}
	}
}

func TestTrainSpecials(t *testing.T) {
	text := strings.Repeat("sonu <pad> sonu ", 50)
	tok := train(t, TrainOptions{VocabSize: 300, SpecialTokens: []string{"<|endoftext|>", "sonu", "<pad>"}}, text)
	if tok.EndOfDocument() != int32(tok.VocabSize()-3) {
		t.Errorf("end of document is %d, want %d", tok.EndOfDocument(), tok.VocabSize()-3)
	}
	id, ok := tok.SpecialID("sonu")
	if !ok || !tok.IsSpecial(id) || string(tok.Token(id)) != "sonu" {
		t.Errorf("special token sonu: id %d, found %t", id, ok)
	}
	// An ordinary token must not be spelled like a special one: the file could not tell them apart.
	for id := range int32(tok.VocabSize() - 3) {
		if string(tok.Token(id)) == "sonu" {
			t.Errorf("ordinary token %d is spelled like the special token", id)
		}
	}
	again, err := Parse(tok.JSON())
	if err != nil {
		t.Fatal(err)
	}
	equalIDs(t, "with specials", again.EncodeWithSpecials(nil, []byte(text)), tok.EncodeWithSpecials(nil, []byte(text)))
	none := train(t, TrainOptions{VocabSize: 260, SpecialTokens: []string{}}, text)
	if none.EndOfDocument() != -1 || none.VocabSize() != 260 {
		t.Errorf("without special tokens: end of document %d, size %d", none.EndOfDocument(), none.VocabSize())
	}
}

func TestTrainRefuses(t *testing.T) {
	for _, opt := range []TrainOptions{
		{VocabSize: 256}, {VocabSize: MaxVocabSize + 1}, {VocabSize: -1}, {Pattern: "gpt5"}, {MinPairCount: -1},
		{MaxTokenBytes: -1}, {Threads: -1}, {SpecialTokens: []string{""}}, {SpecialTokens: []string{"A"}},
		{SpecialTokens: []string{"<x>", "<x>"}}, {SpecialTokens: []string{"\xff"}},
	} {
		if _, err := NewTrainer(opt); err == nil {
			t.Errorf("%+v was accepted", opt)
		}
	}
	tr, _ := NewTrainer(TrainOptions{})
	if _, err := tr.Train(context.Background()); err == nil {
		t.Error("training on nothing was accepted")
	}
	if err := tr.Add(nil); err == nil {
		t.Error("Add after Train was accepted")
	}
	tr, _ = NewTrainer(TrainOptions{})
	if err := tr.Add([]byte("a a a a")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := tr.Train(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled training: %v", err)
	}
}

func TestTrainProgress(t *testing.T) {
	var last Progress
	tok := train(t, TrainOptions{VocabSize: 270, Progress: func(p Progress) { last = p }}, strings.Repeat("bir iki üç ", 100))
	want := Progress{"merge", int64(tok.VocabSize() - 1), 269}
	if last != want {
		t.Errorf("last progress is %+v, want %+v", last, want)
	}
}
