package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/optim"
	"tezgah/runlog"
)

// Run trains until a limit is reached, the context ends or something fails.
// When the context ends it saves a checkpoint and returns context.Canceled; the
// run can then be resumed. A device that fails is opened once more and training
// goes on from the newest checkpoint.
func (t *Trainer) Run(ctx context.Context) (Result, error) {
	if t.opt.Observer.Start != nil {
		info, err := t.Info()
		if err != nil {
			return Result{}, err
		}
		t.opt.Observer.Start(info)
	}
	failedAt := int64(-1)
	for {
		reason, err := t.loop(ctx)
		if err == nil {
			var res Result
			if res, err = t.finish(reason); err == nil {
				return res, nil
			}
		}
		switch {
		case ctx.Err() != nil:
			return t.result(""), t.interrupted(ctx)
		case !t.deviceFailed(err):
			t.event(runlog.KindStop, err.Error())
			return t.result(""), err
		case failedAt == t.state.Step:
			err = fmt.Errorf("%w; this is the second time after step %d. %s", err, failedAt, t.goOn())
			t.event(runlog.KindStop, err.Error())
			return t.result(""), err
		}
		failedAt = t.state.Step
		t.rescue()
		if err := t.recover(err); err != nil {
			return t.result(""), err
		}
	}
}

// loop runs steps until a limit; it returns the limit's name.
func (t *Trainer) loop(ctx context.Context) (string, error) {
	pace := newPace(t.state.Step, t.cfg.MaxSteps, t.state.Tokens)
	for !t.limit() {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		rec, err := t.step()
		if err != nil {
			return "", err
		}
		t.deviceNotices()
		val, evalErr := t.evaluateStep(ctx)
		if evalErr != nil && ctx.Err() == nil {
			return "", evalErr
		}
		rec.ValLoss = val
		now := pace.update(t.state.Step, t.state.Tokens)
		rec.TokPerSec = now.TokPerSec
		if err := t.logStep(rec); err != nil {
			return "", err
		}
		t.settled = true
		if t.opt.Observer.Step != nil {
			t.opt.Observer.Step(rec, now)
		}
		if evalErr != nil { // interrupted; the step itself was taken
			return "", evalErr
		}
		if every(t.cfg.SampleEvery, t.state.Step) {
			if err := t.sample(ctx); err != nil {
				return "", err
			}
		}
		if val != nil && t.cfg.TargetLoss > 0 && *val <= t.cfg.TargetLoss {
			return "target", nil
		}
		if every(t.cfg.CheckpointEvery, t.state.Step) && !t.limit() {
			if err := t.save(); err != nil {
				return "", err
			}
		}
	}
	if t.state.Step < t.cfg.MaxSteps {
		return "time", nil
	}
	return "steps", nil
}

// limit reports whether the run has had its steps or its time.
func (t *Trainer) limit() bool {
	return t.state.Step >= t.cfg.MaxSteps || t.cfg.MaxTime > 0 && t.state.Seconds >= t.cfg.MaxTime.Seconds()
}

// evaluateStep measures after the last step and after every EvalEvery; nil
// after others.
func (t *Trainer) evaluateStep(ctx context.Context) (*float64, error) {
	if !every(t.cfg.EvalEvery, t.state.Step) && !t.limit() {
		return nil, nil
	}
	val, err := t.evaluate(ctx)
	if err != nil {
		return nil, err
	}
	return &val.LossNats, nil
}

func every(n, step int64) bool { return n > 0 && step%n == 0 }

// step draws the batches of one optimizer step and applies it.
func (t *Trainer) step() (runlog.Step, error) {
	begin := time.Now()
	if err := t.data.batches.Next(t.tokens, t.targets, t.docStart); err != nil {
		return runlog.Step{}, err
	}
	counted := model.CountTargets(t.targets)
	if counted == 0 {
		return runlog.Step{}, fmt.Errorf("step %d: no target in the batch counts: documents are shorter than two tokens", t.state.Step+1)
	}
	n, scale := t.graph.Rows(), t.state.LossScale.Factor()*float32(1/float64(counted))
	for lo := 0; lo < len(t.tokens); lo += n {
		var doc []int32
		if t.docStart != nil {
			doc = t.docStart[lo : lo+n]
		}
		if err := t.graph.MicroStep(t.tokens[lo:lo+n], t.targets[lo:lo+n], doc, scale); err != nil {
			return runlog.Step{}, err
		}
	}
	sum, err := t.graph.LossSum()
	if err != nil {
		return runlog.Step{}, err
	}
	lr := t.cfg.Schedule.At(int(t.state.Step))
	t.settled = false
	stats, err := t.adam.Step(lr)
	if err != nil {
		return runlog.Step{}, err
	}
	t.state.Step++
	t.state.Updates = t.adam.StepCount()
	t.state.Tokens += int64(counted)
	t.state.Cursor = t.data.batches.Cursor()
	t.state.Seconds += time.Since(begin).Seconds()
	t.state.LastLoss = sum / float64(counted)
	t.reportNonFinite(stats)
	return runlog.Step{
		Step: t.state.Step, Loss: t.state.LastLoss, LR: lr, GradNorm: float64(stats.Norm), Clip: float64(stats.Clip),
		Tokens: t.state.Tokens, NonFinite: stats.NonFinite, LossScale: t.state.LossScale.Scale, Time: time.Now(),
	}, nil
}

