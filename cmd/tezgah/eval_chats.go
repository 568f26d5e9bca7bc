package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"tezgah/model"
	"tezgah/train"
)

// chatsResult is what --json prints for the conversations of a run.
type chatsResult struct {
	train.EvalResult       // of the tokens that the loss counts
	Conversations    int64 `json:"conversations"`
	Rows             int64 `json:"rows"`
	Context          int   `json:"context"` // T
}

// measureChats prints the loss on the conversations that a run held out: as in
// training, of the assistant's words and the end of each turn.
func (f *evalFlags) measureChats(ctx context.Context, m *train.Loaded, held *train.Config) error {
	T := cmp.Or(f.context, held.Context)
	w, byteLens, err := train.HeldOutChats(ctx, *held, m.Tokenizer, T)
	if err != nil {
		return fmt.Errorf("the run's held-out conversations: %w; or give a text with --data or --text", err)
	}
	g, err := model.NewGraph(m.Params.Runner(), m.Params, model.TrainOptions{Batch: f.batch, Context: T, DocMask: true})
	if err != nil {
		return err
	}
	defer g.Close()
	res, err := train.NewWindowsEvaluator(g, []train.Windows{w}, byteLens).Run(ctx, f.maxTokens)
	if err != nil {
		return err
	}
	p := w.Packing()
	if f.json {
		return printJSON(chatsResult{res, p.Conversations, p.Rows, T})
	}
	name := cmp.Or(held.ValData, strings.Join(held.Chats, ", "))
	fmt.Printf("chats         %s, %s conversations held out\n", name, count(p.Conversations))
	fmt.Printf("loss          %.4f nats per learned token\nperplexity    %.3f\n", res.LossNats, res.Perplexity)
	if res.Bytes > 0 {
		fmt.Printf("bits per byte %.4f\n", res.BitsPerByte)
	}
	fmt.Printf("tokens        %s learned (%s of answers), in %s rows of %d\n", count(res.Tokens), formatBytes(res.Bytes), count(p.Rows), T)
	if p.Truncated > 0 {
		fmt.Printf("%s conversations are longer than that and were cut\n", count(p.Truncated))
	}
	return nil
}
