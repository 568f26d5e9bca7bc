package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tezgah/checkpoint"
	"tezgah/train"
)

// runs are those that somebody has asked for.
type runs struct {
	mu   sync.Mutex
	open map[string]*run
}

// run finds a run by name.
func (s *Service) run(name string) (*run, error) {
	if err := checkName("name", name); err != nil {
		return nil, err
	}
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	if r, ok := s.runs.open[name]; ok {
		return r, nil
	}
	r, err := s.openRun(name)
	if err != nil {
		return nil, err
	}
	s.runs.open[name] = r
	return r, nil
}

// allRuns are all runs of the folder. One that cannot be read is left out.
func (s *Service) allRuns() ([]*run, error) {
	entries, err := os.ReadDir(s.path("runs"))
	if err != nil {
		return nil, err
	}
	var list []*run
	for _, e := range entries {
		if r, err := s.run(e.Name()); err == nil && e.IsDir() {
			list = append(list, r)
		}
	}
	return list, nil
}

// activeRuns are those with a goroutine.
func (s *Service) activeRuns() (list []*run) {
	s.runs.mu.Lock()
	defer s.runs.mu.Unlock()
	for _, r := range s.runs.open {
		r.mu.Lock()
		if r.active != "" {
			list = append(list, r)
		}
		r.mu.Unlock()
	}
	return list
}

func (s *Service) listRuns(c *call) error {
	views := s.Runs()
	if views == nil {
		views = []Run{}
	}
	slices.SortFunc(views, func(a, b Run) int { return b.Created.Compare(a.Created) })
	return c.json(views)
}

// Runs are all runs of the folder as they are now.
func (s *Service) Runs() []Run {
	list, err := s.allRuns()
	if err != nil {
		return nil // the folder is gone, and the runs with it
	}
	views := make([]Run, len(list))
	for i, r := range list {
		views[i] = r.snapshot()
	}
	return views
}

// Generated counts the tokens that models have written since the start.
func (s *Service) Generated() int64 { return s.generated.Load() }

func (s *Service) getRun(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	return c.json(r.snapshot())
}

// createRun is POST /api/runs.
func (s *Service) createRun(c *call) error {
	var set RunSettings
	if err := readJSON(c.r, &set); err != nil {
		return err
	}
	r, err := s.newRun(set)
	if err != nil {
		return err
	}
	return c.json(r.snapshot())
}

// newRun makes a run folder and starts training.
func (s *Service) newRun(set RunSettings) (*run, error) {
	if err := checkName("name", set.Name); err != nil {
		return nil, err
	}
	if set.Device == "" {
		set.Device = s.opt.Device
	}
	want, problems := s.settle(set)
	if len(problems) > 0 {
		return nil, problems[0]
	}
	if _, err := os.Stat(s.importedPath(set.Name)); err == nil {
		return nil, fail("exists", "there is a model %q already: choose another name for the run", set.Name)
	}
	dir := s.path("runs", set.Name)
	done, err := s.claimNew("runs/"+set.Name, dir, "it is being made")
	if err != nil {
		return nil, err
	}
	defer done()
	r := &run{s: s, name: set.Name, dir: dir, streams: map[chan struct{}]bool{}, side: sideFile{Settings: set, Created: now(), State: "starting"}}
	r.log.path = filepath.Join(dir, "log.jsonl")
	if err := s.fillRun(r, &want); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	s.runs.mu.Lock()
	s.runs.open[set.Name] = r
	s.runs.mu.Unlock()
	if err := r.launch(session{cfg: want.cfg}, want.uses); err != nil {
		s.forgetRun(r)
		return nil, err
	}
	s.changed("runs")
	return r, nil
}

// fillRun makes the folder of a new run, with the model that it starts from:
// checkpoints of other runs come and go.
func (s *Service) fillRun(r *run, want *settled) error {
	if err := os.Mkdir(r.dir, 0o777); err != nil {
		return err
	}
	if err := r.save(); err != nil {
		return err
	}
	if want.init == "" {
		return nil
	}
	path, err := keepInit(want.init, r.dir)
	if err == nil {
		want.cfg.InitFrom = path
	}
	return err
}

// initName is the model that a run starts from, in the run's folder.
const initName = "init.llm"

// keepInit puts the model file from into dir, as a second name for the same
// file where the disk can do that. Files of models are replaced and never
// changed, so the two do not disturb each other. A checkpoint of adapters is
// used where it lies, beside the base model that it needs.
func keepInit(from, dir string) (string, error) {
	f, err := checkpoint.OpenLLM(from)
	if err != nil {
		return "", err
	}
	adapters := f.Header.LoRA != nil
	f.Close()
	if adapters {
		return from, nil
	}
	to := filepath.Join(dir, initName)
	if os.Link(from, to) == nil {
		return to, nil
	}
	return to, copyFile(from, to)
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkpoint.WriteFileAtomic(to, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return err
	})
}

// forgetRun removes a run that did not come to be.
func (s *Service) forgetRun(r *run) {
	s.runs.mu.Lock()
	delete(s.runs.open, r.name)
	s.runs.mu.Unlock()
	os.RemoveAll(r.dir)
}

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
		s.moveData(&c)
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

