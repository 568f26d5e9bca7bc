package bpe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// WithSpecials returns the tokenizer with further special tokens behind its last id, in the order given. One that is
// an added token already keeps its id and its settings; when all are, the result is t itself. Nothing else changes:
// every text keeps its ids, and the JSON differs in added_tokens alone, so that an imported file keeps what only
// others read in it. A trained tokenizer's JSON stays canonical, as if it had been trained with these tokens.
//
// Refused are empty contents, invalid UTF-8, one content twice, contents that Encode already has a token for (plain
// text would then stand for the special token), ids from MaxVocabSize on, and vocabularies with unused ids, behind
// which Hugging Face tokenizers would count differently.
func (t *Tokenizer) WithSpecials(contents ...string) (*Tokenizer, error) {
	var file struct {
		Model struct {
			Vocab map[string]int32 `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(t.json, &file); err != nil {
		return nil, fmt.Errorf("bpe: add special tokens: %w", err)
	}
	fresh, err := t.newSpecials(contents, file.Model.Vocab)
	if err != nil || len(fresh) == 0 {
		return t, err
	}
	edited, err := insertAdded(t.json, fresh)
	if err != nil {
		return nil, err
	}
	return Parse(edited)
}

// newSpecials are the contents that t does not have as added tokens, with their ids.
func (t *Tokenizer) newSpecials(contents []string, vocab map[string]int32) ([]addedToken, error) {
	var fresh []addedToken
	seen := make(map[string]bool, len(contents))
	next := int32(len(t.tokens))
	for _, content := range contents {
		switch {
		case content == "":
			return nil, errors.New("bpe: add special tokens: one of them is empty")
		case !utf8.ValidString(content):
			return nil, fmt.Errorf("bpe: add special tokens: %q is not valid UTF-8", clip(content, 40))
		case seen[content]:
			return nil, fmt.Errorf("bpe: add special tokens: %q is given twice", clip(content, 40))
		}
		seen[content] = true
		if _, ok := t.byText[content]; ok {
			continue
		}
		if ids := t.Encode(nil, []byte(content)); len(ids) == 1 {
			return nil, fmt.Errorf("bpe: add special tokens: %q is token %d of plain text, which could then forge it: choose a "+
				"content that no text has, such as <|%s|>", clip(content, 40), ids[0], clip(content, 40))
		}
		id, inVocab := vocab[content] // in the vocabulary, but no text reaches it
		if !inVocab {
			id = next
			next++
		}
		if id >= MaxVocabSize {
			return nil, fmt.Errorf("bpe: add special tokens: %q would get id %d, at most %d ids are supported", clip(content, 40), id, MaxVocabSize)
		}
		fresh = append(fresh, addedToken{id: id, content: content, special: true})
	}
	if used := t.usedIDs(vocab); int(next) > len(t.tokens) && used != len(t.tokens) {
		return nil, fmt.Errorf("bpe: add special tokens: the vocabulary has %d tokens with ids up to %d; behind unused ids other "+
			"tokenizer libraries would count differently, so none can be added", used, len(t.tokens)-1)
	}
	return fresh, nil
}

// usedIDs counts the ids that have a token.
func (t *Tokenizer) usedIDs(vocab map[string]int32) int {
	n := len(vocab)
	for _, a := range t.special {
		if _, ok := vocab[a.content]; !ok {
			n++
		}
	}
	return n
}

// insertAdded writes further entries at the end of added_tokens in a tokenizer.json and leaves every other byte alone.
func insertAdded(file []byte, fresh []addedToken) ([]byte, error) {
	at, empty, err := endOfAdded(file)
	if err != nil {
		return nil, fmt.Errorf("bpe: add special tokens: %w", err)
	}
	var b bytes.Buffer
	b.Write(file[:at])
	if empty && file[at-1] != '[' { // there is no list
		b.WriteString(`"added_tokens":[`)
	}
	for i, a := range fresh {
		if i > 0 || !empty {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
		writeAdded(&b, a)
	}
	if empty && file[at-1] != '[' {
		b.WriteString("],")
	}
	b.Write(file[at:])
	return b.Bytes(), nil
}

// endOfAdded returns the place behind the last entry of the top level's added_tokens. Where the list has no entries
// (empty) the place is behind its bracket, and where there is no list behind the file's opening brace.
func endOfAdded(file []byte) (at int, empty bool, err error) {
	d := json.NewDecoder(bytes.NewReader(file))
	if _, err := d.Token(); err != nil {
		return 0, false, err
	}
	at, empty = int(d.InputOffset()), true
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return 0, false, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, false, err
		}
		if key != "added_tokens" {
			continue
		}
		if value[0] != '[' {
			return 0, false, fmt.Errorf("added_tokens is %s, want a list", clip(string(value), 40))
		}
		start := int(d.InputOffset()) - len(value)
		inside := bytes.TrimRight(value[:len(value)-1], " \t\r\n")
		at, empty = start+len(inside), len(inside) == 1
	}
	return at, empty, nil
}
