package bpe

import (
	"bytes"
	"slices"
)

// The slow, obvious implementations that the fast ones are held against.

// slowTrain is byte pair encoding as its definition has it: count every pair in the whole text, join the most frequent
// one everywhere, begin again. It returns the tokens after the 256 bytes and the merges.
func slowTrain(words map[string]int64, newTokens int, minCount int64, maxBytes int) (tokens [][]byte, merges [][2]int32) {
	for _, b := range byteOrder {
		tokens = append(tokens, []byte{b})
	}
	idOf := func(token []byte) int32 {
		return int32(slices.IndexFunc(tokens, func(t []byte) bool { return bytes.Equal(t, token) }))
	}
	var texts [][]int32
	var counts []int64
	for word, n := range words {
		ids := make([]int32, len(word))
		for i := range ids {
			ids[i] = idOf([]byte{word[i]})
		}
		texts, counts = append(texts, ids), append(counts, n)
	}
	for len(tokens) < 256+newTokens {
		best, most := [2]int32{}, minCount-1
		pairs := make(map[[2]int32]int64)
		for w, ids := range texts {
			for i := 0; i+1 < len(ids); i++ {
				pairs[[2]int32{ids[i], ids[i+1]}] += counts[w]
			}
		}
		for p, n := range pairs {
			if maxBytes > 0 && len(tokens[p[0]])+len(tokens[p[1]]) > maxBytes {
				continue
			}
			if n > most || n == most && n >= minCount && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
				best, most = p, n
			}
		}
		if most < minCount {
			break
		}
		joined := slices.Concat(tokens[best[0]], tokens[best[1]])
		id := idOf(joined)
		if id < 0 {
			id = int32(len(tokens))
			tokens = append(tokens, joined)
		}
		if !slices.Contains(merges, best) {
			merges = append(merges, best)
		}
		for w := range texts {
			texts[w] = slowJoin(texts[w], best, id)
		}
	}
	return tokens, merges
}

// slowJoin replaces a pair by id from left to right.
func slowJoin(ids []int32, p [2]int32, id int32) []int32 {
	var out []int32
	for i := 0; i < len(ids); i++ {
		if i+1 < len(ids) && ids[i] == p[0] && ids[i+1] == p[1] {
			out = append(out, id)
			i++
		} else {
			out = append(out, ids[i])
		}
	}
	return out
}

// slowEncode merges one pre-token by looking, again and again, for the pair with the lowest rank, leftmost first.
func slowEncode(t *Tokenizer, word []byte) []int32 {
	rank := make(map[[2]int32]int)
	for r, m := range t.Merges() {
		rank[m] = r
	}
	var ids []int32
	for _, b := range word {
		ids = append(ids, t.byteID[b])
	}
	for {
		best, at := len(rank)+len(t.Merges()), -1
		for i := 0; i+1 < len(ids); i++ {
			if r, ok := rank[[2]int32{ids[i], ids[i+1]}]; ok && r < best {
				best, at = r, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Replace(ids, at, at+2, t.mergedID[best])
	}
}
