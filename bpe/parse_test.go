package bpe

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseKeepsFile(t *testing.T) {
	for name, bos := range map[string]int32{"tokenizer_own_llama3.json": -1, "tokenizer_import_llama3.json": 1200} {
		data := readFile(t, filepath.Join("testdata", name))
		tok, err := Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(tok.JSON(), data) || tok.Hash() == [32]byte{} {
			t.Errorf("%s: JSON is not the file that was read", name)
		}
		if tok.BOS() != bos || tok.EndOfDocument() != 1199 || tok.Pattern() != "llama3" {
			t.Errorf("%s: BOS %d, end of document %d, pattern %s", name, tok.BOS(), tok.EndOfDocument(), tok.Pattern())
		}
	}
}

func TestLoadMissing(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.json")); err == nil {
		t.Error("a missing file was loaded")
	}
}

// TestParseRefuses changes one thing in a good file at a time and expects an error that names it.
func TestParseRefuses(t *testing.T) {
	good := string(readFile(t, "testdata/tokenizer_own_llama3.json"))
	for _, c := range []struct{ old, new, want string }{
		{good, "", "not a tokenizer.json"},
		{good, "[1]", "not a tokenizer.json"},
		{good, good[:len(good)/2], "not a tokenizer.json"},
		{good, "{}", "model.type"},
		{`"type":"BPE"`, `"type":"Unigram"`, "Unigram"},
		{`"dropout":null`, `"dropout":0.1`, "dropout"},
		{`"continuing_subword_prefix":null`, `"continuing_subword_prefix":"##"`, "continuing_subword_prefix"},
		{`"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, "end_of_word_suffix"},
		{`"normalizer":null`, `"normalizer":{"type":"Lowercase"}`, "Lowercase"},
		{`"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Strip"}]}`, "Strip"},
		{`"normalizer":null`, `"normalizer":7`, "normalizer"},
		{`"normalizer":null`, `"normalizer":` + nested(100), "normalizer"},
		{`"Isolated"`, `"Removed"`, "Removed"},
		{`"invert":false`, `"invert":true`, "invert"},
		{`{"Regex":"`, `{"Regex":"x|`, "unknown pattern"},
		{`{"Regex":"`, `{"String":"`, "String"},
		{`"use_regex":false`, `"use_regex":true`, "arrangement"},
		{`"add_prefix_space":false`, `"add_prefix_space":true`, "add_prefix_space"},
		{`"type":"Split"`, `"type":"Digits"`, "Digits"},
		{`"type":"Split"`, `"individual_digits":true,"type":"Digits"`, "arrangement"},
		{`"post_processor":null`, `"post_processor":{"type":"BertProcessing"}`, "BertProcessing"},
		{`"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"WordPiece"`, "WordPiece"},
		{`"vocab":{`, `"vocab":{"x!y":0,`, "two tokens"},
		{`"vocab":{`, `"vocab":{"x!y":-5,`, "negative"},
		{`"vocab":{`, `"vocab":{"x!y":2000000000,`, "damaged"},
		{`"vocab":{`, `"vocab":{"x!y":3000000000,`, "not a tokenizer.json"},
		{"\"Ġ\":", "\"ĠĠĠ?\":", "byte 32"},
		{`"merges":[`, `"merges":[["q","§§"],`, "merges[0]"},
		{`"merges":[`, `"merges":[["q"],`, "want 2"},
		{`"merges":[`, `"merges":["q r",`, "neither"},
		{`"id":1199`, `"id":-1`, "out of range"},
		{`"id":1199`, `"id":5`, "another token"},
		{`"id":1199,"content":"<|endoftext|>"`, `"id":1199,"content":"a"`, "model.vocab gives it"},
		{`"added_tokens":[`, `"added_tokens":[{"id":1200,"content":"<|endoftext|>"},`, "twice"},
	} {
		changed := strings.Replace(good, c.old, c.new, 1)
		if changed == good {
			t.Errorf("the file has no %q to change", clip(c.old, 60))
			continue
		}
		_, err := Parse([]byte(changed))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q → %q: error %v, want one with %q", clip(c.old, 60), clip(c.new, 60), err, c.want)
		}
	}
}

// nested is a normalizer of n sequences one in another with two steps each.
func nested(n int) string {
	s := `{"type":"NFC"}`
	for range n {
		s = `{"type":"Sequence","normalizers":[{"type":"NFC"},` + s + `]}`
	}
	return s
}

func TestParseAccepts(t *testing.T) {
	good := string(readFile(t, "testdata/tokenizer_own_turkish.json"))
	want, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("İstanbul'da it's 2024 \n\n x")
	for _, c := range []struct{ old, new string }{
		{`"type":"BPE",`, ``},
		{`"dropout":null`, `"dropout":0.0`},
		{`"normalizer":null`, `"normalizer":{"type":"Sequence","normalizers":[]}`},
		{`"byte_fallback":false`, `"byte_fallback":true`},
		{`"truncation":null`, `"truncation":{"max_length":512}`},
		{`"ignore_merges":false`, `"ignore_merges":false,"something_new":1`},
		{`"merges":[`, `"merges":[["Ġ","¶"],`}, // a merge of two bytes, put in front
	} {
		changed := strings.Replace(good, c.old, c.new, 1)
		if c.new[0:min(len(c.new), 9)] == `"merges":` {
			changed = strings.Replace(changed, `"vocab":{`, `"vocab":{"Ġ¶":1200,`, 1)
		}
		tok, err := Parse([]byte(changed))
		if err != nil {
			t.Errorf("%q → %q: %v", c.old, c.new, err)
			continue
		}
		equalIDs(t, c.new, tok.Encode(nil, text), want.Encode(nil, text))
	}
}

func FuzzParse(f *testing.F) {
	small := train(f, TrainOptions{VocabSize: 262}, "aaaa bbbb aaaa bbbb")
	f.Add(small.JSON())
	f.Add([]byte(`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a a"]},"added_tokens":[{"id":9,"content":"<x>","lstrip":true}]}`))
	f.Add([]byte(nested(3)))
	f.Fuzz(func(t *testing.T, data []byte) {
		tok, err := Parse(data)
		if err != nil {
			return
		}
		text := []byte("aaaa <x> <|endoftext|> \xff")
		if got := tok.Decode(tok.Encode(nil, text)); !tok.NFC() && !bytes.Equal(got, text) {
			t.Fatalf("decoded %q, want %q", got, text)
		}
		tok.EncodeWithSpecials(nil, text)
	})
}
