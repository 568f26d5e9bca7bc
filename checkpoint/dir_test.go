package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestListLatestRetain(t *testing.T) {
	run := t.TempDir()
	if _, _, err := Latest(run); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("empty folder: %v", err)
	}
	if _, _, err := Latest(filepath.Join(run, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	for _, step := range []int64{1000, 5, 20, 300} {
		saveStep(t, run, step)
	}
	for _, name := range []string{"model.llm", "step-5.llm", "step-000000001.llm.bak", "log.jsonl"} {
		if err := os.WriteFile(filepath.Join(run, name), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cs, err := List(run)
	if err != nil {
		t.Fatal(err)
	}
	var steps []int64
	for _, c := range cs {
		steps = append(steps, c.Step)
		if c.SizeBytes != int64(len(sampleBytes(t))) {
			t.Errorf("%s: %d bytes", c.Path, c.SizeBytes)
		}
	}
	if len(steps) != 4 || steps[0] != 5 || steps[3] != 1000 {
		t.Errorf("steps %v", steps)
	}

	// Damage the newest in its data, and the next in its header.
	damage(t, CheckpointPath(run, 1000), -1)
	damage(t, CheckpointPath(run, 300), 200)
	c, skipped, err := Latest(run)
	if err != nil || c.Step != 20 || len(skipped) != 2 || !errors.Is(skipped[0].Err, ErrCorrupt) || !strings.Contains(skipped[0].Err.Error(), "step-000001000.llm") {
		t.Errorf("Latest: %+v, skipped %+v, %v", c, skipped, err)
	}

	// The header of 300 is damaged: it must not count as one of the two.
	removed, err := Retain(run, 2)
	if err != nil || len(removed) != 1 || removed[0] != CheckpointPath(run, 5) {
		t.Errorf("Retain removed %q, %v", removed, err)
	}
	if removed, err := Retain(run, 0); err != nil || removed != nil {
		t.Errorf("Retain 0 removed %q, %v", removed, err)
	}
	damage(t, CheckpointPath(run, 20), -1)
	_, skipped, err = Latest(run)
	if !errors.Is(err, ErrNoCheckpoint) || len(skipped) != 3 {
		t.Errorf("all damaged: skipped %v, %v", skipped, err)
	}
	wantError(t, err, run, "step-000000020.llm")
}

func init() {
	// hold locks a run folder until it is killed.
	jobs["hold"] = func(dir string) error {
		lock, err := Lock(dir)
		if err != nil {
			return err
		}
		defer lock.Unlock()
		os.Stdout.WriteString("\n")
		time.Sleep(time.Hour)
		return nil
	}
}

// TestLock: a second process, and a second caller in this one, are refused
// with the holder's name; the lock ends with a killed process.
func TestLock(t *testing.T) {
	run := filepath.Join(t.TempDir(), "new", "run")
	cmd := startJob(t, "hold", run)
	_, err := Lock(run)
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid || locked.Host == "" || locked.Since.IsZero() {
		t.Fatalf("Lock of a held folder: %v", err)
	}
	wantError(t, err, run, "in use by process", "another --out")
	cmd.Process.Kill()
	cmd.Wait()
	lock, err := Lock(run)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(run); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second lock in one process: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	again, err := Lock(run)
	if err != nil {
		t.Fatal(err)
	}
	again.Unlock()
}

// TestDiscard: a run that did not come about leaves the folder as it was.
func TestDiscard(t *testing.T) {
	take := func(run string) *RunLock {
		t.Helper()
		lock, err := Lock(run)
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
	discard := func(l *RunLock) {
		t.Helper()
		if err := l.Discard(); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir()
	run := filepath.Join(dir, "run")
	discard(take(run))
	if exists(run) {
		t.Error("the folder that Lock made is still there")
	}
	discard(take(dir))
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("a folder that was there holds %v, %v", list, err)
	}
	lock := take(run)
	if err := os.WriteFile(filepath.Join(run, "note"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	discard(lock)
	if list, err := os.ReadDir(run); err != nil || len(list) != 1 {
		t.Errorf("a folder that was written to holds %v, %v", list, err)
	}
	take(run).Unlock()
	discard(take(run))
	if !exists(filepath.Join(run, lockName)) {
		t.Error("an older lock file was removed")
	}
	again := take(run) // Discard has given the folder back
	again.Unlock()
}

func TestSpace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.llm")
	h, w, m := sample()
	if have, ok := diskFree(dir); ok && have <= 0 {
		t.Errorf("diskFree says %d", have)
	}
	defer func(f func(string) (int64, bool)) { freeBytes = f }(freeBytes)
	need := int64(len(sampleBytes(t)))
	freeBytes = func(d string) (int64, bool) {
		if d != dir {
			t.Errorf("asked for the space of %q, want %q", d, dir)
		}
		return need - 1, true
	}
	err := SaveLLM(path, h, w, m)
	var space *SpaceError
	if !errors.As(err, &space) || space.NeedBytes != need || space.HaveBytes != need-1 {
		t.Errorf("error %v", err)
	}
	wantError(t, err, path, "needs 1.1 kB", "has 1.1 kB free", "nothing was changed")
	if names := folder(t, dir); len(names) != 0 {
		t.Errorf("folder has %q", names)
	}
	freeBytes = func(string) (int64, bool) { return need, true }
	if err := SaveLLM(path, h, w, m); err != nil {
		t.Error(err)
	}
	freeBytes = func(string) (int64, bool) { return 0, false }
	if err := SaveLLM(path, h, w, m); err != nil {
		t.Error(err)
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{7: "7 bytes", 1234: "1.2 kB", 5_600_000: "5.6 MB", 1_400_000_000: "1.40 GB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
}
