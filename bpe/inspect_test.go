package bpe

import (
	"slices"
	"strings"
	"testing"
)

func TestInspect(t *testing.T) {
	tok := train(t, TrainOptions{VocabSize: 259, SpecialTokens: []string{}, MinPairCount: 1}, strings.Repeat("abab ", 9))
	// Tokens beyond the bytes: "ab", "abab", and one with the space.
	s := Inspect(tok, []byte("abab x\nab"))
	if s.Bytes != 9 || s.Words != 3 || s.Tokens != len(s.IDs) || s.Boundaries[s.Tokens-1] != 9 {
		t.Errorf("%+v", s)
	}
	if !slices.IsSorted(s.Boundaries) || len(s.Boundaries) != s.Tokens {
		t.Errorf("boundaries %v", s.Boundaries)
	}
	single := 0
	for _, id := range s.IDs {
		if len(tok.Token(id)) == 1 {
			single++
		}
	}
	if s.SingleByteShare != float64(single)/float64(s.Tokens) || s.BytesPerToken != 9/float64(s.Tokens) ||
		s.TokensPerWord != float64(s.Tokens)/3 {
		t.Errorf("shares are wrong: %+v", s)
	}
	if string(s.Longest[0]) != "abab" {
		t.Errorf("longest token is %q, want \"abab\"", s.Longest[0])
	}
	if empty := Inspect(tok, nil); empty.Tokens != 0 || empty.TokensPerWord != 0 || empty.BytesPerToken != 0 {
		t.Errorf("empty text: %+v", empty)
	}
}