// reportNonFinite says which tensors had NaN or infinite gradients.
func (t *Trainer) reportNonFinite(s optim.Stats) {
	if s.NonFinite == 0 {
		return
	}
	if s.Rescaled {
		t.notice(fmt.Sprintf("step %d: gradients were too large for float16; the step is skipped and the loss scale halved to %v",
			t.state.Step, t.state.LossScale.Scale))
		return
	}
	what := "they count as zero"
	if s.Skipped {
		what = "the step is skipped"
	}
	msg := fmt.Sprintf("step %d: %d gradients are NaN or infinite; %s", t.state.Step, s.NonFinite, what)
	for i, c := range s.Culprits {
		if i == 4 {
			msg += fmt.Sprintf(" and %d tensors more", len(s.Culprits)-i)
			break
		}
		msg += fmt.Sprintf("; %s %d", c.Name, c.Count)
	}
	t.notice(msg)
}

// evaluate measures on the held-out text and logs it.
func (t *Trainer) evaluate(ctx context.Context) (EvalResult, error) {
	val, err := t.eval.Run(ctx, t.cfg.EvalTokens)
	if err != nil {
		return val, err
	}
	t.state.LastVal = val.LossNats
	t.lastVal = evaluated{val, t.state.Step}
	if err := t.log.Event(runlog.KindEval, t.state.Step, "", val); err != nil {
		return val, err
	}
	if t.opt.Observer.Eval != nil {
		t.opt.Observer.Eval(t.state.Step, val)
	}
	return val, nil
}

// finish saves the last checkpoint and the model without moments. It evaluates
// when this process has not done so since the last step.
func (t *Trainer) finish(reason string) (Result, error) {
	if t.lastVal.step != t.state.Step || t.lastVal.Tokens == 0 {
		if _, err := t.evaluate(context.Background()); err != nil {
			return t.result(reason), err
		}
	}
	if err := t.save(); err != nil {
		return t.result(reason), err
	}
	path, err := t.saveModel()
	if err != nil {
		return t.result(reason), err
	}
	res := t.result(reason)
	res.Val, res.ModelPath = t.lastVal.EvalResult, path
	t.event(runlog.KindDone, "")
	return res, t.syncLog()
}

func (t *Trainer) result(reason string) Result {
	r := Result{Steps: t.state.Step, Tokens: t.state.Tokens, Seconds: t.state.Seconds, Loss: t.state.LastLoss, Reason: reason}
	if r.Seconds > 0 {
		r.TokPerSec = float64(r.Tokens) / r.Seconds
	}
	return r
}

// interrupted saves and reports the cancellation.
func (t *Trainer) interrupted(ctx context.Context) error {
	if err := t.save(); err != nil {
		return fmt.Errorf("interrupted, and saving failed: %w", err)
	}
	t.event(runlog.KindStop, "interrupted")
	return context.Cause(ctx)
}

// deviceFailed tells an error of the device from one that would come again.
func (t *Trainer) deviceFailed(err error) bool {
	var nonFinite *optim.NonFiniteError
	return t.runner != nil && t.runner.Err() != nil && !errors.As(err, &nonFinite)
}

// goOn says how to go on with a run whose device does not.
func (t *Trainer) goOn() string {
	return fmt.Sprintf("Nothing that was saved is lost: go on with 'tezgah train --resume %s' when the device has room and works, or with --device cpu", t.opt.Dir)
}

// rescue saves the run after a device failed between a step that is in the log and
// the next update, when it may still let one read the weights, as one that is out of
// memory does. Where that fails the run goes on from an earlier checkpoint.
func (t *Trainer) rescue() {
	if !t.settled || t.state.Step == 0 {
		return
	}
	if found, _, err := checkpoint.Latest(t.opt.Dir); err == nil && found.Step == t.state.Step {
		return
	}
	t.runner.Reset()
	_ = t.save()
}

// recover opens the device again and restores the newest checkpoint.
func (t *Trainer) recover(cause error) error {
	failed := t.state.Step
	t.notice(fmt.Sprintf("the device failed after step %d (%v): opening it again", failed, cause))
	t.closeDevice()
	if err := t.openDevice(); err != nil {
		return fmt.Errorf("%w; opening the device again failed: %v. %s", cause, err, t.goOn())
	}
	if err := t.restore(); err != nil {
		return fmt.Errorf("%w; it fails again, now with %v. %s", cause, err, t.goOn())
	}
	if err := t.reopenLog(); err != nil {
		return err
	}
	// In full once more: the log was cut back to the checkpoint, and the first notice with it.
	t.notice(fmt.Sprintf("the device failed after step %d (%v) and was opened again: going on from step %d", failed, cause, t.state.Step))
	return nil
}

// pace measures speed over a sliding time of about ten seconds.
type pace struct {
	start time.Time
	first int64
	last  int64
	marks []paceMark
}

type paceMark struct {
	at     time.Time
	step   int64
	tokens int64
}

func newPace(step, last, tokens int64) *pace {
	now := time.Now()
	return &pace{start: now, first: step, last: last, marks: []paceMark{{now, step, tokens}}}
}

func (p *pace) update(step, tokens int64) Pace {
	now := time.Now()
	p.marks = append(p.marks, paceMark{now, step, tokens})
	for len(p.marks) > 2 && now.Sub(p.marks[1].at) > 10*time.Second {
		p.marks = p.marks[1:]
	}
	old := p.marks[0]
	out := Pace{Step: step, LastStep: p.last, Elapsed: now.Sub(p.start)}
	if d := now.Sub(old.at); d > 0 && step > old.step {
		out.TokPerSec = float64(tokens-old.tokens) / d.Seconds()
		out.ETA = d / time.Duration(step-old.step) * time.Duration(p.last-step)
	}
	return out
}
