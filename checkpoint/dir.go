package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoCheckpoint is in the error of Latest when a run folder has none that
// can be used.
var ErrNoCheckpoint = errors.New("no usable checkpoint")

// Checkpoint is one checkpoint file of a run folder.
type Checkpoint struct {
	Path      string
	Step      int64 // optimizer updates done
	SizeBytes int64
}

// CheckpointPath returns where the checkpoint after the given step belongs:
// RUN/step-000001000.llm.
func CheckpointPath(run string, step int64) string {
	return filepath.Join(run, fmt.Sprintf("step-%09d.llm", step))
}

// checkpointStep undoes CheckpointPath for a name without folder: 9 to 18
// digits, which an int64 holds.
func checkpointStep(name string) (step int64, ok bool) {
	digits, ok1 := strings.CutPrefix(name, "step-")
	digits, ok2 := strings.CutSuffix(digits, ".llm")
	if !ok1 || !ok2 || len(digits) < 9 || len(digits) > 18 || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	step, err := strconv.ParseInt(digits, 10, 64)
	return step, err == nil
}

// List returns the checkpoints of a run folder, oldest first. Other files are
// not looked at; a folder that does not exist is an error.
func List(run string) ([]Checkpoint, error) {
	files, err := os.ReadDir(run)
	if err != nil {
		return nil, err
	}
	var cs []Checkpoint
	for _, e := range files {
		step, ok := checkpointStep(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		st, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // removed since the folder was read
		}
		if err != nil {
			return nil, err
		}
		cs = append(cs, Checkpoint{filepath.Join(run, e.Name()), step, st.Size()})
	}
	slices.SortFunc(cs, func(a, b Checkpoint) int { return cmp.Compare(a.Step, b.Step) })
	return cs, nil
}

// Skipped is a checkpoint that Latest passed over, and why.
type Skipped struct {
	Path string
	Err  error
}

// Latest returns the newest checkpoint of a run folder that opens and whose
// every checksum is right, and the newer ones that it had to skip. With none
// left the error is ErrNoCheckpoint and names the reasons.
func Latest(run string) (c Checkpoint, skipped []Skipped, err error) {
	cs, err := List(run)
	if err != nil {
		return Checkpoint{}, nil, err
	}
	for _, c := range slices.Backward(cs) {
		err := verifyFile(c.Path)
		if err == nil {
			return c, skipped, nil
		}
		skipped = append(skipped, Skipped{c.Path, err})
	}
	if len(skipped) == 0 {
		return Checkpoint{}, nil, fmt.Errorf("%s: %w: the folder has no step-….llm file", run, ErrNoCheckpoint)
	}
	var reasons []string
	for _, s := range skipped {
		reasons = append(reasons, s.Err.Error())
	}
	return Checkpoint{}, skipped, fmt.Errorf("%s: %w: %s", run, ErrNoCheckpoint, strings.Join(reasons, "; "))
}

func verifyFile(path string) error {
	l, err := OpenLLM(path)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Verify()
}

// Retain removes old checkpoints so that the newest keep remain, and returns
// the paths it removed. A checkpoint that does not open does not count towards
// keep and is left alone, so that a bad file never pushes a good one out.
// keep ≤ 0 keeps everything.
func Retain(run string, keep int) (removed []string, err error) {
	if keep <= 0 {
		return nil, nil
	}
	cs, err := List(run)
	if err != nil {
		return nil, err
	}
	good := 0
	for _, c := range slices.Backward(cs) {
		l, err := OpenLLM(c.Path)
		if err != nil {
			continue
		}
		l.Close()
		if good++; good <= keep {
			continue
		}
		if err := os.Remove(c.Path); err != nil {
			return removed, fmt.Errorf("remove old checkpoint: %w", err)
		}
		removed = append(removed, c.Path)
	}
	return removed, nil
}
