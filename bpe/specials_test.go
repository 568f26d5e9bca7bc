package bpe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestWithSpecialsIsTraining: adding tokens to a trained tokenizer gives the bytes of one trained with them.
func TestWithSpecialsIsTraining(t *testing.T) {
	text := strings.Repeat("the loom hums and the thread runs on, dokuma tezgâhı. ", 20)
	names := []string{"<|im_start|>", "<|im_end|>", "<|ışık|>"}
	for _, first := range [][]string{{}, {"<|endoftext|>"}, {"<|a|>", "<|im_end|>"}} {
		small := train(t, TrainOptions{VocabSize: 290 + len(first), SpecialTokens: first}, text)
		all := slices.Clone(first)
		for _, n := range names {
			if !slices.Contains(first, n) {
				all = append(all, n)
			}
		}
		want := train(t, TrainOptions{VocabSize: 290 + len(all), SpecialTokens: all}, text)
		got, err := small.WithSpecials(names...)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.JSON(), want.JSON()) {
			t.Errorf("after %q: the JSON is not that of a tokenizer trained with %q", first, all)
		}
		if got.VocabSize() != 290+len(all) {
			t.Errorf("after %q: %d ids, want %d", first, got.VocabSize(), 290+len(all))
		}
		for _, n := range names {
			id, ok := got.SpecialID(n)
			if old, had := small.SpecialID(n); !ok || !got.IsSpecial(id) || had && old != id {
				t.Errorf("%q has id %d (%v), before %d (%v)", n, id, ok, old, had)
			}
			if ids := got.Encode(nil, []byte(n)); slices.Contains(ids, id) {
				t.Errorf("the text %q forges the special token", n)
			}
		}
	}
}

// TestWithSpecialsKeepsFiles adds tokens to every kind of file and finds nothing else changed: the other members of the
// JSON are the same bytes, every text has its ids, and Parse reads the result.
func TestWithSpecialsKeepsFiles(t *testing.T) {
	files, _ := filepath.Glob("testdata/tokenizer_*.json")
	if len(files) < 8 {
		t.Fatalf("only %d tokenizers in testdata", len(files))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, path := range files {
		old, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		tok, err := old.WithSpecials("<|x|>", "<|endoftext|>", "<|y|>")
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		again, err := Parse(tok.JSON())
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if x, _ := again.SpecialID("<|x|>"); again.Hash() != tok.Hash() || int(x) != old.VocabSize() {
			t.Errorf("%s: <|x|> has id %d, want %d", path, x, old.VocabSize())
		}
		compareMembers(t, path, old.JSON(), tok.JSON())
		for range 20 {
			text := []byte(randomText(rng, 40) + "<|x|>")
			equalIDs(t, path, tok.Encode(nil, text), old.Encode(nil, text))
		}
		if same, err := tok.WithSpecials("<|y|>", "<|x|>"); err != nil || same != tok {
			t.Errorf("%s: adding what is there: %v", path, err)
		}
	}
}

// compareMembers checks that two JSON objects differ in added_tokens alone, and there only by further entries.
func compareMembers(t *testing.T, path string, before, after []byte) {
	t.Helper()
	var a, b map[string]json.RawMessage
	if err := json.Unmarshal(before, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &b); err != nil {
		t.Fatal(err)
	}
	var old, added []any
	json.Unmarshal(a["added_tokens"], &old)
	json.Unmarshal(b["added_tokens"], &added)
	if len(added) <= len(old) || len(old) > 0 && !reflect.DeepEqual(added[:len(old)], old) {
		t.Errorf("%s: added_tokens changed from %s to %s", path, a["added_tokens"], b["added_tokens"])
	}
	delete(a, "added_tokens")
	delete(b, "added_tokens")
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%s: another member than added_tokens changed", path)
	}
}

