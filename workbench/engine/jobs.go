package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Job is work with progress and a result, as docs/api.md has it.
type Job struct {
	ID     string  `json:"id"`
	Kind   string  `json:"kind"` // "tokenizer", "data", "probe", "profile", "import"
	Name   string  `json:"name"`
	State  string  `json:"state"` // "running", "done", "failed", "canceled"
	Stage  string  `json:"stage"`
	Done   float64 `json:"done"`
	Total  float64 `json:"total"` // 0 unknown
	Rate   float64 `json:"rate"`
	Unit   string  `json:"unit"`
	ETA    float64 `json:"eta_s"`
	Error  string  `json:"error,omitempty"`
	Result any     `json:"result,omitempty"`
}

// jobs are those that run and the last that ended.
type jobs struct {
	mu   sync.Mutex
	next int
	list []*job
	wait sync.WaitGroup
}

// keptJobs is how many ended jobs are remembered.
const keptJobs = 50

// job is a Job with its handles. Its goroutine alone changes the Job, under
// jobs.mu.
type job struct {
	s      *Service
	Job    Job
	cancel context.CancelFunc
	sent   time.Time // of the last progress message
	begin  time.Time // of the stage
	first  float64   // done at the stage's begin
}

// startJob runs work in a goroutine of its own. release is called when it is
// over.
func (s *Service) startJob(kind, name string, release func(), work func(ctx context.Context, j *job) (any, error)) Job {
	ctx, cancel := context.WithCancel(s.ctx) // ended already when the service is closing
	s.jobs.mu.Lock()
	s.jobs.next++
	j := &job{s: s, cancel: cancel, Job: Job{ID: fmt.Sprint(s.jobs.next), Kind: kind, Name: name, State: "running"}}
	s.jobs.list = append(s.jobs.list, j)
	s.jobs.forget()
	snapshot := j.Job
	s.jobs.mu.Unlock()
	s.jobs.wait.Add(1)
	s.publishJob(snapshot)
	go func() {
		defer s.jobs.wait.Done()
		defer cancel()
		result, err := work(ctx, j)
		release()
		j.end(ctx, result, err)
	}()
	return snapshot
}

// forget drops the oldest ended jobs. The caller holds the lock.
func (js *jobs) forget() {
	ended := 0
	for i := len(js.list) - 1; i >= 0; i-- {
		if js.list[i].Job.State == "running" {
			continue
		}
		if ended++; ended > keptJobs {
			js.list = slices.Delete(js.list, i, i+1)
		}
	}
}

func (s *Service) publishJob(j Job) {
	s.hub.publish("job/"+j.ID, map[string]any{"type": "job", "job": j})
}

// end records how the work ended.
func (j *job) end(ctx context.Context, result any, err error) {
	j.change(true, func(v *Job) {
		v.ETA = 0
		switch {
		case err == nil:
			v.State, v.Result, v.Done = "done", result, max(v.Done, v.Total)
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			v.State = "canceled"
		default:
			v.State, v.Error = "failed", err.Error()
		}
	})
}

// change alters the Job and publishes it, at most four times a second unless
// now is set.
func (j *job) change(now bool, f func(*Job)) {
	j.s.jobs.mu.Lock()
	f(&j.Job)
	v := j.Job
	now = now || time.Since(j.sent) >= 250*time.Millisecond
	if now {
		j.sent = time.Now()
	}
	j.s.jobs.mu.Unlock()
	if now {
		j.s.publishJob(v)
	}
}

// progress reports how far a stage is; the rate is that of the stage so far,
// in units of scale.
func (j *job) progress(stage string, done, total float64, unit string, scale float64) {
	fresh := stage != j.Job.Stage
	if fresh {
		j.begin, j.first = time.Now(), done
	}
	j.change(fresh, func(v *Job) {
		v.Stage, v.Done, v.Total, v.Unit, v.Rate, v.ETA = stage, done, total, unit, 0, 0
		if d := time.Since(j.begin).Seconds(); d > 0.1 && done > j.first {
			perSec := (done - j.first) / d
			v.Rate = perSec / scale
			if total > done {
				v.ETA = (total - done) / perSec
			}
		}
	})
}

func (s *Service) listJobs(c *call) error {
	s.jobs.mu.Lock()
	all := make([]Job, 0, len(s.jobs.list))
	for _, j := range s.jobs.list {
		all = append(all, j.Job)
	}
	s.jobs.mu.Unlock()
	return c.json(all)
}

func (s *Service) cancelJob(c *call) error {
	s.jobs.mu.Lock()
	defer s.jobs.mu.Unlock()
	for _, j := range s.jobs.list {
		if j.Job.ID == c.args[0] {
			j.cancel()
			return c.noContent()
		}
	}
	return fail("not_found", "there is no job %s", c.args[0])
}

// events is GET /api/events: the state of everything that runs, then news.
func (s *Service) events(c *call) error {
	sub := s.hub.subscribe()
	defer s.hub.unsubscribe(sub)
	st := startStream(c.w)
	s.jobs.mu.Lock()
	var running []Job
	for _, j := range s.jobs.list {
		if j.Job.State == "running" {
			running = append(running, j.Job)
		}
	}
	s.jobs.mu.Unlock()
	for _, j := range running {
		if err := st.send(map[string]any{"type": "job", "job": j}); err != nil {
			return nil
		}
	}
	for _, r := range s.activeRuns() {
		if err := st.send(map[string]any{"type": "run", "run": r.snapshot()}); err != nil {
			return nil
		}
	}
	if err := st.ping(); err != nil { // headers reach the page even when nothing runs
		return nil
	}
	st.follow(c.ctx, sub, s.ctx.Done())
	return nil
}

// changed tells every page that a list has changed.
func (s *Service) changed(what string) {
	s.hub.publish("list/"+what, map[string]any{"type": "list", "what": what})
}

// notice tells every page a line for the user.
func (s *Service) notice(message string) {
	s.hub.publish("", map[string]any{"type": "notice", "message": message})
}
