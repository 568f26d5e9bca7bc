package bench

import (
	"errors"
	"fmt"
	"strings"
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
	return b.measure(task{name: fmt.Sprintf("adamw_update %d", n), cost: op.Cost{Bytes: 28 * int64(n)}, run: func() { b.r.AdamW(a) }})
}

// StepOptions choose the form of a training step.
type StepOptions struct {
	Batch, Context  int
	Mixed, Moments8 bool
	// Round is what products may round their inputs to on matrix units: BF16 or
	// F16; F32, the zero value, for exact inputs.
	Round tensor.DType
	// HeadRows is how many rows of logits exist at once, 0 for the default.
	HeadRows int
}

// graph is the form of the step's graph.
func (o StepOptions) graph() model.TrainOptions {
	return model.TrainOptions{Batch: o.Batch, Context: o.Context, LossChunkRows: o.HeadRows}
}

// trainingStep is a model ready to train on random tokens.
type trainingStep struct {
	r               *op.Runner
	params          *model.Params
	graph           *model.Graph
	adam            *optim.AdamW
	tokens, targets []int32
}

func newTrainingStep(r *op.Runner, cfg model.Config, opt StepOptions) (s *trainingStep, err error) {
	s = &trainingStep{r: r}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err = round(r.Backend(), opt.Round); err != nil {
		return s, err
	}
	lim := r.Backend().Limits()
	s.params, err = model.NewParams(r, cfg, model.ParamOptions{
		Grads: true, Moments: !opt.Moments8, Moments8: opt.Moments8, Mirror: opt.Mixed && lim.F16,
		Rounded: model.RoundedOn(lim, opt.Round),
	})
	if err != nil {
		return s, err
	}
	if err = s.params.Init(1); err != nil {
		return s, err
	}
	if s.graph, err = model.NewGraph(r, s.params, opt.graph()); err != nil {
		return s, err
	}
	if s.adam, err = optim.New(r, s.params, optim.Defaults()); err != nil {
		return s, err
	}
	s.tokens, s.targets = randomTokens(s.graph.Rows(), cfg.VocabSize)
	return s, nil
}

// round sets the rounding of products; F32 needs nothing of the backend.
func round(b op.Backend, t tensor.DType) error {
	r, ok := b.(op.Rounder)
	if !ok && t != tensor.F32 {
		return fmt.Errorf("%s has no matrix units: products cannot round to %v", b.Device(), t)
	}
	if !ok {
		return nil
	}
	return r.RoundProducts(t)
}

func (s *trainingStep) close() {
	_ = round(s.r.Backend(), tensor.F32)
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
	if err := s.record(); err != nil {
		return err
	}
	return s.finish()
}

// record hands forward and backward pass to the device.
func (s *trainingStep) record() error {
	return s.graph.MicroStep(s.tokens, s.targets, nil, 1/float32(len(s.tokens)))
}

// finish reads the loss and updates the weights.
func (s *trainingStep) finish() error {
	if _, err := s.graph.LossSum(); err != nil {
		return err
	}
	_, err := s.adam.Step(3e-4)
	return err
}

// Step measures whole training steps of a model. Its share of the peak, the matrix
// units' with opt.Round, counts 6·parameters·tokens plus causal attention.
func (b *Bencher) Step(name string, cfg model.Config, opt StepOptions) error {
	s, err := newTrainingStep(b.r, cfg, opt)
	if err != nil {
		return err
	}
	defer s.close()
	rows, context := s.graph.Rows(), s.graph.Options().Context
	label := fmt.Sprintf("step %s B %d T %d", name, opt.Batch, context)
	var stepErr error
	err = b.measure(task{name: label, cost: op.Cost{FLOPs: cfg.FLOPsPerToken(context) * int64(rows)}, tokens: rows, rounds: opt.Round, run: func() {
		if stepErr == nil {
			stepErr = s.run()
		}
	}})
	return errors.Join(err, stepErr)
}

// StepProfile is where the time of training steps goes.
type StepProfile struct {
	*op.Profile
	Clock bool          // by the device's own clock; else each call ran alone
	Step  time.Duration // of an undisturbed step, its wait included: the shortest of some
	Host  time.Duration // in which the host recorded it
	Steps int           // that the profile is the sum of
	round tensor.DType
}

