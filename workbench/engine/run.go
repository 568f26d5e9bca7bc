package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tezgah/checkpoint"
	"tezgah/runlog"
	"tezgah/train"
)

// run is one run folder. While it trains it has a goroutine; everything else
// about it is read from its files.
type run struct {
	s         *Service
	name, dir string

	mu      sync.Mutex // guards everything below
	side    sideFile
	active  string // "starting", "running", "pausing" or "" when nothing goes on
	log     logFile
	sum     summary
	cancel  context.CancelCauseFunc
	ended   chan struct{} // closed when the goroutine has ended
	streams map[chan struct{}]bool
	sent    time.Time // when the run was last published
	disk    runDisk
}

// sideFile is workbench.json: what the workbench knows about a run beside what
// the run folder says.
type sideFile struct {
	Settings RunSettings `json:"settings"`
	Created  time.Time   `json:"created"`
	State    string      `json:"state"`           // at the last change
	Step     int64       `json:"step"`            // then
	Error    string      `json:"error,omitempty"` // of a run that failed
	Notices  []string    `json:"notices,omitempty"`
}

const sideName = "workbench.json"

// runDisk is what a run folder holds, looked at now and then.
type runDisk struct {
	at          time.Time
	saves       int
	bytes       int64
	checkpoints []checkpointFacts
}