// forkRun is POST /api/runs/NAME/fork: the settings of the old run, over them
// those of the body, and the weights of a checkpoint.
func (s *Service) forkRun(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	var body map[string]json.RawMessage
	if err := readJSON(c.r, &body); err != nil {
		return err
	}
	step := int64(0)
	if raw, ok := body["step"]; ok {
		if err := json.Unmarshal(raw, &step); err != nil || step < 0 {
			return badField("step", "step is %s, want the step of a checkpoint, or 0 for the newest", raw)
		}
		delete(body, "step")
	}
	set := r.snapshot().Settings
	set.Name, set.Preset, set.Model = "", "", nil
	rest, err := json.Marshal(body)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(rest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&set); err != nil {
		return jsonError(err)
	}
	if set.Init, err = r.checkpointName(step); err != nil {
		return err
	}
	n, err := s.newRun(set)
	if err != nil {
		return err
	}
	return c.json(n.snapshot())
}

// checkpointName is the setting init for a checkpoint of the run.
func (r *run) checkpointName(step int64) (string, error) {
	if step == 0 {
		list, err := checkpoint.List(r.dir)
		if err != nil {
			return "", err
		}
		if len(list) == 0 {
			return "", fail("bad_request", "the run %s has no checkpoint yet", r.name)
		}
		step = list[len(list)-1].Step
	}
	_, err := r.s.checkpointPath(r.name, step)
	return r.name + "@" + itoa(step), err
}

// checkpointPath is the file of one checkpoint.
func (s *Service) checkpointPath(name string, step int64) (string, error) {
	if err := checkName("name", name); err != nil {
		return "", err
	}
	path := checkpoint.CheckpointPath(s.path("runs", name), step)
	if _, err := os.Stat(path); err != nil {
		return "", badField("step", "the run %s has no checkpoint of step %d", name, step)
	}
	return path, nil
}

// deleteRun is DELETE /api/runs/NAME.
func (s *Service) deleteRun(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	free, err := s.claims.exclusive("train/"+r.name, "it is being deleted")
	if err != nil {
		return fail("busy", "the run %s is training: stop it first", r.name)
	}
	defer free()
	free2, err := s.claims.exclusive("runs/"+r.name, "it is being deleted")
	if err != nil {
		return err
	}
	defer free2()
	s.loaded.unload() // it may be a model of this run
	lock, err := checkpoint.Lock(r.dir)
	if err != nil {
		return err // the command line is training in it
	}
	lock.Unlock()
	gone, err := s.tmpDir("deleted")
	if err != nil {
		return err
	}
	if err := os.Rename(r.dir, filepath.Join(gone, "run")); err != nil {
		return errors.Join(err, os.Remove(gone))
	}
	s.runs.mu.Lock()
	delete(s.runs.open, r.name)
	s.runs.mu.Unlock()
	os.RemoveAll(gone) // what is left goes at the next start
	s.changed("runs")
	s.changed("models")
	return c.noContent()
}

// logLimit is how many lines one answer holds.
const logLimit = 20000

// runLog is GET /api/runs/NAME/log?after=LINE.
func (s *Service) runLog(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	after, err := intQuery(c.r, "after", 0)
	if err != nil {
		return err
	}
	limit, err := intQuery(c.r, "limit", logLimit)
	if err != nil {
		return err
	}
	v := r.snapshot()
	r.mu.Lock()
	lines, next, err := r.log.read(after, min(limit, logLimit))
	version, total := r.log.version, len(r.log.starts)
	r.mu.Unlock()
	if err != nil {
		return err
	}
	records := make([]json.RawMessage, len(lines))
	for i, l := range lines {
		records[i] = l.Record
	}
	return c.json(map[string]any{"records": records, "next": next, "state": v.State, "total": total, "version": version})
}

// runEvents is GET /api/runs/NAME/events?after=LINE.
func (s *Service) runEvents(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	after, err := intQuery(c.r, "after", 0)
	if err != nil {
		return err
	}
	wake := make(chan struct{}, 1)
	wake <- struct{}{}
	r.mu.Lock()
	r.streams[wake] = true
	version := r.log.version
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.streams, wake)
		r.mu.Unlock()
	}()
	r.follow(c, startStream(c.w), wake, after, version)
	return nil
}

// follow sends the lines after line number after as they come, and the run
// when its state changes or a second has passed.
func (r *run) follow(c *call, st stream, wake <-chan struct{}, after, version int) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	state, sent := "", time.Time{}
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-r.s.ctx.Done():
			return
		case <-beat.C:
			if st.ping() != nil {
				return
			}
			continue
		case <-wake:
		}
		view := r.snapshot()
		for more := true; more; {
			var err error
			if after, version, more, err = r.sendLines(st, after, version); err != nil {
				return
			}
		}
		if view.State != state || time.Since(sent) >= time.Second {
			state, sent = view.State, time.Now()
			if st.send(map[string]any{"run": view}) != nil {
				return
			}
		}
	}
}

// sendLines sends some of the lines that a stream has not had yet.
func (r *run) sendLines(st stream, after, version int) (next, nextVersion int, more bool, err error) {
	r.mu.Lock()
	if r.log.version != version {
		version = r.log.version
		r.mu.Unlock()
		return 0, version, true, st.send(map[string]any{"restart": true, "version": version})
	}
	lines, next, err := r.log.read(after, 1000)
	more = next < len(r.log.starts)
	r.mu.Unlock()
	if err != nil || len(lines) == 0 {
		return next, version, more, err
	}
	messages := make([][]byte, len(lines))
	for i, l := range lines {
		if messages[i], err = json.Marshal(l); err != nil {
			return next, version, more, err
		}
	}
	return next, version, more, st.raw(messages...)
}