// Row is one operation's part of a step.
type Row struct {
	Name     string
	Calls    float64 // a step
	Ms       float64
	Share    float64 // of the time of all operations
	GBPerSec float64 // of the bytes it must move
	GFLOPS   float64
	OfPeak   float64 // of whichever peak is nearer
	ByMemory bool    // that is the bandwidth
	// OfCopy is, where ByMemory, the share of the bandwidth that a copy of as many
	// bytes as a call must move on average reaches: what a short kernel could reach.
	OfCopy float64
}

// OpRows are the operations in descending time, held against the peaks, and their
// time in all. Operations that run on matrix units are held against these.
func (p StepProfile) OpRows(peak op.Peak) (rows []Row, totalMs float64) {
	n := float64(p.Steps)
	for _, r := range p.Rows() {
		totalMs += r.Time.Seconds() * 1e3 / n
	}
	for _, r := range p.Rows() {
		s := r.Time.Seconds()
		row := Row{Name: r.Label, Calls: float64(r.Calls) / n, Ms: s * 1e3 / n}
		if totalMs > 0 {
			row.Share = row.Ms / totalMs
		}
		if r.Time > time.Duration(r.Calls)*time.Microsecond { // below that a rate would be noise
			flops := peak.FLOPS
			if strings.HasPrefix(r.Label, "matmul") || strings.HasPrefix(r.Label, "attention") {
				flops = productPeak(peak, p.round)
			}
			compute, memory := float64(r.FLOPs)/s/flops, float64(r.Bytes)/s/peak.BytesPerSec
			row.GBPerSec, row.GFLOPS = float64(r.Bytes)/s/1e9, float64(r.FLOPs)/s/1e9
			row.OfPeak, row.ByMemory = max(compute, memory), memory > compute
			if row.ByMemory {
				row.OfCopy = float64(r.Bytes) / s / peak.CopyRate(float64(r.Bytes)/float64(r.Calls))
			}
		}
		rows = append(rows, row)
	}
	return rows, totalMs
}

// Method says how the operations were timed.
func (p StepProfile) Method() string {
	if p.Clock {
		return "timestamps of the device around every kernel"
	}
	return "each call timed alone: start, wait, less the cost of an empty call"
}

// ProfileStep runs training steps and times their operations: with the device's
// own clock where it has one, else each alone, less the overhead of an empty call.
func ProfileStep(r *op.Runner, cfg model.Config, opt StepOptions, steps int, overhead time.Duration) (p StepProfile, err error) {
	s, err := newTrainingStep(r, cfg, opt)
	if err != nil {
		return p, err
	}
	defer s.close()
	if err := s.warm(); err != nil {
		return p, err
	}
	p.Profile, p.Steps, p.round = &op.Profile{Overhead: overhead}, steps, opt.Round
	if p.Step, p.Host, err = s.time(max(steps, 3)); err != nil {
		return p, err
	}
	for range steps {
		if err := s.profile(&p); err != nil {
			return p, err
		}
	}
	return p, nil
}

// warm runs steps for a while: the first builds kernels, chooses tiles and touches
// memory, and a device lowers its clock meanwhile.
func (s *trainingStep) warm() error {
	if err := s.run(); err != nil {
		return err
	}
	for start := time.Now(); time.Since(start) < 300*time.Millisecond; {
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

// time runs undisturbed steps and returns the shortest.
func (s *trainingStep) time(n int) (step, host time.Duration, err error) {
	step, host = time.Hour, time.Hour
	for range n {
		start := time.Now()
		if err := s.record(); err != nil {
			return 0, 0, err
		}
		host = min(host, time.Since(start))
		if err := s.finish(); err != nil {
			return 0, 0, err
		}
		step = min(step, time.Since(start))
	}
	return step, host, nil
}

// profile adds one step to p.
func (s *trainingStep) profile(p *StepProfile) error {
	stop, ok, err := s.r.ProfileKernels(p.Profile)
	if err != nil {
		return err
	}
	if p.Clock = ok; !ok {
		s.r.SetProfile(p.Profile)
		defer s.r.SetProfile(nil)
		return s.run()
	}
	if err := s.run(); err != nil {
		return err
	}
	return stop()
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
	err = b.measure(task{name: fmt.Sprintf("decode %s", name), cost: op.Cost{Bytes: 4 * int64(cfg.NumParams())}, tokens: 1, run: func() {
		_, stepErr = d.Step(tokens[:1])
	}})
	if err != nil {
		return err
	}
	return stepErr
}