// TestWithSpecialsInAnyLayout: an empty list, no list, an indented one, and a decoy inside another member.
func TestWithSpecialsInAnyLayout(t *testing.T) {
	tok := train(t, TrainOptions{VocabSize: 270, SpecialTokens: []string{}}, strings.Repeat("a thread runs on ", 9))
	canonical, n := string(tok.JSON()), strconv.Itoa(tok.VocabSize())
	for what, file := range map[string]string{
		"empty list":    canonical,
		"spaced list":   strings.Replace(canonical, `"added_tokens":[]`, "\"added_tokens\" : [ \n ]", 1),
		"no list":       strings.Replace(canonical, `"added_tokens":[],`, "", 1),
		"list at end":   strings.Replace(strings.Replace(canonical, `"added_tokens":[],`, "", 1), "]}\n}", "]},\"added_tokens\":[]}", 1),
		"one, indented": strings.Replace(canonical, `"added_tokens":[]`, "\"added_tokens\": [\n  {\"id\": "+n+", \"content\": \"<a>\", \"special\": true}\n  ]", 1),
		"decoy":         strings.Replace(canonical, `"truncation":null`, `"truncation":{"added_tokens":[1]}`, 1),
	} {
		if what != "empty list" && file == canonical {
			t.Fatalf("%s: the test's replacement found nothing", what)
		}
		old, err := Parse([]byte(file))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got, err := old.WithSpecials("<x>", "<y>")
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		x, okX := got.SpecialID("<x>")
		y, okY := got.SpecialID("<y>")
		if n := int32(old.VocabSize()); !okX || !okY || x != n || y != n+1 {
			t.Errorf("%s: ids %d and %d, want %d and %d", what, x, y, n, n+1)
		}
	}
}

func TestWithSpecialsRefuses(t *testing.T) {
	tok := train(t, TrainOptions{VocabSize: 300}, strings.Repeat("the loom hums and the thread runs on ", 20))
	before := bytes.Clone(tok.JSON())
	many := make([]string, MaxVocabSize)
	for i := range many {
		many[i] = fmt.Sprintf("<|%d|>", i)
	}
	for want, contents := range map[string][]string{
		"is empty":            {"<a>", ""},
		"not valid UTF-8":     {"<\xff>"},
		"given twice":         {"<a>", "<b>", "<a>"},
		"of plain text":       {"e"},
		"id 131072, at most ": many,
	} {
		if got, err := tok.WithSpecials(contents...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v (%v)", want, err, got != nil)
		}
	}
	if _, err := tok.WithSpecials(many[:MaxVocabSize-tok.VocabSize()]...); err != nil {
		t.Errorf("filling all ids: %v", err)
	}
	holes, err := Parse([]byte(strings.Replace(string(before), fmt.Sprintf(`"id":%d`, tok.EndOfDocument()), `"id":400`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holes.WithSpecials("<a>"); err == nil || !strings.Contains(err.Error(), "unused ids") {
		t.Errorf("a vocabulary with unused ids: got %v", err)
	}
	if !bytes.Equal(before, tok.JSON()) {
		t.Error("the tokenizer itself changed")
	}
}

// TestWithSpecialsInVocabulary: a content that model.vocab has as a token which no merge makes takes that id.
func TestWithSpecialsInVocabulary(t *testing.T) {
	data, err := os.ReadFile("testdata/tokenizer_own_llama3.json")
	if err != nil {
		t.Fatal(err)
	}
	base, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	n := base.VocabSize()
	tok, err := Parse([]byte(strings.Replace(string(data), `"vocab":{`, fmt.Sprintf(`"vocab":{"<|role|>":%d,`, n), 1)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tok.WithSpecials("<|role|>", "<|z|>")
	if err != nil {
		t.Fatal(err)
	}
	role, _ := got.SpecialID("<|role|>")
	z, _ := got.SpecialID("<|z|>")
	if int(role) != n || int(z) != n+1 {
		t.Errorf("ids %d and %d, want %d and %d", role, z, n, n+1)
	}
}
