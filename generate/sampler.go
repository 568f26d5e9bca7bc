// Package generate turns a model into text: it samples tokens from logits,
// decodes with the KV cache, and streams text that never splits a UTF-8
// character.
//
// It does not load files and does not choose a backend. Open generate.go
// first, then sampler.go; chat.go holds conversations.
package generate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"tezgah/tensor"
)

// Sampling says how the next token is drawn. The zero value is greedy: the
// most likely token, the smallest id on a tie.
type Sampling struct {
	Temperature float64 `json:"temperature"` // divides the logits; 0 is greedy
	TopK        int     `json:"top_k"`       // keep the K most likely; 0 keeps all
	TopP        float64 `json:"top_p"`       // keep the smallest set with this probability (Holtzman et al., 2019); 0 or 1 keeps all
	MinP        float64 `json:"min_p"`       // keep tokens with at least MinP times the largest probability; 0 keeps all
	// RepetitionPenalty divides positive and multiplies negative logits of
	// tokens seen in the last RepetitionWindow tokens (Keskar et al., "CTRL",
	// 2019); 0 and 1 change nothing.
	RepetitionPenalty float64 `json:"repetition_penalty"`
	RepetitionWindow  int     `json:"repetition_window"` // 0 means 256
	Seed              uint64  `json:"seed"`
}

// Validate names the first setting that makes no sense.
func (s Sampling) Validate() error {
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return fmt.Errorf("temperature is %v, want 0 (greedy) or a positive number such as 0.8", s.Temperature)
	case s.TopK < 0:
		return fmt.Errorf("top-k is %d, want 0 (off) or a positive number", s.TopK)
	case !(s.TopP >= 0 && s.TopP <= 1):
		return fmt.Errorf("top-p is %v, want 0 to 1", s.TopP)
	case !(s.MinP >= 0 && s.MinP <= 1):
		return fmt.Errorf("min-p is %v, want 0 to 1", s.MinP)
	case !(s.RepetitionPenalty >= 0) || math.IsInf(s.RepetitionPenalty, 0):
		return fmt.Errorf("repetition penalty is %v, want 1 (off) or a number such as 1.1", s.RepetitionPenalty)
	case s.RepetitionWindow < 0:
		return fmt.Errorf("repetition window is %d, want a positive number of tokens", s.RepetitionWindow)
	}
	return nil
}

// Candidate is a token with its probability after all settings.
type Candidate struct {
	ID   int32
	Prob float64
}

// Sampler draws tokens. It remembers the tokens seen, for the repetition
// penalty, and how many it has drawn, which is the counter of its generator:
// the same seed and logits give the same tokens.
type Sampler struct {
	Sampling
	rng   tensor.RNG
	drawn uint64
	seen  []int32 // the last RepetitionWindow tokens
	cands []Candidate
}

// samplingStream keeps sampling apart from the other users of a seed.
const samplingStream = 0x73616d706c65

// NewSampler returns a sampler, or an error that names the setting at fault.
func NewSampler(s Sampling) (*Sampler, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if s.RepetitionWindow == 0 {
		s.RepetitionWindow = 256
	}
	return &Sampler{Sampling: s, rng: tensor.NewRNG(s.Seed, samplingStream)}, nil
}

// See tells the sampler that tokens are part of the text, as a prompt is.
func (s *Sampler) See(ids ...int32) {
	s.seen = append(s.seen, ids...)
	if over := len(s.seen) - s.RepetitionWindow; over > 0 {
		s.seen = append(s.seen[:0], s.seen[over:]...)
	}
}

// Next draws a token from logits (V), which it changes, and remembers it.
// Settings apply in the order penalty, temperature, top-k, top-p, min-p. It
// fails when a logit is NaN or none is finite.
func (s *Sampler) Next(logits []float32) (Candidate, error) {
	if err := checkLogits(logits); err != nil {
		return Candidate{}, err
	}
	s.penalize(logits)
	var c Candidate
	if s.Temperature == 0 {
		c = greedy(logits)
	} else {
		c = s.draw(s.distribution(logits))
	}
	s.See(c.ID)
	return c, nil
}

// Top returns the n most likely tokens with their probabilities at
// temperature 1, most likely first, without drawing.
func Top(logits []float32, n int) []Candidate {
	cands := softmax(nil, logits, 1)
	slices.SortFunc(cands, byProb)
	return cands[:min(n, len(cands))]
}

