package bpe

// spans holds a text as adjoining tokens without links: the token over bytes [i, j) writes its id at i and again at
// j−1, and covered elsewhere. From the start of a token the next one begins at i plus the token's length, and the
// previous one ends at i−1, where its id, and with it its length, stands. Tokens only ever grow, so a position that
// held the start of token v shows v again only if that token is still there.
type spans []int32

// covered marks a byte inside a token.
const covered = -2

// reset returns the spans with room for n bytes.
func (s *spans) reset(n int) spans {
	if cap(*s) < n {
		*s = make(spans, n)
	}
	*s = (*s)[:n]
	return *s
}

// join replaces the neighbouring tokens [at, next) and [next, end) by one token id.
func (s spans) join(at, next, end int, id int32) {
	s[next-1], s[next] = covered, covered
	s[at], s[end-1] = id, id
}
