package eval

import "math"

// The three ways to pick a choice, see docs/eval.md. Of equals the first wins.

// Sum picks the choice of the largest log-likelihood.
func (s *Score) Sum() int {
	return s.best(func(c ChoiceScore) float64 { return c.LogLikelihood })
}

// PerToken picks the choice of the largest mean log-likelihood of its tokens:
// the length-normalised log-likelihood.
func (s *Score) PerToken() int {
	return s.best(func(c ChoiceScore) float64 { return c.LogLikelihood / float64(c.Tokens) })
}

// PerByte picks the choice of the largest log-likelihood per byte.
func (s *Score) PerByte() int {
	return s.best(func(c ChoiceScore) float64 { return c.LogLikelihood / float64(c.Bytes) })
}

func (s *Score) best(value func(ChoiceScore) float64) int {
	best := 0
	for i, c := range s.Choices {
		if value(c) > value(s.Choices[best]) {
			best = i
		}
	}
	return best
}

// Share is a share of items and how far it would vary with other items of the
// same kind.
type Share struct {
	Value  float64 `json:"value"`
	StdErr float64 `json:"stderr"` // √(p(1−p)/(n−1)); 0 for a single item, which says nothing
}

func newShare(right, n int) Share {
	p := float64(right) / float64(n)
	return Share{Value: p, StdErr: math.Sqrt(p * (1 - p) / float64(max(1, n-1)))}
}

// Accuracy is the result of a group of items.
type Accuracy struct {
	Task    string  `json:"task"` // "" for all items together
	N       int     `json:"n"`
	Acc     Share   `json:"acc"`            // right by Score.Sum
	Norm    Share   `json:"acc_norm"`       // right by Score.PerToken
	Bytes   Share   `json:"acc_norm_bytes"` // right by Score.PerByte
	Chance  float64 `json:"chance"`         // what guessing would get
	Cut     int     `json:"cut"`            // items whose context did not fit whole
	Alone   int     `json:"alone"`          // items with a choice that was encoded alone
	LogLike float64 `json:"loglikelihood"`  // mean Σ log p of the right choice, nats
}

// Summarise returns the accuracy over all scores and, in the order of their
// first items, over each task. There must be at least one score.
func Summarise(scores []Score) (all Accuracy, tasks []Accuracy) {
	var names []string
	groups := map[string][]Score{}
	for _, s := range scores {
		name := s.Item.Task
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], s)
	}
	for _, name := range names {
		tasks = append(tasks, accuracy(name, groups[name]))
	}
	return accuracy("", scores), tasks
}

func accuracy(task string, scores []Score) Accuracy {
	a := Accuracy{Task: task, N: len(scores)}
	var sum, norm, bytes int
	for i := range scores {
		s := &scores[i]
		sum += count(s.Sum() == s.Item.Label)
		norm += count(s.PerToken() == s.Item.Label)
		bytes += count(s.PerByte() == s.Item.Label)
		a.Cut += count(s.Cut > 0)
		a.Alone += count(s.Alone)
		a.Chance += 1 / float64(len(s.Choices)) / float64(a.N)
		a.LogLike += s.Choices[s.Item.Label].LogLikelihood / float64(a.N)
	}
	a.Acc, a.Norm, a.Bytes = newShare(sum, a.N), newShare(norm, a.N), newShare(bytes, a.N)
	return a
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