func checkLogits(logits []float32) error {
	finite := false
	for i, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return fmt.Errorf("the model's logit for token %d is %v: its weights are damaged or training diverged", i, l)
		}
		finite = finite || l >= -math.MaxFloat32
	}
	if !finite {
		return fmt.Errorf("none of the model's %d logits is finite: its weights are damaged or training diverged", len(logits))
	}
	return nil
}

// penalize applies the repetition penalty once per distinct token seen.
func (s *Sampler) penalize(logits []float32) {
	p := float32(s.RepetitionPenalty)
	if p == 0 || p == 1 {
		return
	}
	done := make(map[int32]bool, len(s.seen))
	for _, id := range s.seen {
		if done[id] || int(id) >= len(logits) || id < 0 {
			continue
		}
		done[id] = true
		if logits[id] > 0 {
			logits[id] /= p
		} else {
			logits[id] *= p
		}
	}
}

func greedy(logits []float32) Candidate {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - float64(logits[best]))
	}
	return Candidate{int32(best), 1 / sum}
}

// distribution returns the candidates that survive the settings, with
// probabilities that sum to 1. Only as many are put in order, likeliest first,
// as top-k and top-p need; a vocabulary of tens of thousands is never sorted.
func (s *Sampler) distribution(logits []float32) []Candidate {
	all := softmax(s.cands[:0], logits, s.Temperature)
	s.cands = all
	kept := all
	if s.TopK > 0 && s.TopK < len(all) || s.TopP > 0 && s.TopP < 1 {
		kept = s.likeliest(all)
	}
	if s.MinP > 0 {
		least := 0.0
		for _, c := range kept {
			least = max(least, c.Prob*s.MinP)
		}
		kept = slices.DeleteFunc(kept, func(c Candidate) bool { return c.Prob < least })
	}
	total := 0.0
	for _, c := range kept {
		total += c.Prob
	}
	for i := range kept {
		kept[i].Prob /= total
	}
	return kept
}

// likeliest returns the candidates that top-k and then top-p keep, likeliest
// first. It takes them one by one off a heap in c; without top-k it stops as
// soon as top-p is reached, for the probabilities of all sum to 1.
func (s *Sampler) likeliest(c []Candidate) []Candidate {
	for i := len(c)/2 - 1; i >= 0; i-- {
		siftDown(c, i)
	}
	k, enough := len(c), 2.0 // more than any sum
	if s.TopK > 0 {
		k = min(k, s.TopK)
	} else {
		enough = s.TopP
	}
	heap := c
	for sum := 0.0; len(c)-len(heap) < k && sum < enough; {
		sum += heap[0].Prob
		last := len(heap) - 1
		heap[0], heap[last] = heap[last], heap[0]
		heap = heap[:last]
		siftDown(heap, 0)
	}
	taken := c[len(heap):] // the likeliest stands last
	slices.Reverse(taken)
	if s.TopK > 0 && s.TopP > 0 && s.TopP < 1 {
		return topP(taken, s.TopP)
	}
	return taken
}

// siftDown restores the heap order, likeliest on top, below place i.
func siftDown(h []Candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && byProb(h[child+1], h[child]) < 0 {
			child++
		}
		if byProb(h[child], h[i]) >= 0 {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// topP keeps the smallest prefix whose share of the candidates' probability
// reaches p.
func topP(cands []Candidate, p float64) []Candidate {
	total, sum := 0.0, 0.0
	for _, c := range cands {
		total += c.Prob
	}
	for i, c := range cands {
		sum += c.Prob
		if sum >= p*total {
			return cands[:i+1]
		}
	}
	return cands
}

func (s *Sampler) draw(cands []Candidate) Candidate {
	u := s.rng.Float64(s.drawn)
	s.drawn++
	for _, c := range cands {
		if u -= c.Prob; u < 0 {
			return c
		}
	}
	return cands[len(cands)-1] // rounding left a sliver above the sum
}

// softmax appends every token with its probability at a temperature.
func softmax(dst []Candidate, logits []float32, temperature float64) []Candidate {
	top := float64(slices.Max(logits))
	sum := 0.0
	for i, l := range logits {
		p := math.Exp((float64(l) - top) / temperature)
		sum += p
		dst = append(dst, Candidate{int32(i), p})
	}
	for i := range dst {
		dst[i].Prob /= sum
	}
	return dst
}

// byProb orders candidates likeliest first, equal ones by id.
func byProb(a, b Candidate) int {
	return cmp.Or(cmp.Compare(b.Prob, a.Prob), cmp.Compare(a.ID, b.ID))
}
