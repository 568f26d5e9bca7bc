package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"tezgah/checkpoint"
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

// forgetRun removes a run that did not come to be.
func (s *Service) forgetRun(r *run) {
	s.runs.mu.Lock()
	delete(s.runs.open, r.name)
	s.runs.mu.Unlock()
	os.RemoveAll(r.dir)
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
