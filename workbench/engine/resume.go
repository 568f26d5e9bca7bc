package engine

import (
	"os"
	"path/filepath"
	"time"

	"tezgah/train"
)

// pauseRun is POST /api/runs/NAME/pause.
func (s *Service) pauseRun(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	if err := r.interrupt(c.ctx, errPaused); err != nil {
		return err
	}
	return c.json(r.snapshot())
}

// stopRun is POST /api/runs/NAME/stop: for good, with a model. A run that does
// not train gets its model from the newest checkpoint.
func (s *Service) stopRun(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	if err := r.interrupt(c.ctx, errStopped); err != nil {
		return err
	}
	v := r.snapshot()
	if v.State == "paused" || v.State == "failed" {
		if len(v.Checkpoints) == 0 {
			return fail("bad_request", "the run has no checkpoint that a model could be made of: delete it, or resume it")
		}
		if err := r.launch(session{resume: true, only: errStopped}, nil); err != nil {
			return err
		}
		r.mu.Lock()
		ended := r.ended
		r.mu.Unlock()
		select {
		case <-ended:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	return c.json(r.snapshot())
}

// resumeRequest are the limits that a run may get when it goes on. Missing ones
// stay.
type resumeRequest struct {
	MaxSteps        *int64   `json:"max_steps"`
	MaxTokens       *int64   `json:"max_tokens"`
	MaxMinutes      *float64 `json:"max_minutes"`
	EvalEvery       *int64   `json:"eval_every"`
	CheckpointEvery *int64   `json:"checkpoint_every"`
	Keep            *int     `json:"keep"`
	SampleEvery     *int64   `json:"sample_every"`
	SamplePrompt    *string  `json:"sample_prompt"`
	SampleTokens    *int     `json:"sample_tokens"`
	Device          *string  `json:"device"`
}

// resumeRun is POST /api/runs/NAME/resume.
func (s *Service) resumeRun(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	var req resumeRequest
	if c.r.Body != nil && c.r.BodyBytes != 0 {
		if err := readJSON(c.r, &req); err != nil {
			return err
		}
	}
	v := r.snapshot()
	if v.State == "running" || v.State == "starting" || v.State == "pausing" {
		return fail("busy", "the run %s is %s", v.Name, v.State)
	}
	if err := req.check(v); err != nil {
		return err
	}
	if req.Device != nil {
		if err := s.checkDevice(*req.Device); err != nil {
			return err
		}
	}
	ses, uses, err := s.goOn(r, req)
	if err != nil {
		return err
	}
	r.mu.Lock()
	req.keep(&r.side.Settings)
	r.mu.Unlock()
	if err := r.launch(ses, uses); err != nil {
		return err
	}
	return c.json(r.snapshot())
}

// check refuses limits that the run has passed already.
func (q resumeRequest) check(v Run) error {
	for _, n := range []*int64{q.MaxSteps, q.MaxTokens} {
		if n != nil && *n < 1 {
			return badField("max_steps", "the limit is %d, want a positive number", *n)
		}
	}
	if q.MaxMinutes != nil && !(*q.MaxMinutes >= 0 && *q.MaxMinutes < 1e7) {
		return badField("max_minutes", "max_minutes is %v, want a positive number", *q.MaxMinutes)
	}
	last := v.LastStep
	if q.MaxSteps != nil {
		last = *q.MaxSteps
	}
	if q.MaxTokens == nil && last > 0 && v.Step >= last {
		return badField("max_steps", "the run has had its %d steps: give a larger max_steps", v.Step)
	}
	if q.MaxTokens != nil && v.Tokens >= *q.MaxTokens {
		return badField("max_tokens", "the run has had %d tokens: give a larger max_tokens", v.Tokens)
	}
	return nil
}

// keep writes the new limits into the settings.
func (q resumeRequest) keep(set *RunSettings) {
	if q.MaxSteps != nil || q.MaxTokens != nil {
		set.MaxSteps, set.MaxTokens, set.Epochs = 0, 0, 0
	}
	over(&set.MaxSteps, q.MaxSteps)
	over(&set.MaxTokens, q.MaxTokens)
	over(&set.MaxMinutes, q.MaxMinutes)
	over(&set.EvalEvery, q.EvalEvery)
	over(&set.CheckpointEvery, q.CheckpointEvery)
	over(&set.Keep, q.Keep)
	over(&set.SampleEvery, q.SampleEvery)
	over(&set.SamplePrompt, q.SamplePrompt)
	over(&set.SampleTokens, q.SampleTokens)
	over(&set.Device, q.Device)
}

func over[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// change puts the new limits into a configuration.
func (q resumeRequest) change(c *train.Config) {
	if q.MaxSteps != nil || q.MaxTokens != nil {
		c.MaxSteps, c.MaxTokens = 0, 0
	}
	over(&c.MaxSteps, q.MaxSteps)
	over(&c.MaxTokens, q.MaxTokens)
	if q.MaxMinutes != nil {
		c.MaxTime = time.Duration(*q.MaxMinutes * float64(time.Minute))
	}
	over(&c.EvalEvery, q.EvalEvery)
	over(&c.CheckpointEvery, q.CheckpointEvery)
	over(&c.Keep, q.Keep)
	over(&c.SampleEvery, q.SampleEvery)
	over(&c.SamplePrompt, q.SamplePrompt)
	over(&c.SampleTokens, q.SampleTokens)
}

// goOn says how to go on with a run: from its folder, or, when it never came as
// far as a configuration, from its settings.
func (s *Service) goOn(r *run, req resumeRequest) (session, []string, error) {
	c, err := train.LoadConfig(r.dir)
	if err == nil {
		s.movePaths(&c, r.dir)
		return session{resume: true, change: req.change}, s.usesOf(c), nil
	}
	r.mu.Lock()
	set := r.side.Settings
	r.mu.Unlock()
	req.keep(&set)
	want, problems := s.settle(set)
	if len(problems) > 0 {
		return session{}, nil, problems[0]
	}
	if kept := filepath.Join(r.dir, initName); want.init != "" {
		if _, err := os.Stat(kept); err == nil {
			want.cfg.InitFrom = kept
		}
	}
	return session{cfg: want.cfg}, want.uses, nil
}

// usesOf are the claims of a run's token files and texts, as far as they are of
// this folder.
func (s *Service) usesOf(c train.Config) (keys []string) {
	for _, d := range c.Data {
		if filepath.Dir(d.Path) == s.path("data") {
			keys = append(keys, "data/"+trimExt(d.Path, dataExt))
		}
	}
	for _, p := range c.Chats {
		if filepath.Base(p) == textFiles && filepath.Dir(filepath.Dir(p)) == s.path("texts") {
			keys = append(keys, "texts/"+filepath.Base(filepath.Dir(p)))
		}
	}
	return keys
}
