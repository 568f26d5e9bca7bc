package bpe

// shortWord is the longest pre-token, in bytes, that mergeShort takes. Its cost grows with the square of the length, but
// up to about this size it beats the heap.
const shortWord = 48

// mergeWord appends the ids of one pre-token to dst: beginning with one symbol per byte, the pair of neighbours with the
// lowest merge rank is joined, the leftmost first, until no pair has a rank.
func (t *Tokenizer) mergeWord(dst []int32, word []byte, long *longMerger) []int32 {
	if t.ignoreMerges {
		if id, ok := t.wordID[string(word)]; ok {
			return append(dst, id)
		}
	}
	if len(word) <= shortWord {
		return t.mergeShort(dst, word)
	}
	return t.mergeLong(dst, word, long)
}

// mergeShort keeps the symbols and the rank of each symbol with its right neighbour in two small arrays.
func (t *Tokenizer) mergeShort(dst []int32, word []byte) []int32 {
	var syms [shortWord]int32
	var ranks [shortWord]uint32
	n := len(word)
	for i, b := range word {
		syms[i] = t.byteID[b]
	}
	for i := 0; i+1 < n; i++ {
		ranks[i] = t.byteRank[word[i]][word[i+1]]
	}
	for n > 1 {
		best, at := noRank, 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		syms[at] = t.mergedID[best]
		copy(syms[at+1:n-1], syms[at+2:n])
		copy(ranks[at+1:n-1], ranks[at+2:n])
		n--
		if at > 0 {
			ranks[at-1] = t.ranks.rank(syms[at-1], syms[at])
		}
		if at+1 < n {
			ranks[at] = t.ranks.rank(syms[at], syms[at+1])
		}
	}
	return append(dst, syms[:n]...)
}
