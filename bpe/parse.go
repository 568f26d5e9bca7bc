package bpe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// fileJSON is tokenizer.json. Its sections truncation and padding are settings of a batch and are ignored.
type fileJSON struct {
	AddedTokens   []addedJSON     `json:"added_tokens"`
	Normalizer    json.RawMessage `json:"normalizer"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage `json:"decoder"`
	Model         modelJSON       `json:"model"`
}

type addedJSON struct {
	ID         int64  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Lstrip     bool   `json:"lstrip"`
	Rstrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// modelJSON leaves out unk_token, fuse_unk and byte_fallback: they say what happens to characters without a token, and
// with all 256 single bytes in the vocabulary there are none.
type modelJSON struct {
	Type                    string           `json:"type"`
	Dropout                 float64          `json:"dropout"`
	ContinuingSubwordPrefix string           `json:"continuing_subword_prefix"`
	EndOfWordSuffix         string           `json:"end_of_word_suffix"`
	IgnoreMerges            bool             `json:"ignore_merges"`
	Vocab                   map[string]int32 `json:"vocab"`
	Merges                  json.RawMessage  `json:"merges"`
}

// Parse reads a tokenizer.json of a byte-level BPE tokenizer: Tezgah's own, or one with the pattern of GPT-2, Llama 3 or
// Qwen 2. What it cannot follow exactly, it refuses by name. The tokenizer keeps data as its JSON.
func Parse(data []byte) (*Tokenizer, error) {
	var f fileJSON
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("bpe: not a tokenizer.json: %w", err)
	}
	d := &definition{ignoreMerges: f.Model.IgnoreMerges, vocab: f.Model.Vocab}
	if err := checkModel(&f.Model); err != nil {
		return nil, err
	}
	var err error
	if d.merges, err = parseMerges(f.Model.Merges); err != nil {
		return nil, err
	}
	if d.nfc, err = parseNormalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if d.rules, err = parsePreTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if d.bos, err = parsePostProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	if err := checkDecoder(f.Decoder); err != nil {
		return nil, err
	}
	for _, a := range f.AddedTokens {
		if a.ID < 0 || a.ID > 1<<31-2 {
			return nil, fmt.Errorf("bpe: added_tokens: token %q has the id %d, which is out of range", clip(a.Content, 40), a.ID)
		}
		d.added = append(d.added, addedToken{int32(a.ID), a.Content, a.SingleWord, a.Lstrip, a.Rstrip, a.Normalized, a.Special})
	}
	return newTokenizer(d, bytes.Clone(data))
}

func checkModel(m *modelJSON) error {
	switch {
	case m.Type != "BPE" && (m.Type != "" || m.Merges == nil):
		return fmt.Errorf("bpe: model.type is %q, want \"BPE\"", clip(m.Type, 40))
	case m.Dropout != 0:
		return fmt.Errorf("bpe: model.dropout is %g; only tokenizers without dropout are supported", m.Dropout)
	case m.ContinuingSubwordPrefix != "":
		return fmt.Errorf("bpe: model.continuing_subword_prefix is %q; it is not supported", clip(m.ContinuingSubwordPrefix, 40))
	case m.EndOfWordSuffix != "":
		return fmt.Errorf("bpe: model.end_of_word_suffix is %q; it is not supported", clip(m.EndOfWordSuffix, 40))
	case len(m.Vocab) == 0:
		return errors.New("bpe: model.vocab is missing or empty")
	}
	return nil
}

// parseMerges reads both styles: [["a","b"], …] and the older ["a b", …].
func parseMerges(raw json.RawMessage) ([][2]string, error) {
	var lines []string
	if err := json.Unmarshal(raw, &lines); err == nil {
		merges := make([][2]string, 0, len(lines))
		for i, line := range lines {
			if strings.HasPrefix(line, "#version") {
				continue
			}
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return nil, fmt.Errorf("bpe: model.merges[%d] is %q, want two tokens with one space between", i, clip(line, 60))
			}
			merges = append(merges, [2]string{left, right})
		}
		return merges, nil
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, fmt.Errorf("bpe: model.merges is neither a list of pairs nor of strings: %w", err)
	}
	merges := make([][2]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("bpe: model.merges[%d] has %d tokens, want 2", i, len(p))
		}
		merges[i] = [2]string{p[0], p[1]}
	}
	return merges, nil
}
