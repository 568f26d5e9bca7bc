package train

import (
	"cmp"
	"context"
	"errors"

	"tezgah/chat"
	"tezgah/generate"
	"tezgah/model"
	"tezgah/runlog"
)

// How samples are drawn. The seed is the same each time, so that two samples
// of a run differ by what the model has learned between them.
const (
	sampleTokens      = 64
	sampleTemperature = 0.8
	sampleTopP        = 0.95
)

var errNoTokenizer = errors.New("the data has no tokenizer to read them with")

// Sample is the data of the log's event "sample", whose message is the text.
type Sample struct {
	Prompt    string `json:"prompt,omitempty"`
	NewTokens int    `json:"new_tokens"`
}

// sample lets the model write, and logs the text. It changes nothing that
// training depends on. A sample that fails ends the samples, with a notice,
// unless the device has failed.
func (t *Trainer) sample(ctx context.Context) error {
	if t.noSamples {
		return nil
	}
	res, err := t.write(ctx)
	switch {
	case ctx.Err() != nil:
		return nil // the loop looks at it next
	case t.runner.Err() != nil:
		return t.runner.Err()
	case err != nil:
		t.noSamples = true
		t.notice("no more samples: " + err.Error())
		return nil
	}
	if err := t.log.Event(runlog.KindSample, t.state.Step, res.Text, Sample{t.cfg.SamplePrompt, res.NewTokens}); err != nil {
		return err
	}
	if t.opt.Observer.Sample != nil {
		t.opt.Observer.Sample(t.state.Step, t.cfg.SamplePrompt, res.Text)
	}
	return nil
}

// write generates with the weights as they are.
func (t *Trainer) write(ctx context.Context) (generate.Result, error) {
	prompt, stop, err := t.samplePrompt()
	if err != nil {
		return generate.Result{}, err
	}
	n := cmp.Or(t.cfg.SampleTokens, sampleTokens)
	dec, err := model.NewDecoder(t.runner, t.params, 1, min(t.cfg.Context, len(prompt)+n))
	if err != nil {
		return generate.Result{}, err
	}
	defer dec.Close()
	opt := generate.Options{MaxTokens: n, StopIDs: stop, Sampling: generate.Sampling{Temperature: sampleTemperature, TopP: sampleTopP, Seed: t.cfg.Seed}}
	gen := generate.Generator{Decoder: dec, Tokenizer: t.data.tokenizer}
	return gen.GenerateIDs(ctx, prompt, opt, func(generate.Piece) error { return nil })
}

// samplePrompt encodes the prompt: as a question for a model that learns to
// converse, else as the beginning of a text.
func (t *Trainer) samplePrompt() (ids, stop []int32, err error) {
	tok := t.data.tokenizer
	if tok == nil {
		return nil, nil, errNoTokenizer
	}
	if tpl := t.data.chatTemplate; tpl != nil {
		ids, err = tpl.Prompt(tok, []chat.Message{{Role: chat.User, Content: t.cfg.SamplePrompt}})
		return ids, []int32{tpl.End(tok)}, err
	}
	return tok.EncodeWithSpecials(nil, []byte(t.cfg.SamplePrompt)), nil, nil
}
