package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"tezgah/runlog"
	"tezgah/tensor"
)

// childFailed is the exit code of a training process that met an error: neither that
// of a killed process (−1, on Windows 1) nor that of a panic (2).
const childFailed = 3

// TestMain lets the test binary act as a training process that can be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TEZGAH_TEST_TRAIN"); dir != "" {
		if err := trainProcess(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(childFailed)
		}
		os.Exit(0)
	}
	code := m.Run()
	if finished.dir != "" {
		os.RemoveAll(finished.dir)
	}
	os.Exit(code)
}

// trainProcess begins the run in dir, or goes on with it. It marks its start and every
// step with a byte on its output, and does not end before its input does.
func trainProcess(dir string) error {
	mark := func() { os.Stdout.Write([]byte{'.'}) }
	mark()
	cfg := tinyConfig(os.Getenv("TEZGAH_TEST_DATA"))
	cfg.CheckpointEvery = 3
	opt := Options{Dir: dir, Open: openCPU, Observer: Observer{Step: func(runlog.Step, Pace) { mark() }}}
	var tr *Trainer
	var err error
	if _, statErr := os.Stat(filepath.Join(dir, configName)); statErr == nil {
		tr, err = Resume(opt, nil)
	} else {
		tr, err = New(cfg, opt)
	}
	if err != nil {
		return err
	}
	defer tr.Close()
	if _, err = tr.Run(context.Background()); err != nil {
		return err
	}
	os.Stdout.Close()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is a running trainProcess.
type child struct {
	cmd   *exec.Cmd
	marks io.Reader
	input io.Closer
}

// startChild trains in run; without processes the test is skipped.
func startChild(t *testing.T, run, data string) child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TEZGAH_TEST_TRAIN="+run, "TEZGAH_TEST_DATA="+data)
	cmd.Stderr = os.Stderr
	marks, err := cmd.StdoutPipe()
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skipf("this platform cannot start processes: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("this platform cannot start processes: %v", err)
	}
	return child{cmd, marks, input}
}

// finish lets the process train to the end.
func (c child) finish(t *testing.T) {
	t.Helper()
	c.input.Close()
	if _, err := io.Copy(io.Discard, c.marks); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process a moment after its n-th mark, or after its run when that has
// fewer. It lands on a machine of any speed: a process whose run is over waits for it.
func (c child) kill(t *testing.T, n int, moment time.Duration) {
	t.Helper()
	io.CopyN(io.Discard, c.marks, int64(n)) // io.EOF: the run is over
	time.Sleep(moment)
	c.cmd.Process.Kill()
	c.cmd.Wait()
	if code := c.cmd.ProcessState.ExitCode(); code != -1 && code != 1 {
		t.Fatalf("the process was to be killed after mark %d, and exited with code %d before", n, code)
	}
}

// TestResumeAfterKill kills the training process with SIGKILL again and again
// at moments that the seed decides, resumes it, and compares the end with a
// run that nobody disturbed: every loss and every weight, to the bit.
func TestResumeAfterKill(t *testing.T) {
	dir := t.TempDir()
	data := writeData(t, dir, 1)
	whole, parts := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
	startChild(t, whole, data).finish(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := tensor.NewRNG(seed, 9)
	for i := range uint64(12) {
		n := int(r.Float64(2*i) * 10) // up to eight steps after the start
		moment := time.Duration(r.Float64(2*i+1) * float64(10*time.Millisecond))
		startChild(t, parts, data).kill(t, n, moment)
	}
	startChild(t, parts, data).finish(t)
	sameRun(t, whole, parts)
}
