package model

import (
	"fmt"
	"math"

	"tezgah/tensor"
)

// GrowRows gives a token embedding (oldV, C) rows for a larger vocabulary and
// returns it as (newV, C); emb is not changed. A new token begins as an ordinary
// one: each of its C numbers is drawn from the normal distribution that this
// number has over the old tokens, with their mean and standard deviation (as
// Hewitt, "Initializing New Word Embeddings for Pretrained Language Models",
// 2021, advises, without the correlations). Equal seeds give equal rows.
func GrowRows(emb []float32, oldV, newV, C int, seed uint64) ([]float32, error) {
	if err := checkGrow(len(emb), oldV, newV, C); err != nil {
		return nil, err
	}
	return grow(emb, oldV, newV, C, seed, func(v, _, c int) int { return v*C + c }), nil
}

// GrowCols is GrowRows for an lm_head, (C, oldV) to (C, newV): of transposed
// inputs it makes the transposed result.
func GrowCols(head []float32, oldV, newV, C int, seed uint64) ([]float32, error) {
	if err := checkGrow(len(head), oldV, newV, C); err != nil {
		return nil, err
	}
	return grow(head, oldV, newV, C, seed, func(v, V, c int) int { return c*V + v }), nil
}

func checkGrow(n, oldV, newV, C int) error {
	switch {
	case oldV < 1 || C < 1 || C > maxDim || newV > maxDim:
		return fmt.Errorf("growing a vocabulary from %d to %d tokens of %d numbers: want all above 0 and at most %d", oldV, newV, C, maxDim)
	case newV < oldV:
		return fmt.Errorf("growing a vocabulary: from %d to %d tokens, want at least as many", oldV, newV)
	case n != oldV*C:
		return fmt.Errorf("growing a vocabulary: got %d numbers, want %d (%d tokens of %d)", n, oldV*C, oldV, C)
	}
	return nil
}

// grow does the work in either layout; at says where number c of token v lies
// when there are V tokens.
func grow(w []float32, oldV, newV, C int, seed uint64, at func(v, V, c int) int) []float32 {
	out := make([]float32, newV*C)
	rng := tensor.NewRNG(seed, uint64(oldV))
	noise := make([]float32, 1)
	for c := range C {
		var sum, squares float64
		for v := range oldV {
			x := w[at(v, oldV, c)]
			out[at(v, newV, c)] = x
			sum += float64(x)
		}
		mean := sum / float64(oldV)
		for v := range oldV {
			d := float64(w[at(v, oldV, c)]) - mean
			squares += d * d
		}
		std := math.Sqrt(squares / float64(oldV))
		for v := oldV; v < newV; v++ {
			rng.Normal(noise, uint64(v)*uint64(C)+uint64(c), std)
			out[at(v, newV, c)] = float32(mean + float64(noise[0]))
		}
	}
	return out
}
