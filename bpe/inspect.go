package bpe

import (
	"bytes"
	"slices"
)

// Stats describes how a tokenizer cuts a text.
type Stats struct {
	Bytes  int // of the text, after normalisation
	Words  int // runs of anything but white space
	Tokens int

	TokensPerWord   float64 // fertility; 0 when there is no word
	BytesPerToken   float64 // 0 when there is no token
	SingleByteShare float64 // tokens of one byte / all tokens, 0 to 1
	VocabUsed       int     // distinct ids that occur

	Longest    [][]byte // the longest distinct tokens that occur, longest first, at most 20
	Text       []byte   // the text after normalisation, which Boundaries refers to
	IDs        []int32  // the tokens
	Boundaries []int    // where each token ends in Text
}

// longestListed is the length of Stats.Longest at most.
const longestListed = 20

// Inspect encodes text and describes the result.
func Inspect(t *Tokenizer, text []byte) Stats {
	s := Stats{Text: t.normalize(text)}
	s.Bytes, s.Words = len(s.Text), len(bytes.Fields(s.Text))
	s.IDs = t.Encode(nil, text)
	s.Tokens = len(s.IDs)
	s.Boundaries = make([]int, 0, s.Tokens)
	end, single := 0, 0
	used := make(map[int32]bool)
	for _, id := range s.IDs {
		n := len(t.Token(id))
		end += n
		s.Boundaries = append(s.Boundaries, end)
		if n == 1 {
			single++
		}
		used[id] = true
	}
	s.VocabUsed = len(used)
	if s.Words > 0 {
		s.TokensPerWord = float64(s.Tokens) / float64(s.Words)
	}
	if s.Tokens > 0 {
		s.BytesPerToken = float64(s.Bytes) / float64(s.Tokens)
		s.SingleByteShare = float64(single) / float64(s.Tokens)
	}
	s.Longest = longest(t, used)
	return s
}

// longest returns the longest of the used tokens, those of one length in byte order.
func longest(t *Tokenizer, used map[int32]bool) [][]byte {
	tokens := make([][]byte, 0, len(used))
	for id := range used {
		tokens = append(tokens, t.Token(id))
	}
	slices.SortFunc(tokens, func(a, b []byte) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return bytes.Compare(a, b)
	})
	return tokens[:min(len(tokens), longestListed)]
}
