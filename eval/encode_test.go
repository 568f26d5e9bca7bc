package eval

import (
	"slices"
	"testing"

	"tezgah/bpe"
)

// pieces shows tokens as text.
func pieces(t *bpe.Tokenizer, ids []int32) []string {
	var out []string
	for _, id := range ids {
		out = append(out, string(t.Token(id)))
	}
	return out
}

// TestEncodePair pins the cut between context and choice down.
func TestEncodePair(t *testing.T) {
	tok := newTokenizer(t)
	end := "<|endoftext|>"
	for _, c := range []struct {
		context, choice string
		wantContext     []string
		wantChoice      []string
		alone           bool
	}{
		// A space at the meeting belongs to the choice, on whichever side it is written.
		{"the weaver", " mends", []string{"the", " weaver"}, []string{" ", "mend", "s"}, false},
		{"the weaver ", "mends", []string{"the", " weaver"}, []string{" ", "mend", "s"}, false},
		{"one two", " three", []string{"one", " two"}, []string{" three"}, false},
		{"one two ", "three", []string{"one", " two"}, []string{" three"}, false},
		{"one two\t\u00a0 ", "three", []string{"one", " two"}, []string{"\t", "\xc2", "\xa0", " three"}, false},
		{"one\x1f", "one", []string{"one"}, []string{"\x1f", "one"}, false},
		// Nothing to read yet: the start of a document.
		{"", "the weaver", []string{end}, []string{"the", " weaver"}, false},
		{" \n", "the", []string{end}, []string{" ", "\n", "the"}, false},
		// Joined inside a word: " weather" has as many tokens as " wea", so that none is left for the choice.
		{"the wea", "ther", []string{"the", " wea"}, []string{"ther"}, true},
		// Joined, but longer: the choice begins behind as many tokens as the context has by itself, a space late.
		{"the weav", "er mends", []string{"the", " wea", "v"}, []string{"mend", "s"}, false},
		// Special tokens are what they spell; tokens may be parts of characters.
		{"the" + end, "the", []string{"the", end}, []string{"the"}, false},
		{"İzmir'de", " yağmur", []string{"İzmir", "'d", "e"}, []string{" ", "ya\xc4", "\x9f", "mur"}, false},
	} {
		got := encodePair(tok, tok.EndOfDocument(), c.context, c.choice)
		if got.alone != c.alone {
			t.Errorf("%q + %q: alone %v, want %v", c.context, c.choice, got.alone, c.alone)
		}
		if ctx, choice := pieces(tok, got.context), pieces(tok, got.choice); !slices.Equal(ctx, c.wantContext) || !slices.Equal(choice, c.wantChoice) {
			t.Errorf("%q + %q: got %q and %q, want %q and %q", c.context, c.choice, ctx, choice, c.wantContext, c.wantChoice)
		}
	}
}
