package engine

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"tezgah/checkpoint"
)

// initName is the model that a run starts from, in the run's folder.
const initName = "init.llm"

// keepInit puts the model file from into dir, as a second name for the same
// file where the disk can do that. Files of models are replaced and never
// changed, so the two do not disturb each other. A checkpoint of adapters is
// used where it lies, beside the base model that it needs.
func keepInit(from, dir string) (string, error) {
	f, err := checkpoint.OpenLLM(from)
	if err != nil {
		return "", err
	}
	adapters := f.Header.LoRA != nil
	f.Close()
	if adapters {
		return from, nil
	}
	to := filepath.Join(dir, initName)
	if os.Link(from, to) == nil {
		return to, nil
	}
	return to, copyFile(from, to)
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return checkpoint.WriteFileAtomic(to, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return err
	})
}

// forkRun is POST /api/runs/NAME/fork: the settings of the old run, over them
// those of the body, and the weights of a checkpoint.
func (s *Service) forkRun(c *call) error {
	r, err := s.run(c.args[0])
	if err != nil {
		return err
	}
	var body map[string]json.RawMessage
	if err := readJSON(c.r, &body); err != nil {
		return err
	}
	step := int64(0)
	if raw, ok := body["step"]; ok {
		if err := json.Unmarshal(raw, &step); err != nil || step < 0 {
			return badField("step", "step is %s, want the step of a checkpoint, or 0 for the newest", raw)
		}
		delete(body, "step")
	}
	set := r.snapshot().Settings
	set.Name, set.Preset, set.Model = "", "", nil
	rest, err := json.Marshal(body)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(rest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&set); err != nil {
		return jsonError(err)
	}
	if set.Init, err = r.checkpointName(step); err != nil {
		return err
	}
	n, err := s.newRun(set)
	if err != nil {
		return err
	}
	return c.json(n.snapshot())
}

// checkpointName is the setting init for a checkpoint of the run.
func (r *run) checkpointName(step int64) (string, error) {
	if step == 0 {
		list, err := checkpoint.List(r.dir)
		if err != nil {
			return "", err
		}
		if len(list) == 0 {
			return "", fail("bad_request", "the run %s has no checkpoint yet", r.name)
		}
		step = list[len(list)-1].Step
	}
	_, err := r.s.checkpointPath(r.name, step)
	return r.name + "@" + itoa(step), err
}

// checkpointPath is the file of one checkpoint.
func (s *Service) checkpointPath(name string, step int64) (string, error) {
	if err := checkName("name", name); err != nil {
		return "", err
	}
	path := checkpoint.CheckpointPath(s.path("runs", name), step)
	if _, err := os.Stat(path); err != nil {
		return "", badField("step", "the run %s has no checkpoint of step %d", name, step)
	}
	return path, nil
}
