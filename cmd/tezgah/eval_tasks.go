package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"tezgah/eval"
	"tezgah/train"
)

// itemLine is a line of --per-item.
type itemLine struct {
	Type    string             `json:"type"` // "item"
	File    string             `json:"file"`
	Line    int                `json:"line"`
	ID      string             `json:"id,omitempty"`
	Task    string             `json:"task"`
	Label   int                `json:"label"`
	Sum     int                `json:"pick"`            // by log-likelihood
	Norm    int                `json:"pick_norm"`       // per token
	Bytes   int                `json:"pick_norm_bytes"` // per byte
	Cut     int                `json:"cut"`
	Alone   bool               `json:"alone"`
	Choices []eval.ChoiceScore `json:"choices"`
}

// tasksResult is the last line of --json.
type tasksResult struct {
	Type    string          `json:"type"` // "result"
	All     eval.Accuracy   `json:"all"`
	Tasks   []eval.Accuracy `json:"tasks"`
	Choices int             `json:"choices"` // scored
	Context int             `json:"context"` // T
	Seconds float64         `json:"seconds"` // of scoring
}

func (f *evalFlags) loadTasks() ([]eval.Item, error) {
	var items []eval.Item
	for _, path := range f.tasks {
		more, err := eval.LoadTasks(path)
		if err != nil {
			return nil, err
		}
		items = append(items, more...)
	}
	return items, nil
}

// score scores the items and prints accuracies.
func (f *evalFlags) score(ctx context.Context, m *train.Loaded, items []eval.Item) error {
	res := tasksResult{Type: "result", Context: f.context}
	if res.Context == 0 {
		res.Context = m.Params.Config().Context
	}
	status := newStatusLine(f.json)
	defer status.clear()
	begin := time.Now()
	scores, err := eval.ScoreTasks(ctx, m.Params, m.Tokenizer, items, eval.Options{
		Context: res.Context, Batch: f.batch,
		Progress: func(done, total int) {
			res.Choices = total
			status.set("eval: %s of %s choices", count(done), count(total))
		},
	})
	if err != nil {
		return err
	}
	status.clear()
	res.Seconds = time.Since(begin).Seconds()
	res.All, res.Tasks = eval.Summarise(scores)
	if !f.json {
		return printTasks(res)
	}
	if f.perItem {
		for i := range scores {
			if err := printJSON(lineOf(&scores[i])); err != nil {
				return err
			}
		}
	}
	return printJSON(res)
}

func lineOf(s *eval.Score) itemLine {
	it := s.Item
	return itemLine{
		Type: "item", File: it.File, Line: it.Line, ID: it.ID, Task: it.Task, Label: it.Label,
		Sum: s.Sum(), Norm: s.PerToken(), Bytes: s.PerByte(), Cut: s.Cut, Alone: s.Alone, Choices: s.Choices,
	}
}

func printTasks(res tasksResult) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "task\tn\tacc_norm\tacc\tacc_norm_bytes\tchance\t")
	rows := res.Tasks
	if len(rows) > 1 {
		rows = append(rows, res.All)
		rows[len(rows)-1].Task = "all"
	}
	share := func(s eval.Share) string { return fmt.Sprintf("%.2f ± %.2f %%", 100*s.Value, 100*s.StdErr) }
	for _, a := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.2f %%\t\n", a.Task, count(a.N), share(a.Norm), share(a.Acc), share(a.Bytes), 100*a.Chance)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Printf("\nacc_norm: log-likelihood per token, acc: in sum, acc_norm_bytes: per byte; ± is a standard error\n")
	fmt.Printf("%s items, %s choices in %.1f s\n", count(res.All.N), count(res.Choices), res.Seconds)
	if n := res.All.Cut; n > 0 {
		fmt.Printf("%s items did not fit %d tokens: their context was cut on the left\n", count(n), res.Context)
	}
	if n := res.All.Alone; n > 0 {
		fmt.Printf("%s items have a choice that the tokenizer joins with the context: it was encoded alone\n", count(n))
	}
	return nil
}