type checkpointFacts struct {
	Step    int64     `json:"step"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
}

// Run is a run as docs/api.md has it.
type Run struct {
	Name        string            `json:"name"`
	State       string            `json:"state"`
	Step        int64             `json:"step"`
	LastStep    int64             `json:"last_step"`
	Loss        number            `json:"loss"`
	ValLoss     number            `json:"val_loss"`
	LR          float64           `json:"lr"`
	GradNorm    number            `json:"grad_norm"`
	Tokens      int64             `json:"tokens"`
	TokPerSec   float64           `json:"tok_per_s"`
	Elapsed     float64           `json:"elapsed_s"`
	ETA         float64           `json:"eta_s"`
	Params      int               `json:"params"`
	Context     int               `json:"context"`
	Bytes       int64             `json:"bytes"`
	Created     time.Time         `json:"created"`
	Updated     time.Time         `json:"updated"`
	Device      string            `json:"device"`
	Settings    RunSettings       `json:"settings"`
	Warnings    []Warning         `json:"warnings"`
	Error       string            `json:"error,omitempty"`
	Notices     []string          `json:"notices"`
	Sample      *sampleOut        `json:"sample,omitempty"`
	Checkpoints []checkpointFacts `json:"checkpoints"`

	NonFinite int64 `json:"nonfinite"` // NaN and infinite gradients so far
}

// openRun reads a run folder.
func (s *Service) openRun(name string) (*run, error) {
	if !hasEntry(s.path("runs"), name) {
		return nil, fail("not_found", "there is no run %q", name)
	}
	r := &run{s: s, name: name, dir: s.path("runs", name), streams: map[chan struct{}]bool{}}
	r.log.path = filepath.Join(r.dir, runlog.FileName)
	b, err := os.ReadFile(filepath.Join(r.dir, sideName))
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &r.side); err != nil {
			return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(r.dir, sideName), err)
		}
	case errors.Is(err, os.ErrNotExist):
		c, err := train.LoadConfig(r.dir)
		if err != nil {
			return nil, fail("not_found", "there is no run %q", name)
		}
		r.side.Settings = s.settingsOf(name, c)
		if fi, err := os.Stat(filepath.Join(r.dir, "config.json")); err == nil {
			r.side.Created = fi.ModTime().UTC()
		}
	default:
		return nil, err
	}
	r.side.Settings.Name = name
	return r, r.grow()
}

// hasEntry reports whether a folder has an entry of exactly this name. A disk
// that ignores case finds a run under several names, which must not be several
// runs.
func hasEntry(dir, name string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == name })
}

// save writes workbench.json. The caller holds the lock.
func (r *run) save() error {
	b, err := json.MarshalIndent(r.side, "", "  ")
	if err != nil {
		return err
	}
	return checkpoint.WriteBytesAtomic(filepath.Join(r.dir, sideName), append(b, '\n'))
}

// grow reads what the log has got since. The caller holds the lock, or is the
// only one who knows r.
func (r *run) grow() error {
	return r.log.grow(func() { r.sum = summary{} }, func(_ int, b []byte) { r.sum.take(b) })
}

// Write takes the lines of the log as the trainer writes them.
func (r *run) Write(p []byte) (int, error) {
	r.mu.Lock()
	kind := runlog.Kind("")
	r.log.add(p, func(_ int, b []byte) { kind = r.sum.take(b) })
	if fi, err := os.Stat(r.log.path); kind == runlog.KindResume && err == nil && fi.Size() != r.log.end {
		r.log.restart(func() { r.sum = summary{} }) // steps that will be taken again were cut off before
		r.grow()
	}
	if kind != "" && kind != "step" || time.Since(r.sent) >= time.Second {
		r.publish()
	}
	r.wake()
	r.mu.Unlock()
	if kind == runlog.KindSave {
		r.s.changed("models")
	}
	r.s.yield(r.s.ctx)
	return len(p), nil
}

// publish sends the run to every page. The caller holds the lock.
func (r *run) publish() {
	r.sent = time.Now()
	r.s.hub.publish("run/"+r.name, map[string]any{"type": "run", "run": r.view()})
}

// wake tells the run's own streams that there is something new. The caller
// holds the lock.
func (r *run) wake() {
	for c := range r.streams {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// snapshot is the run now.
func (r *run) snapshot() Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active == "" {
		r.grow() // the command line may have gone on with it
	}
	return r.view()
}

// view describes the run. The caller holds the lock.
func (r *run) view() Run {
	sum := &r.sum
	v := Run{
		Name: r.name, State: r.stateNow(), Step: sum.step, LastStep: sum.lastStep(), Loss: sum.loss, ValLoss: sum.valLoss, LR: sum.lr,
		GradNorm: number(sum.norm), Tokens: sum.tokens, TokPerSec: sum.tokPerSec, Elapsed: sum.seconds, Created: r.side.Created,
		Updated: sum.updated, Device: sum.device, Settings: r.side.Settings, Warnings: sum.watch.list(), Notices: r.notices(),
		Sample: sum.sample, NonFinite: sum.nonFinite,
	}
	if v.Updated.Before(v.Created) {
		v.Updated = v.Created
	}
	if v.State == "running" {
		v.ETA = sum.etaSeconds()
	}
	if v.State == "failed" {
		v.Error = r.side.Error
	}
	if sum.config != nil {
		v.Params, v.Context = sum.config.Model.NumParams(), sum.config.Context
	}
	r.lookAtDisk()
	v.Bytes, v.Checkpoints = r.disk.bytes, r.disk.checkpoints
	return v
}

// stateNow is the run's state: what goes on, else what its files say. The
// caller holds the lock.
func (r *run) stateNow() string {
	switch {
	case r.active != "":
		return r.active
	case r.sum.last == runlog.KindDone && r.sum.step >= r.side.Step && r.side.State != "stopped":
		return "done"
	case r.side.Step == r.sum.step && (r.side.State == "failed" || r.side.State == "stopped"):
		return r.side.State
	}
	return "paused"
}

// notices are those of the log and those that came before there was a log.
func (r *run) notices() []string {
	all := []string{}
	for _, n := range r.side.Notices {
		if !slices.Contains(r.sum.notices, n) {
			all = append(all, n)
		}
	}
	return append(all, r.sum.notices...)
}

// lookAtDisk measures the folder after every save, and now and then. The caller
// holds the lock.
func (r *run) lookAtDisk() {
	age := time.Since(r.disk.at)
	if r.disk.saves == r.sum.saves && age < 30*time.Second || age < 200*time.Millisecond && r.active != "" {
		return
	}
	r.disk = runDisk{at: time.Now(), saves: r.sum.saves, bytes: folderBytes(r.dir), checkpoints: []checkpointFacts{}}
	list, err := checkpoint.List(r.dir)
	if err != nil {
		return
	}
	for _, c := range list {
		if fi, err := os.Stat(c.Path); err == nil {
			r.disk.checkpoints = append(r.disk.checkpoints, checkpointFacts{c.Step, c.SizeBytes, fi.ModTime().UTC()})
		}
	}
}
