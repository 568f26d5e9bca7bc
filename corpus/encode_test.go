package corpus_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tezgah/bpe"
	"tezgah/corpus"
)

// sources is the text of this package's own source files, some of it on one endless line.
func sources(t testing.TB) []byte {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil || len(names) == 0 {
		t.Fatal("no source files", err)
	}
	var b []byte
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, text...)
	}
	return append(b, bytes.ReplaceAll(b, []byte("\n"), []byte(" "))...)
}

func tokenizer(t testing.TB, pattern string, nfc bool, text []byte) *bpe.Tokenizer {
	t.Helper()
	trainer, err := bpe.NewTrainer(bpe.TrainOptions{VocabSize: 1200, Pattern: pattern, NFC: nfc, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.Add(text); err != nil {
		t.Fatal(err)
	}
	tok, err := trainer.Train(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestCutsKeepTokens: a text that is encoded in pieces, by several threads, has the tokens of the whole text.
func TestCutsKeepTokens(t *testing.T) {
	text := sources(t)
	text = slices.Concat(text, []byte("Ankara'da cafe\u0301 \xff\xfe 12345678\n\n\n  x"))
	text = append(text, strings.Repeat("\n\n  \n a's \t", 30_000)...)
	dir := t.TempDir()
	path, out := filepath.Join(dir, "a.txt"), filepath.Join(dir, "a.bin")
	if err := os.WriteFile(path, text, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range bpe.Patterns() {
		tok := tokenizer(t, pattern, pattern == "turkish", text[:200_000])
		_, err := corpus.Build(context.Background(), corpus.BuildOptions{Input: corpus.InputOptions{Paths: []string{path}},
			Tokenizer: tok, Out: out, Threads: 3})
		if err != nil {
			t.Fatal(err)
		}
		d, err := corpus.Open(out, corpus.OpenOptions{TokenizerJSON: tok.JSON()})
		if err != nil {
			t.Fatal(err)
		}
		got := make([]int32, d.Len())
		if err := d.Read(got, 0); err != nil {
			t.Fatal(err)
		}
		want := append(tok.Encode(nil, text), tok.EndOfDocument())
		if !slices.Equal(got, want) {
			t.Errorf("%s: %d tokens, want the %d of the whole text", pattern, len(got), len(want))
		}
		again, err := bpe.Parse(d.TokenizerJSON())
		if err != nil || again.Hash() != d.TokenizerHash() || again.Hash() != tok.Hash() {
			t.Errorf("%s: the tokenizer in the file is another: %v", pattern, err)
		}
		d.Close()
	}
}
