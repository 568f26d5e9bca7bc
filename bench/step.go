package bench

import (
	"errors"
	"fmt"
	"time"

	"tezgah/model"
	"tezgah/op"
	"tezgah/optim"
	"tezgah/tensor"
)

// AdamW measures the optimizer's pass over n parameters.
func (b *Bencher) AdamW(n int) error {
	var ts [4]op.Tensor
	for i, name := range []string{"w", "g", "m", "v"} {
		t, err := b.random(name, uint64(i), n)
		if err != nil {
			return err
		}
		defer b.r.Backend().Free(t.Buf)
		ts[i] = t
	}
	stats, err := b.random("stats", 9, 4)
	if err != nil {
		return err
	}
	defer b.r.Backend().Free(stats.Buf)
	op.WriteSlice(b.r, stats, []float32{1, 1, 0, 0})
	op.WriteSlice(b.r, ts[3], make([]float32, n)) // second moments are not negative
	a := op.AdamW{W: ts[0], G: ts[1], M: ts[2], V: ts[3], Stats: stats, AdamHyper: op.AdamHyper{
		LR: 1e-3, Beta1: 0.9, Beta2: 0.95, WeightDecay: 0.1, Eps: 1e-8, Beta1Pow: 0.9, Beta2Pow: 0.95}}
	return b.measure(fmt.Sprintf("adamw_update %d", n), op.Cost{Bytes: 32 * int64(n)}, 0, func() { b.r.AdamW(a) })
}

// StepOptions choose the form of a training step.
type StepOptions struct {
	Batch, Context  int
	Mixed, Moments8 bool
}

// trainingStep is a model ready to train on random tokens.
type trainingStep struct {
	params          *model.Params
	graph           *model.Graph
	adam            *optim.AdamW
	tokens, targets []int32
}

func newTrainingStep(r *op.Runner, cfg model.Config, opt StepOptions) (s *trainingStep, err error) {
	s = &trainingStep{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.params, err = model.NewParams(r, cfg, model.ParamOptions{
		Grads: true, Moments: !opt.Moments8, Moments8: opt.Moments8, Mirror: opt.Mixed && r.Backend().Limits().F16,
	})
	if err != nil {
		return s, err
	}
	if err = s.params.Init(1); err != nil {
		return s, err
	}
	if s.graph, err = model.NewGraph(r, s.params, model.TrainOptions{Batch: opt.Batch, Context: opt.Context}); err != nil {
		return s, err
	}
	if s.adam, err = optim.New(r, s.params, optim.Defaults()); err != nil {
		return s, err
	}
	s.tokens, s.targets = randomTokens(s.graph.Rows(), cfg.VocabSize)
	return s, nil
}

func (s *trainingStep) close() {
	if s.graph != nil {
		s.graph.Close()
	}
	if s.params != nil {
		s.params.Close()
	}
}

// run does one step: forward, backward, gradient norm, clip and AdamW, with the
// read-backs that training does.
func (s *trainingStep) run() error {
	if err := s.graph.MicroStep(s.tokens, s.targets, nil, 1/float32(len(s.tokens))); err != nil {
		return err
	}
	if _, err := s.graph.LossSum(); err != nil {
		return err
	}
	_, err := s.adam.Step(3e-4)
	return err
}

// Step measures whole training steps of a model. Its share of the peak counts
// 6·parameters·tokens plus causal attention.
func (b *Bencher) Step(name string, cfg model.Config, opt StepOptions) error {
	s, err := newTrainingStep(b.r, cfg, opt)
	if err != nil {
		return err
	}
	defer s.close()
	rows, context := s.graph.Rows(), s.graph.Options().Context
	label := fmt.Sprintf("step %s B %d T %d", name, opt.Batch, context)
	var stepErr error
	err = b.measure(label, op.Cost{FLOPs: cfg.FLOPsPerToken(context) * int64(rows)}, rows, func() {
		if stepErr == nil {
			stepErr = s.run()
		}
	})
	return errors.Join(err, stepErr)
}

// ProfileStep runs training steps with every operation timed alone, each less
// the overhead of an empty call.
func ProfileStep(r *op.Runner, cfg model.Config, opt StepOptions, steps int, overhead time.Duration) (*op.Profile, error) {
	s, err := newTrainingStep(r, cfg, opt)
	if err != nil {
		return nil, err
	}
	defer s.close()
	if err := s.run(); err != nil { // builds kernels and touches memory
		return nil, err
	}
	prof := &op.Profile{Overhead: overhead}
	r.SetProfile(prof)
	defer r.SetProfile(nil)
	for range steps {
		if err := s.run(); err != nil {
			return nil, err
		}
	}
	return prof, nil
}

func randomTokens(n, vocab int) (tokens, targets []int32) {
	r := tensor.NewRNG(5, 6)
	tokens, targets = make([]int32, n), make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(r.Intn(uint64(2*i), vocab))
		targets[i] = int32(r.Intn(uint64(2*i+1), vocab))
	}
	return tokens, targets
}

// Decode measures one token of one stream after a prompt.
func (b *Bencher) Decode(name string, cfg model.Config, prompt int, mixed bool) error {
	p, err := model.NewParams(b.r, cfg, model.ParamOptions{Mirror: mixed && b.r.Backend().Limits().F16})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.Init(1); err != nil {
		return err
	}
	d, err := model.NewDecoder(b.r, p, 1, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	tokens, _ := randomTokens(prompt, cfg.VocabSize)
	if _, err := d.Prefill(tokens); err != nil {
		return err
	}
	var stepErr error
	err = b.measure(fmt.Sprintf("decode %s", name), op.Cost{Bytes: 4 * int64(cfg.NumParams())}, 1, func() {
		_, stepErr = d.Step(tokens[:1])
	})
	if err != nil {
		return err
	}
	return stepErr
}
