package train

import (
	"context"
	"fmt"
	"math"

	"tezgah/corpus"
	"tezgah/model"
)

// EvalResult is the quality on held-out text.
type EvalResult struct {
	LossNats    float64 `json:"loss"`          // nats per token
	Perplexity  float64 `json:"perplexity"`    // e^loss
	BitsPerByte float64 `json:"bits_per_byte"` // 0 when the bytes behind the tokens are unknown
	Tokens      int64   `json:"tokens"`
	Bytes       int64   `json:"bytes"`
}

// Evaluator measures a model on token ranges with a graph's batch shape.
type Evaluator struct {
	graph    *model.Graph
	windows  []Windows
	byteLens []int32
	rows     int64 // windows of one call
	tokens   []int32
	targets  []int32
	docStart []int32
}

// NewEvaluator prepares evaluation of token ranges, in order, with the batch
// shape of g. byteLens, the bytes of each id, may be nil.
func NewEvaluator(g *model.Graph, sources []corpus.Source, byteLens []int32) (*Evaluator, error) {
	opt := g.Options()
	w, err := cutWindows(sources, opt.Context, opt.DocMask)
	if err != nil {
		return nil, err
	}
	return NewWindowsEvaluator(g, w, byteLens), nil
}

// NewWindowsEvaluator is NewEvaluator for rows that are cut already, to the
// context of g.
func NewWindowsEvaluator(g *model.Graph, windows []Windows, byteLens []int32) *Evaluator {
	opt := g.Options()
	e := &Evaluator{
		graph: g, windows: windows, byteLens: byteLens, rows: int64(opt.Batch),
		tokens: make([]int32, g.Rows()), targets: make([]int32, g.Rows()),
	}
	if opt.DocMask {
		e.docStart = make([]int32, g.Rows())
	}
	return e
}

// Run evaluates at most maxTokens tokens (0 or less: all), spread evenly over
// the text so that a short evaluation sees all of it. The same arguments give
// the same windows.
func (e *Evaluator) Run(ctx context.Context, maxTokens int64) (EvalResult, error) {
	var res EvalResult
	var sum float64
	for _, w := range e.windows {
		batches := (w.Count() + e.rows - 1) / e.rows
		n := batches
		if maxTokens > 0 {
			share := max(1, maxTokens/int64(len(e.windows))/int64(len(e.tokens)))
			n = min(n, share)
		}
		for i := range n {
			if err := ctx.Err(); err != nil {
				return res, err
			}
			if err := w.Read(i*batches/n*e.rows, e.tokens, e.targets, e.docStart); err != nil {
				return res, err
			}
			if err := e.graph.Evaluate(e.tokens, e.targets, e.docStart); err != nil {
				return res, err
			}
			s, err := e.graph.LossSum()
			if err != nil {
				return res, err
			}
			sum += s
			res.Tokens += int64(model.CountTargets(e.targets))
			if e.byteLens != nil {
				res.Bytes += corpus.BytesOf(e.targets, e.byteLens)
			}
		}
	}
	if res.Tokens == 0 {
		return res, fmt.Errorf("evaluate: the held-out text has no token to predict: give more text or a larger --val-fraction")
	}
	res.LossNats = sum / float64(res.Tokens)
	res.Perplexity = math.Exp(res.LossNats)
	if res.Bytes > 0 {
		res.BitsPerByte = sum / math.Ln2 / float64(res.Bytes)
	}
	return res, nil
}
