package train

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"tezgah/op"
	"tezgah/runlog"
)

// openLog starts the run log and the event files, or goes on with them after
// the restored step.
func (t *Trainer) openLog(resume bool) error {
	path := filepath.Join(t.opt.Dir, runlog.FileName)
	log, err := runlog.Open(path, t.state.Step)
	if errors.Is(err, os.ErrNotExist) || !resume {
		log, err = runlog.Create(path)
	}
	if err != nil {
		return err
	}
	t.log = log
	if t.opt.JSON != nil {
		log.Tee(t.opt.JSON)
	}
	kind := runlog.KindStart
	if resume {
		kind = runlog.KindResume
	}
	err = log.Event(kind, t.state.Step, "", runlog.Start{
		Version: t.opt.Version, Device: t.backend.Device(), Seed: t.cfg.Seed, Config: t.cfg, Args: t.opt.Args,
	})
	for _, s := range t.early {
		t.event(runlog.KindWarning, s)
	}
	t.early = nil
	if err != nil || t.cfg.NoTensorBoard {
		return err
	}
	return t.openTensorBoard()
}

// openTensorBoard begins an event file at the restored step. A run that had
// none until now gets all of its earlier steps from the log.
func (t *Trainer) openTensorBoard() error {
	late := t.tbLate || !runlog.HasTensorBoard(t.opt.Dir)
	after := t.state.Step
	if late {
		after = 0
	}
	tb, err := runlog.OpenTensorBoard(t.opt.Dir, after)
	if err != nil {
		return err
	}
	t.tb, t.tbLate = tb, false
	if late {
		return tb.Replay(t.log.Path())
	}
	return nil
}

// logStep writes a step to the log and to the event file. An event file that
// cannot be written ends there, with a notice; the run goes on.
func (t *Trainer) logStep(s runlog.Step) error {
	if err := t.log.Step(s); err != nil {
		return err
	}
	if t.tb != nil {
		t.checkEvents(t.tb.Step(s))
	}
	return nil
}

// checkEvents gives the event file up when it could not be written.
func (t *Trainer) checkEvents(err error) {
	if err != nil {
		t.tb.Close()
		t.tb = nil
		t.notice("no more event files for TensorBoard: " + err.Error())
	}
}

// syncLog flushes what is logged, so that it is never behind a checkpoint.
func (t *Trainer) syncLog() error {
	if t.tb != nil {
		t.checkEvents(t.tb.Sync())
	}
	return t.log.Sync()
}

func (t *Trainer) closeLog() (err error) {
	if t.log != nil {
		err = t.log.Close()
	}
	if t.tb != nil {
		err = errors.Join(err, t.tb.Close())
	}
	t.log, t.tb = nil, nil
	return err
}

// reopenLog cuts the log back after the state went back.
func (t *Trainer) reopenLog() error {
	if err := t.closeLog(); err != nil {
		return err
	}
	return t.openLog(true)
}

func (t *Trainer) event(kind runlog.Kind, msg string) {
	t.log.Event(kind, t.state.Step, msg, nil)
}

// notice tells the user and the log, which may not be open yet.
func (t *Trainer) notice(s string) {
	if t.log != nil {
		t.event(runlog.KindWarning, s)
	} else {
		t.early = append(t.early, s)
	}
	if t.opt.Observer.Notice != nil {
		t.opt.Observer.Notice(s)
	}
}

// deviceNotices passes on what the device has had to say since it was opened, or
// since the last time.
func (t *Trainer) deviceNotices() {
	n, ok := t.backend.(op.Noticer)
	if !ok {
		return
	}
	all := n.Notice()
	for _, line := range strings.Split(all[min(len(all), t.told):], "\n") {
		if line = strings.TrimPrefix(line, "NOTE: "); line != "" {
			t.notice(line)
		}
	}
	t.told = len(all)
}
