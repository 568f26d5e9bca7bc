package train

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"tezgah/checkpoint"
	"tezgah/op"
	"tezgah/runlog"
)

// broken is a backend that fails at calls after a step, some of them once.
type broken struct {
	op.Backend
	norm, adam, read *error // what the call returns, nil for nothing
}

func (b broken) RMSNorm(a op.RMSNorm) error {
	if *b.norm != nil {
		return *b.norm
	}
	return b.Backend.RMSNorm(a)
}

func (b broken) AdamW(a op.AdamW) error {
	if *b.adam != nil {
		return *b.adam
	}
	return b.Backend.AdamW(a)
}

func (b broken) Read(p []byte, x op.Tensor) error {
	if *b.read != nil {
		return *b.read
	}
	return b.Backend.Read(p, x)
}

// TestStepsAreSavedWhenTheDeviceFails breaks a run after step 18, whose last
// checkpoint is that of step 15. Memory that runs out in the forward pass costs no
// step; where weights may be half updated, or cannot be read, the run goes back.
// Either way it ends as if nothing had happened.
func TestStepsAreSavedWhenTheDeviceFails(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	whole := filepath.Join(dir, "whole")
	runAll(t, whole, cfg)
	full, lost := errors.New("out of memory (test)"), errors.New("lost (test)")
	for name, c := range map[string]struct {
		norm, adam, read error
		from             string
	}{
		"memory": {norm: full, from: "going on from step 18"},
		"update": {adam: full, from: "going on from step 15"},
		"lost":   {norm: lost, read: lost, from: "going on from step 15"},
	} {
		var norm, adam, read error
		var notices []string
		tr, err := New(cfg, Options{Dir: filepath.Join(dir, name),
			Open: func() (op.Backend, error) {
				norm, adam, read = nil, nil, nil // a device that is opened works
				b, err := openCPU()
				return broken{b, &norm, &adam, &read}, err
			},
			Observer: Observer{
				Notice: func(s string) { notices = append(notices, s) },
				Step: func(s runlog.Step, _ Pace) {
					if s.Step == 18 && len(notices) == 0 {
						norm, adam, read = c.norm, c.adam, c.read
					}
				},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tr.Run(context.Background())
		tr.Close()
		if said := strings.Join(notices, "\n"); err != nil || !strings.Contains(said, c.from) {
			t.Errorf("%s: %v, the user was told %q, want %q", name, err, said, c.from)
		}
		sameRun(t, whole, filepath.Join(dir, name))
	}
}

// TestDeviceThatStaysFull: a device whose memory runs out again ends the run with
// what to do, and the last step is on disk.
func TestDeviceThatStaysFull(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	var norm, never error
	full := errors.New("out of memory (test)")
	run := filepath.Join(dir, "run")
	tr, err := New(cfg, Options{Dir: run,
		Open: func() (op.Backend, error) {
			b, err := openCPU()
			return broken{b, &norm, &never, &never}, err
		},
		Observer: Observer{Step: func(s runlog.Step, _ Pace) {
			if s.Step == 18 {
				norm = full
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.Run(context.Background())
	tr.Close()
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "--resume "+run) || !strings.Contains(err.Error(), "--device cpu") {
		t.Errorf("got %v, want the device's error and how to go on", err)
	}
	if c, _, err := checkpoint.Latest(run); err != nil || c.Step != 18 {
		t.Errorf("the newest checkpoint is %+v, %v, want that of step 18", c, err)
	}
}

// TestDeviceFailsAtTheEnd: where the last checkpoint cannot be read from the device
// the run goes back to the one before, and ends.
func TestDeviceFailsAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	cfg := tinyConfig(writeData(t, dir, 1))
	whole, run := filepath.Join(dir, "whole"), filepath.Join(dir, "run")
	runAll(t, whole, cfg)
	var read, never error
	var notices []string
	tr, err := New(cfg, Options{Dir: run,
		Open: func() (op.Backend, error) {
			read = nil
			b, err := openCPU()
			return broken{b, &never, &never, &read}, err
		},
		Observer: Observer{
			Notice: func(s string) { notices = append(notices, s) },
			Step: func(s runlog.Step, _ Pace) {
				if s.Step == cfg.MaxSteps && len(notices) == 0 {
					read = errors.New("lost (test)")
				}
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.Run(context.Background())
	tr.Close()
	if said := strings.Join(notices, "\n"); err != nil || !strings.Contains(said, "going on from step 20") {
		t.Errorf("%v, the user was told %q", err, said)
	}
	sameRun(t, whole, run)
}
