package bpe

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// addedToken is an entry of added_tokens in tokenizer.json.
type addedToken struct {
	id         int32
	content    string
	singleWord bool // matches only where no word character touches it
	lstrip     bool // takes the white space on its left with it
	rstrip     bool // takes the white space on its right with it
	normalized bool // is looked for in the normalised text
	special    bool
}

// addedMatcher cuts added tokens out of text as Hugging Face tokenizers does: first those with normalized=false from the
// text as it is, then the others from the normalised remainders; in each pass the leftmost and of these the longest.
type addedMatcher struct {
	raw, normalized addedTrie
}

// addedTrie finds the longest token that begins at a position. The children of a node form a linked list, except those
// of the root, where nearly all look-ups end.
type addedTrie struct {
	root   [256]int32 // node of a first byte, 0 for none; nodes[0] is not used
	nodes  []trieNode
	tokens []addedToken
}

type trieNode struct {
	child, sibling int32 // 0 for none
	token          int32 // index into tokens, −1 for none
	b              byte
}

func newAddedMatcher(added []addedToken, nfcText bool) addedMatcher {
	var m addedMatcher
	for _, a := range added {
		switch {
		case a.content == "":
		case !a.normalized:
			m.raw.insert(a.content, a)
		case nfcText:
			m.normalized.insert(norm.NFC.String(a.content), a)
		default:
			m.normalized.insert(a.content, a)
		}
	}
	return m
}

func (t *addedTrie) insert(content string, a addedToken) {
	if len(t.nodes) == 0 {
		t.nodes = make([]trieNode, 1)
	}
	at := t.root[content[0]]
	if at == 0 {
		at = t.newNode(content[0], 0)
		t.root[content[0]] = at
	}
	for _, b := range []byte(content[1:]) {
		child := t.find(at, b)
		if child == 0 {
			child = t.newNode(b, t.nodes[at].child)
			t.nodes[at].child = child
		}
		at = child
	}
	t.nodes[at].token = int32(len(t.tokens))
	t.tokens = append(t.tokens, a)
}

func (t *addedTrie) newNode(b byte, sibling int32) int32 {
	t.nodes = append(t.nodes, trieNode{sibling: sibling, token: -1, b: b})
	return int32(len(t.nodes) - 1)
}

// find returns the child of node at for byte b, or 0.
func (t *addedTrie) find(at int32, b byte) int32 {
	child := t.nodes[at].child
	for child != 0 && t.nodes[child].b != b {
		child = t.nodes[child].sibling
	}
	return child
}

// longest returns the longest token at text[i:] and its end, or nil.
func (t *addedTrie) longest(text []byte, i int) (found *addedToken, end int) {
	at := t.root[text[i]]
	for j := i + 1; at != 0; j++ {
		if k := t.nodes[at].token; k >= 0 {
			found, end = &t.tokens[k], j
		}
		if j == len(text) {
			break
		}
		at = t.find(at, text[j])
	}
	return found, end
}

// split calls yield with the parts of text in order: id −1 and normalised text, or the id of an added token.
func (m *addedMatcher) split(text []byte, normalize func([]byte) []byte, yield func(part []byte, id int32)) {
	m.raw.split(text, func(part []byte, id int32) {
		if id >= 0 {
			yield(part, id)
			return
		}
		m.normalized.split(normalize(part), yield)
	})
}

// split is one pass. A match that single_word rules out is skipped as a whole.
func (t *addedTrie) split(text []byte, yield func(part []byte, id int32)) {
	done := 0 // all before it has been yielded
	for i := 0; i < len(text) && len(t.nodes) > 0; {
		a, end := t.longest(text, i)
		if a == nil {
			i++
			continue
		}
		start, next := i, end
		i = end
		if a.singleWord && (endsWithWord(text[:start]) || startsWithWord(text[next:])) {
			continue
		}
		if a.lstrip {
			start = max(spaceBefore(text, start), done)
		}
		if a.rstrip {
			next = spaceAfter(text, next)
		}
		if done < start {
			yield(text[done:start], -1)
		}
		yield(text[start:next], a.id)
		done = next
	}
	if done < len(text) {
		yield(text[done:], -1)
	}
}

// isWord is \w of Rust's regex crate (Unicode Technical Standard 18, annex C): alphabetic, mark, decimal number, connector
// punctuation, join control.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic, unicode.Join_Control)
}

func endsWithWord(text []byte) bool {
	r, n := utf8.DecodeLastRune(text)
	return n > 0 && isWord(r)
}

func startsWithWord(text []byte) bool {
	r, n := utf8.DecodeRune(text)
	return n > 0 && isWord(r)
}

// spaceBefore returns the start of the white space that ends at text[:end].
func spaceBefore(text []byte, end int) int {
	for end > 0 {
		r, n := utf8.DecodeLastRune(text[:end])
		if classes[r] < classSpace {
			break
		}
		end -= n
	}
	return end
}

// spaceAfter returns the end of the white space at text[start:].
func spaceAfter(text []byte, start int) int {
	for start < len(text) {
		c, n := classAt(text, start)
		if c < classSpace {
			break
		}
		start += n
	}
	return start
}
