// Package nearest finds the spelling someone probably meant, for error
// messages about unknown flags, presets and keys.
package nearest

// Hint returns `; did you mean "X"?` with the prefix put before the closest of
// the known words, or nothing when none is close.
func Hint(word string, known []string, prefix string) string {
	if w, ok := Find(word, known); ok {
		return `; did you mean "` + prefix + w + `"?`
	}
	return ""
}

// Find returns the known word with the smallest edit distance to word, when
// that is at most a third of the letters (and at least one edit is allowed).
// The first of equals wins.
func Find(word string, known []string) (string, bool) {
	best, bestDist := "", len(word)/3+2
	for _, k := range known {
		if d := distance(word, k); d < bestDist {
			best, bestDist = k, d
		}
	}
	return best, best != ""
}

// distance is the edit distance with transpositions of neighbours (Damerau,
// "A technique for computer detection and correction of spelling errors",
// 1964, in its restricted form), in bytes.
func distance(a, b string) int {
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			cur[j] = min(change, prev[j]+1, cur[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
