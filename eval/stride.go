package eval

import (
	"context"
	"errors"
	"fmt"
	"math"

	"tezgah/corpus"
	"tezgah/model"
)

// PerplexityOptions say how windows lie on the text.
type PerplexityOptions struct {
	// Stride S is by how many tokens a window begins behind the one before, 1 to
	// the graph's context T; 0 means T, windows side by side.
	Stride int
	// MaxTokens bounds the tokens that count, spread evenly over the text in whole
	// batches; 0 means all.
	MaxTokens int64

	Progress func(done, total int64) // batches; may be nil
}

// PerplexityResult is how well a text is predicted.
type PerplexityResult struct {
	LossNats    float64 `json:"loss"`          // nats per token
	Perplexity  float64 `json:"perplexity"`    // e^loss
	BitsPerByte float64 `json:"bits_per_byte"` // 0 when the bytes behind the tokens are unknown
	Tokens      int64   `json:"tokens"`        // that were predicted
	Bytes       int64   `json:"bytes"`
	Context     int     `json:"context"` // T
	Stride      int     `json:"stride"`  // S
}

// Perplexity measures a text in windows of T tokens, the graph's context, that
// advance by S tokens. Window k reads tokens kS to kS+T−1 and predicts the token
// behind each. The first window counts all its predictions, every other one
// the last S, so that each token of the text but the first counts exactly once,
// and all but the first T are predicted from at least T−S+1 tokens before them.
// The last window ends with the text and may be shorter. With S = T this is
// what training's evaluation measures.
//
// These are the windows of transformers' documentation ("Perplexity of
// fixed-length models") for max_length T+1 and stride S: it counts the token
// that is only predicted as part of the window.
//
// Several sources are measured one after the other. byteLens, the bytes of each
// id, may be nil. With the graph's DocMask, documents do not see each other and
// the first token of a document is not predicted.
func Perplexity(ctx context.Context, g *model.Graph, sources []corpus.Source, byteLens []int32, o PerplexityOptions) (PerplexityResult, error) {
	opt := g.Options()
	if o.Stride == 0 {
		o.Stride = opt.Context
	}
	res := PerplexityResult{Context: opt.Context, Stride: o.Stride}
	if o.Stride < 1 || o.Stride > opt.Context {
		return res, fmt.Errorf("stride of %d tokens, want 1 to the context of %d", o.Stride, opt.Context)
	}
	m := &meter{
		g: g, T: opt.Context, S: o.Stride, byteLens: byteLens,
		tokens: make([]int32, g.Rows()), targets: make([]int32, g.Rows()), losses: make([]float32, g.Rows()),
	}
	if opt.DocMask {
		m.docStart = make([]int32, g.Rows())
	}
	if err := m.run(ctx, sources, o); err != nil {
		return res, err
	}
	if m.count == 0 {
		return res, errors.New("the text has no token to predict: give more of it")
	}
	res.Tokens, res.Bytes = m.count, m.bytes
	res.LossNats = m.sum / float64(m.count)
	res.Perplexity = math.Exp(res.LossNats)
	if m.bytes > 0 {
		res.BitsPerByte = m.sum / math.Ln2 / float64(m.bytes)
	}
	return res, nil
}

// meter adds up the losses of windows.
type meter struct {
	g        *model.Graph
	T, S     int
	byteLens []int32

	tokens, targets, docStart []int32   // (B, T)
	losses                    []float32 // (B, T)

	sum   float64 // nats
	count int64   // targets
	bytes int64   // behind the targets
}

// run measures the sources, each with the same share of the tokens.
func (m *meter) run(ctx context.Context, sources []corpus.Source, o PerplexityOptions) error {
	rows := int64(len(m.tokens) / m.T)
	batches, take := make([]int64, len(sources)), make([]int64, len(sources))
	var done, total int64
	for i, s := range sources {
		if s.Len() < 2 {
			return fmt.Errorf("%s: %d tokens, want at least 2: one to read and one to predict", s.Data.Name(), s.Len())
		}
		batches[i] = (m.windows(s) + rows - 1) / rows
		take[i] = batches[i]
		if o.MaxTokens > 0 {
			take[i] = min(take[i], max(1, o.MaxTokens/int64(len(sources))/(rows*int64(m.S))))
		}
		total += take[i]
	}
	for i, s := range sources {
		for b := range take[i] {
			if err := ctx.Err(); err != nil {
				return err
			}
			first := b * batches[i] / take[i] * rows
			if err := m.batch(s, first, min(first+rows, m.windows(s))); err != nil {
				return err
			}
			if done++; o.Progress != nil {
				o.Progress(done, total)
			}
		}
	}
	return nil
}

// windows is how many of them cover a source: the first T targets, then S each.
func (m *meter) windows(s corpus.Source) int64 {
	rest := s.Len() - 1 - int64(m.T)
	return 1 + (max(0, rest)+int64(m.S)-1)/int64(m.S)
}

// batch measures windows [first, end) of a source, at most as many as the
// graph has rows.
func (m *meter) batch(s corpus.Source, first, end int64) error {
	clear(m.tokens)
	clear(m.docStart)
	for i := range m.targets {
		m.targets[i] = model.IgnoreIndex
	}
	for k := first; k < end; k++ {
		if err := m.read(s, k, int(k-first)*m.T); err != nil {
			return err
		}
	}
	if err := m.g.Evaluate(m.tokens, m.targets, m.docStart); err != nil {
		return err
	}
	if err := m.g.RowLosses(m.losses); err != nil {
		return err
	}
	for _, l := range m.losses { // 0 where the target is ignored
		m.sum += float64(l)
	}
	m.count += int64(model.CountTargets(m.targets))
	if m.byteLens != nil {
		m.bytes += corpus.BytesOf(m.targets, m.byteLens)
	}
	return nil
}

// read lays window k of a source out at element at of the batch.
func (m *meter) read(s corpus.Source, k int64, at int) error {
	s.Lo += k * int64(m.S)
	w, err := corpus.NewWindows(s, m.T, m.docStart != nil)
	if err != nil {
		return err
	}
	var starts []int32
	if m.docStart != nil {
		starts = m.docStart[at : at+m.T]
	}
	targets := m.targets[at : at+m.T]
	if err := w.Read(0, m.tokens[at:at+m.T], targets, starts); err != nil {
		return err
	}
	if k > 0 { // counted by the windows before
		for i := range targets[:m.T-m.S] {
			targets[i] = model.IgnoreIndex
		}
	}
	return nil
}
