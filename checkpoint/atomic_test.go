package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startJob runs this test binary as a second process that does one of jobs in
// dir. It prints a line when it has begun.
func startJob(t *testing.T, job, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Skipf("no path of the test binary to start: %v", err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "TEZGAH_TEST_JOB="+job, "TEZGAH_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("cannot start processes here: %v", err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatalf("job %s: no sign of life: %v", job, err)
	}
	return cmd
}

func init() {
	// save overwrites one name and makes new ones, until it is killed.
	jobs["save"] = func(dir string) error {
		os.Stdout.WriteString("\n")
		for step := int64(1); ; step++ {
			x := make([]float32, 40_000+1000*(step%7))
			w := []Tensor{Float32s("x", []int{len(x)}, x)}
			h := Header{Config: json.RawMessage(`{}`)}
			for _, path := range []string{filepath.Join(dir, "model.llm"), CheckpointPath(dir, step%20)} {
				if err := SaveLLM(path, h, w, nil); err != nil {
					return err
				}
			}
		}
	}
}

// TestKilledSaves kills a process that saves in a loop, many times, at
// different moments: every file under a final name must be whole.
func TestKilledSaves(t *testing.T) {
	dir := t.TempDir()
	left := 0
	for round := range 25 {
		cmd := startJob(t, "save", dir)
		time.Sleep(time.Duration(round*37%23) * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		for _, name := range folder(t, dir) {
			if strings.Contains(name, tempMark) {
				left++
				continue
			}
			if err := verifyFile(filepath.Join(dir, name)); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
	}
	t.Logf("%d files, %d times a temporary one was left", len(folder(t, dir)), left)
	lock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	for _, name := range folder(t, dir) {
		if strings.Contains(name, tempMark) {
			t.Errorf("Lock left %s", name)
		}
	}
}

// TestFailedSaveChangesNothing lets the data's source fail half way.
func TestFailedSaveChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.llm")
	h, w, m := sample()
	if err := SaveLLM(path, h, w, m); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("device lost")
	bad := Tensor{Info: Info{Name: "bad", Shape: []int{chunkBytes}}, Read: func(_ []byte, off int64) error {
		if off > 0 {
			return lost
		}
		return nil
	}}
	err := SaveLLM(path, h, append(w, bad), m)
	if !errors.Is(err, lost) {
		t.Errorf("error %v, want %v", err, lost)
	}
	wantError(t, err, path, `"bad"`)
	if err := WriteFileAtomic(path, func(w io.Writer) error {
		io.WriteString(w, "half")
		return lost
	}); !errors.Is(err, lost) {
		t.Errorf("error %v, want %v", err, lost)
	}
	if err := verifyFile(path); err != nil {
		t.Error(err)
	}
	if names := folder(t, dir); len(names) != 1 {
		t.Errorf("folder has %q", names)
	}
}

func TestWriteFileAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, want := range [][]byte{[]byte("one"), nil, bytes.Repeat([]byte("long"), 100_000)} {
		if err := WriteBytesAtomic(path, want); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o777); err != nil {
		t.Fatal(err)
	}
	wantError(t, WriteBytesAtomic(filepath.Join(dir, "folder"), nil), "regular file")
	wantError(t, WriteBytesAtomic(filepath.Join(dir, "missing", "x"), nil), "missing")
	if names := folder(t, dir); len(names) != 2 {
		t.Errorf("folder has %q", names)
	}
}

// TestStaleTemps: what a dead process left for a name goes with the next save
// under that name; what a living one is writing stays, and so do other names.
func TestStaleTemps(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.llm")
	stale := filepath.Join(dir, ".model.llm"+tempMark+"00")
	other := filepath.Join(dir, ".other.llm"+tempMark+"00")
	for _, p := range []string{stale, other} {
		if err := os.WriteFile(p, []byte("half"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	living, err := createAtomic(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteBytesAtomic(path, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(stale); hasLocks && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stale file is still there: %v", err)
	}
	for _, p := range []string{other, living.f.Name()} {
		if _, err := os.Stat(p); err != nil {
			t.Error(err)
		}
	}
	if err := living.commit(); err != nil {
		t.Error(err)
	}
}
