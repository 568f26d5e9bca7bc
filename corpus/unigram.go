package corpus

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// TokenBytes returns the number of text bytes of every id, by decoding each alone. The end-of-document token and special
// tokens, such as those of a chat template, stand for no text and count 0; special may be nil. Bits per byte are measured
// with it.
func TokenBytes(decode func(ids []int32) []byte, vocabSize int, endOfDocument int32, special func(id int32) bool) []int32 {
	n := make([]int32, vocabSize)
	one := make([]int32, 1)
	for id := range n {
		one[0] = int32(id)
		if one[0] == endOfDocument || special != nil && special(one[0]) {
			continue
		}
		n[id] = int32(len(decode(one)))
	}
	return n
}

// BytesOf is the number of text bytes behind the targets that count in a loss.
func BytesOf(targets, tokenBytes []int32) int64 {
	var n int64
	for _, id := range targets {
		if id >= 0 {
			n += int64(tokenBytes[id])
		}
	}
	return n
}

// UnigramStats is how well text is predicted by the frequency of tokens alone. A model has learned something when it
// needs fewer bits.
type UnigramStats struct {
	Tokens, Bytes int64 // measured
	BitsPerToken  float64
	BitsPerByte   float64 // 0 when Bytes is
}

// Unigram fits token frequencies on train, adding one to each count, and measures them on the targets of val: all
// tokens but the first. tokenBytes is from TokenBytes; nil leaves BitsPerByte 0.
func Unigram(ctx context.Context, train, val Source, tokenBytes []int32) (UnigramStats, error) {
	if err := errors.Join(train.check(1), val.check(1), sameVocabulary(train.Data, val.Data)); err != nil {
		return UnigramStats{}, fmt.Errorf("unigram: %w", err)
	}
	seen, err := countTokens(ctx, train)
	if err != nil {
		return UnigramStats{}, fmt.Errorf("unigram: %w", err)
	}
	val.Lo++
	wanted, err := countTokens(ctx, val)
	if err != nil {
		return UnigramStats{}, fmt.Errorf("unigram: %w", err)
	}
	if tokenBytes != nil && len(tokenBytes) != len(wanted) {
		return UnigramStats{}, fmt.Errorf("unigram: bytes of %d ids, want %d", len(tokenBytes), len(wanted))
	}
	var stats UnigramStats
	total := math.Log2(float64(train.Len()) + float64(len(seen)))
	bits := 0.0
	for id, n := range wanted {
		if n == 0 {
			continue
		}
		bits += float64(n) * (total - math.Log2(float64(seen[id])+1))
		stats.Tokens += n
		if tokenBytes != nil {
			stats.Bytes += n * int64(tokenBytes[id])
		}
	}
	stats.BitsPerToken = bits / float64(stats.Tokens)
	if stats.Bytes > 0 {
		stats.BitsPerByte = bits / float64(stats.Bytes)
	}
	return stats, nil
}

// countTokens returns how often each id occurs.
func countTokens(ctx context.Context, s Source) ([]int64, error) {
	counts := make([]int64, s.Data.VocabSize())
	buf := make([]int32, 64<<10)
	for off := s.Lo; off < s.Hi; off += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		ids := buf[:min(int64(len(buf)), s.Hi-off)]
		if err := s.Data.Read(ids, off); err != nil {
			return nil, err
		}
		for _, id := range ids {
			counts[id]++
		}
	}
	return counts, nil
}
