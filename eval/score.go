package eval

import (
	"context"
	"errors"
	"fmt"
	"math"

	"tezgah/bpe"
	"tezgah/model"
)

// Options say how tasks are scored.
type Options struct {
	Context int // T, the most tokens that a context and a choice may take; 0 means the model's
	Batch   int // sequences of full length in a batch, and proportionally more shorter ones; 0 means 8

	Progress func(done, total int) // choices scored so far; may be nil
}

// ChoiceScore is how likely a choice is.
type ChoiceScore struct {
	LogLikelihood float64 `json:"loglikelihood"` // Σ log p of its tokens given the context, in nats
	Tokens        int     `json:"tokens"`        // of the choice, at least 1
	Bytes         int     `json:"bytes"`         // UTF-8 bytes of the choice as it stands in the file, at least 1
}

// Score is what the model makes of one item.
type Score struct {
	Item    *Item
	Choices []ChoiceScore // in the item's order
	Cut     int           // tokens taken off the beginning of the context, the most of any choice; 0 where all fits
	Alone   bool          // a choice left no token of its own beside the context and was encoded alone
}

// ScoreTasks computes the log-likelihood of every choice of every item, in the
// items' order. The batches do not depend on that order, so that the same items
// give the same bits; how rows are padded changes no more than rounding.
//
// A context too long for T tokens together with its choice is cut on the left;
// a choice longer than T tokens by itself is an error.
func ScoreTasks(ctx context.Context, p *model.Params, t *bpe.Tokenizer, items []Item, o Options) ([]Score, error) {
	if o.Context == 0 {
		o.Context = p.Config().Context
	}
	if o.Batch == 0 {
		o.Batch = 8
	}
	if o.Context < 1 || o.Batch < 1 {
		return nil, fmt.Errorf("score tasks: context is %d and batch %d, want positive numbers", o.Context, o.Batch)
	}
	s := &scorer{params: p, opt: o}
	if err := s.encode(ctx, t, items); err != nil {
		return nil, err
	}
	for _, sh := range pack(s.reqs, o.Batch*o.Context, o.Context) {
		if err := s.run(ctx, sh); err != nil {
			return nil, err
		}
	}
	return s.scores, s.checkFinite()
}

// scorer holds the items' choices as requests, and where their results go.
type scorer struct {
	params *model.Params
	opt    Options
	scores []Score
	reqs   []request
	result []*ChoiceScore // of each request
	done   int            // requests
}

func (s *scorer) encode(ctx context.Context, t *bpe.Tokenizer, items []Item) error {
	start := StartToken(t)
	s.scores = make([]Score, len(items))
	for i := range items {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.encodeItem(t, start, &items[i], &s.scores[i]); err != nil {
			return items[i].at(err)
		}
	}
	return nil
}

func (s *scorer) encodeItem(t *bpe.Tokenizer, start int32, it *Item, score *Score) error {
	*score = Score{Item: it, Choices: make([]ChoiceScore, len(it.Choices))}
	for c, choice := range it.Choices {
		p := encodePair(t, start, it.Context, choice)
		n := len(p.choice)
		switch {
		case p.context[0] < 0:
			return errors.New("the context is empty and the tokenizer has no end-of-document token to start from: give a context")
		case n == 0:
			return fmt.Errorf("choice %d, %.40q, has no token", c, choice)
		case n > s.opt.Context:
			return fmt.Errorf("choice %d has %d tokens and the context holds %d: shorten it or give a larger --context", c, n, s.opt.Context)
		}
		seq := append(p.context, p.choice...)
		cut := max(0, len(seq)-(s.opt.Context+1))
		score.Cut = max(score.Cut, cut)
		score.Alone = score.Alone || p.alone
		score.Choices[c] = ChoiceScore{Tokens: n, Bytes: len(choice)}
		s.reqs = append(s.reqs, request{seq: seq[cut:], scored: n})
		s.result = append(s.result, &score.Choices[c])
	}
	return nil
}

// run scores the requests of one shape.
func (s *scorer) run(ctx context.Context, sh shape) error {
	g, err := model.NewGraph(s.params.Runner(), s.params, model.TrainOptions{Batch: sh.rows, Context: sh.length})
	if err != nil {
		return err
	}
	defer g.Close()
	tokens, targets := make([]int32, g.Rows()), make([]int32, g.Rows())
	losses := make([]float32, g.Rows())
	for at := 0; at < len(sh.order); at += sh.rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		which := sh.order[at:min(at+sh.rows, len(sh.order))]
		fill(tokens, targets, sh.length, s.reqs, which)
		if err := g.Evaluate(tokens, targets, nil); err != nil {
			return err
		}
		if err := g.RowLosses(losses); err != nil {
			return err
		}
		for row, i := range which {
			s.result[i].LogLikelihood = s.reqs[i].sumScored(losses[row*sh.length : (row+1)*sh.length])
		}
		s.done += len(which)
		if s.opt.Progress != nil {
			s.opt.Progress(s.done, len(s.reqs))
		}
	}
	return nil
}

// checkFinite refuses results that compare as nothing.
func (s *scorer) checkFinite() error {
	for i := range s.scores {
		for c, ch := range s.scores[i].Choices {
			if math.IsNaN(ch.LogLikelihood) || math.IsInf(ch.LogLikelihood, 0) {
				return s.scores[i].Item.at(fmt.Errorf("the log-likelihood of choice %d is %v: the model's weights are not usable", c, ch.LogLikelihood))
			}
		}
	}
	return nil
}
