package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tezgah/op"
	"tezgah/train"
)

// Why a run's context ends.
var (
	errPaused  = errors.New("paused")
	errStopped = errors.New("stopped")
)

// note keeps a line for the user that is in no log.
func (r *run) note(message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if message != "" && !slices.Contains(r.side.Notices, message) {
		r.side.Notices = append(r.side.Notices, message)
		r.side.Notices = r.side.Notices[max(0, len(r.side.Notices)-keptNotices):]
	}
}

// session says how the goroutine of a run begins.
type session struct {
	cfg    train.Config        // of a new run
	resume bool                // go on with what the folder holds
	change func(*train.Config) // limits of a run that goes on
	only   error               // errStopped: write the model and train no further
}

// take claims the run, its device, and what it reads.
func (r *run) take(uses []string) (release func(), err error) {
	s := r.s
	device := s.deviceKey(r.side.Settings.Device)
	var held []func()
	claim := func(free func(), e error) bool {
		if err = e; e == nil {
			held = append(held, free)
		}
		return e == nil
	}
	_ = claim(s.claims.exclusive("train/"+r.name, "it is training")) &&
		claim(s.claims.exclusive("device/"+device, fmt.Sprintf("the run %s trains on it; pause that run first, or choose another device", r.name))) &&
		claim(s.claims.share("the run "+r.name+" is training on it", uses...))
	release = func() {
		for _, free := range held {
			free()
		}
	}
	if err != nil {
		release()
	}
	return release, err
}

// launch starts the run's goroutine.
func (r *run) launch(ses session, uses []string) error {
	s := r.s
	if s.ctx.Err() != nil {
		return fail("busy", "the workbench is closing")
	}
	release, err := r.take(uses)
	if err != nil {
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
		release()
		return err
	}
	s.training.Add(1)
	go func() {
		defer s.training.Done()
		err := r.train(ctx, ses)
		release()
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
			s.movePaths(c, r.dir)
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
