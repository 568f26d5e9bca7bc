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
	"tezgah/op"
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

// Why a run's context ends.
var (
	errPaused  = errors.New("paused")
	errStopped = errors.New("stopped")
)

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

// note keeps a line for the user that is in no log.
func (r *run) note(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if message != "" && !slices.Contains(r.side.Notices, message) {
		r.side.Notices = append(r.side.Notices, message)
		r.side.Notices = r.side.Notices[max(0, len(r.side.Notices)-keptNotices):]
	}
}

// plan of a session: how the goroutine begins.
type session struct {
	cfg    train.Config        // of a new run
	resume bool                // go on with what the folder holds
	change func(*train.Config) // limits of a run that goes on
	only   error               // errStopped: write the model and train no further
}

// launch claims what the run needs and starts its goroutine.
func (r *run) launch(ses session, uses []string) error {
	s := r.s
	if s.ctx.Err() != nil {
		return fail("busy", "the workbench is closing")
	}
	device := s.deviceKey(r.side.Settings.Device)
	free1, err := s.claims.exclusive("train/"+r.name, "it is training")
	if err != nil {
		return err
	}
	free2, err := s.claims.exclusive("device/"+device, fmt.Sprintf("the run %s trains on it; pause that run first, or choose another device", r.name))
	if err != nil {
		free1()
		return err
	}
	free3, err := s.claims.share("the run "+r.name+" is training on it", uses...)
	if err != nil {
		free1()
		free2()
		return err
	}
	s.loaded.unload() // the memory of a model that only waits
	ctx, cancel := context.WithCancelCause(s.ctx)
	r.mu.Lock()
	r.active, r.cancel, r.ended = "starting", cancel, make(chan struct{})
	r.side.State, r.side.Error, r.side.Step = "starting", "", r.sum.step
	err = r.save()
	if err != nil {
		r.active = ""
	} else {
		r.publish()
	}
	r.mu.Unlock()
	if err != nil {
		free1()
		free2()
		free3()
		return err
	}
	s.training.Add(1)
	go func() {
		defer s.training.Done()
		err := r.train(ctx, ses)
		free1()
		free2()
		free3()
		r.finish(context.Cause(ctx), err)
		cancel(nil)
	}()
	return nil
}

// train runs the trainer.
func (r *run) train(ctx context.Context, ses session) error {
	s := r.s
	device := r.side.Settings.Device
	opt := train.Options{Dir: r.dir, Version: s.opt.Version, Args: []string{"workbench"}, JSON: r, Observer: train.Observer{Notice: r.earlyNotice}}
	opt.Open = func() (op.Backend, error) {
		b, notice, err := s.open(device)
		r.note(notice)
		return b, err
	}
	var t *train.Trainer
	var err error
	if ses.resume {
		t, err = train.Resume(opt, func(c *train.Config) {
			s.moveData(c)
			if ses.change != nil {
				ses.change(c)
			}
		})
	} else {
		t, err = train.New(ses.cfg, opt)
	}
	if err != nil {
		return err
	}
	defer t.Close()
	if ses.only == errStopped {
		_, err := t.SaveModel()
		return errors.Join(err, errStopped)
	}
	r.mu.Lock()
	if r.active == "starting" {
		r.active = "running"
	}
	r.side.State = "running"
	r.save()
	r.publish()
	r.mu.Unlock()
	_, err = t.Run(ctx)
	if errors.Is(err, errStopped) {
		if _, saveErr := t.SaveModel(); saveErr != nil {
			return saveErr
		}
	}
	return err
}

// earlyNotice keeps a notice of the trainer unless the log has it already.
func (r *run) earlyNotice(message string) {
	r.mu.Lock()
	known := slices.Contains(r.sum.notices, message)
	r.mu.Unlock()
	if !known {
		r.note(message)
	}
}

// finish records how a session ended.
func (r *run) finish(cause, err error) {
	r.mu.Lock()
	r.grow()
	r.active = ""
	r.side.Step = r.sum.step
	switch {
	case err == nil:
		r.side.State = "done"
	case errors.Is(err, errStopped):
		r.side.State = "stopped"
	case errors.Is(err, errPaused) || errors.Is(err, context.Canceled) && cause != nil:
		r.side.State = "paused"
	default:
		r.side.State, r.side.Error = "failed", err.Error()
	}
	if saveErr := r.save(); saveErr != nil && r.side.State != "failed" {
		r.side.Error = saveErr.Error()
	}
	r.disk.at = time.Time{}
	r.publish()
	r.wake()
	if r.sum.config != nil && r.sum.tokPerSec > 0 {
		r.s.speeds.put(speedKey(*r.sum.config, r.sum.device), r.sum.tokPerSec)
	}
	close(r.ended)
	r.mu.Unlock()
	r.s.changed("models")
}

// interrupt asks the goroutine to end and waits until it has, or ctx ends.
func (r *run) interrupt(ctx context.Context, cause error) error {
	r.mu.Lock()
	if r.active == "" {
		r.mu.Unlock()
		return nil
	}
	ended := r.ended
	r.cancel(cause)
	r.active = "pausing"
	r.publish()
	r.wake()
	r.mu.Unlock()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
