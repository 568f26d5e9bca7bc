package eval

import (
	"context"
	"io"

	"tezgah/model"
	"tezgah/tensor"
)

// WriteLogits writes the logits that follow each of tokens, n·V little-endian
// float32, row-major (n, V), a piece at a time. Tokens are read in windows of
// context T side by side: row i is what the model says after the tokens from
// ⌊i/T⌋·T to i. T is 1 or more, 0 means the model's.
func WriteLogits(ctx context.Context, w io.Writer, p *model.Params, T int, tokens []int32) error {
	g, err := model.NewGraph(p.Runner(), p, model.TrainOptions{Batch: 1, Context: T})
	if err != nil {
		return err
	}
	defer g.Close()
	V := p.Config().VocabSize
	window := make([]int32, g.Rows())
	for len(tokens) > 0 {
		n := copy(window, tokens)
		clear(window[n:]) // behind the text, where nothing sees it
		tokens = tokens[n:]
		err := g.Logits(window, nil, func(first int, logits []float32) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			rows := min(max(0, n-first), len(logits)/V)
			_, err := w.Write(tensor.Bytes(logits[:rows*V]))
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
