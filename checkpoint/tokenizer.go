package checkpoint

import (
	"encoding/json"
	"fmt"
	"strings"
)

// vocabulary is what other formats need to know of a tokenizer.json: its
// tokens by id, merges, and which tokens are special. This package does not
// tokenize; that is bpe's.
type vocabulary struct {
	tokens     []string // by id, in the byte-level alphabet; special ones as they are
	special    []bool   // by id
	added      []bool   // by id: not part of the model's own vocabulary
	merges     []string // "a b", best first
	normalizer string   // its type, "" for none
}

// parseVocabulary reads a byte-level BPE tokenizer.json.
func parseVocabulary(raw []byte) (*vocabulary, error) {
	var t struct {
		Added []struct {
			ID      int    `json:"id"`
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens"`
		Normalizer *struct {
			Type string `json:"type"`
		} `json:"normalizer"`
		Model struct {
			Type   string          `json:"type"`
			Vocab  map[string]int  `json:"vocab"`
			Merges json.RawMessage `json:"merges"`
		} `json:"model"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if t.Model.Type != "BPE" {
		return nil, fmt.Errorf("tokenizer.json: model type is %q, want \"BPE\"", t.Model.Type)
	}
	n := len(t.Model.Vocab) + len(t.Added) // no id can be larger if all are used
	v := &vocabulary{tokens: make([]string, n), special: make([]bool, n), added: make([]bool, n)}
	used, last := make([]bool, n), -1
	put := func(id int, token string) error {
		if id < 0 || id >= n {
			return fmt.Errorf("tokenizer.json: token %q has id %d, want 0 to %d", token, id, n-1)
		}
		if used[id] && v.tokens[id] != token {
			return fmt.Errorf("tokenizer.json: id %d is both %q and %q", id, v.tokens[id], token)
		}
		v.tokens[id], used[id], last = token, true, max(last, id)
		return nil
	}
	for token, id := range t.Model.Vocab {
		if err := put(id, token); err != nil {
			return nil, err
		}
	}
	for _, a := range t.Added {
		if err := put(a.ID, a.Content); err != nil {
			return nil, err
		}
		v.added[a.ID], v.special[a.ID] = true, a.Special
	}
	for id := range last + 1 {
		if !used[id] {
			return nil, fmt.Errorf("tokenizer.json: no token has id %d", id)
		}
	}
	v.tokens, v.special, v.added = v.tokens[:last+1], v.special[:last+1], v.added[:last+1]
	if t.Normalizer != nil {
		v.normalizer = t.Normalizer.Type
	}
	var err error
	v.merges, err = parseMerges(t.Model.Merges)
	return v, err
}

// parseMerges reads merges in either style: ["a b", …] or [["a","b"], …].
func parseMerges(raw json.RawMessage) ([]string, error) {
	var old []string
	if json.Unmarshal(raw, &old) == nil {
		for _, m := range old {
			if strings.Count(m, " ") != 1 {
				return nil, fmt.Errorf("tokenizer.json: merge %q is not two tokens", m)
			}
		}
		return old, nil
	}
	var pairs [][]string
	if err := json.Unmarshal(raw, &pairs); err != nil {
		return nil, fmt.Errorf("tokenizer.json: merges: %w", err)
	}
	merges := make([]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("tokenizer.json: merge %q is not two tokens", p)
		}
		if strings.ContainsRune(p[0]+p[1], ' ') {
			return nil, fmt.Errorf("tokenizer.json: merge %q has a space in a token: the tokenizer is not byte-level", p)
		}
		merges[i] = p[0] + " " + p[1]
	}
	return merges, nil
}

// id finds a special or added token by its text; -1 if there is none.
func (v *vocabulary) id(token string) int32 {
	for i, t := range v.tokens {
		if v.added[i] && t == token {
			return int32(i)
		}
	}
	return -1
}

// SpecialTokens names the roles of special tokens in an exported model. A role
// left empty has no token, but EOS then is "<|endoftext|>" if the vocabulary
// has it, and BOS is the same as EOS, as in GPT-2.
type SpecialTokens struct{ BOS, EOS, Pad string }

// roleIDs are the ids of the tokens with a role; -1 for none.
type roleIDs struct{ bos, eos, pad, turn int32 } // turn ends a turn of a conversation

// roles finds the ids. A chat format's end of turn must be a special token,
// which no text can forge.
func (v *vocabulary) roles(s *SpecialTokens, chat *ChatFormat) (roleIDs, error) {
	if s.EOS == "" && v.id("<|endoftext|>") >= 0 {
		s.EOS = "<|endoftext|>"
	}
	if s.BOS == "" {
		s.BOS = s.EOS
	}
	ids := roleIDs{-1, -1, -1, -1}
	type role struct {
		token string
		id    *int32
	}
	want := []role{{s.BOS, &ids.bos}, {s.EOS, &ids.eos}, {s.Pad, &ids.pad}}
	if chat != nil {
		want = append(want, role{chat.End, &ids.turn})
	}
	for _, w := range want {
		if w.token == "" {
			continue
		}
		if *w.id = v.id(w.token); *w.id < 0 {
			return ids, fmt.Errorf("%q is not a special token of the vocabulary", w.token)
		}
	}
	return ids, nil
}
