package eval

import (
	"strings"
	"unicode"

	"tezgah/bpe"
)

// StartToken returns the id that stands in front of a choice without context:
// the one that the tokenizer puts before every text, else the end-of-document
// token, after which a document begins. It is −1 when there is neither.
func StartToken(t *bpe.Tokenizer) int32 {
	if id := t.BOS(); id >= 0 {
		return id
	}
	return t.EndOfDocument()
}

// pair is a context and a choice as tokens. The model reads context and then
// choice, and is asked for the probability of the latter.
type pair struct {
	context, choice []int32
	alone           bool // the choice was encoded by itself, see encodePair
}

// encodePair encodes a context and what follows it.
//
// Where the two meet matters, because tokens often begin with a space. As in
// EleutherAI's Language Model Evaluation Harness (Gao et al., 2021) white space
// at the context's end first moves to the choice; then context+choice is encoded
// as one text, and the choice's tokens are those behind as many as the context
// alone has. The choice is therefore cut into the tokens that it would have in
// running text.
//
// Two cases are left open there. A context that is empty (or white space only)
// becomes the start token. A choice that leaves no token, because the
// tokenizer joins it with the context's end, is encoded alone.
func encodePair(t *bpe.Tokenizer, start int32, context, choice string) pair {
	head := strings.TrimRightFunc(context, isSpace)
	tail := context[len(head):] + choice
	if head == "" {
		return pair{context: []int32{start}, choice: t.EncodeWithSpecials(nil, []byte(tail))}
	}
	p := pair{context: t.EncodeWithSpecials(nil, []byte(head))}
	whole := t.EncodeWithSpecials(nil, []byte(head+tail))
	if n := len(p.context); n < len(whole) {
		p.choice = whole[n:]
		return p
	}
	p.alone = true
	p.choice = t.EncodeWithSpecials(nil, []byte(tail))
	return p
}

// isSpace is white space as Python's str.rstrip, which the harness uses, sees
// it: Unicode's, and the four separators of ASCII.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
