package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/op"
	"tezgah/runlog"
	"tezgah/tensor"
)

// ModelName is the file of the finished model inside a run folder.
const ModelName = "model.llm"

// save writes a checkpoint and removes those beyond Keep.
func (t *Trainer) save() error {
	path := checkpoint.CheckpointPath(t.opt.Dir, t.state.Step)
	header, err := t.header(true)
	if err != nil {
		return err
	}
	if err := t.syncLog(); err != nil {
		return err
	}
	p := t.params.Trainable()
	if err := checkpoint.SaveLLM(path, header, fileTensors(t.runner, p.Weights()), fileTensors(t.runner, p.Moments())); err != nil {
		return fmt.Errorf("saving step %d: %w; earlier checkpoints are untouched", t.state.Step, err)
	}
	if _, err := checkpoint.Retain(t.opt.Dir, t.cfg.Keep); err != nil {
		t.notice("could not remove an old checkpoint: " + err.Error())
	}
	t.event(runlog.KindSave, filepath.Base(path))
	if t.opt.Observer.Save != nil {
		t.opt.Observer.Save(t.state.Step, path)
	}
	return nil
}

// saveModel writes the weights alone, for generation, with the adapters merged
// into them.
func (t *Trainer) saveModel() (string, error) {
	path := filepath.Join(t.opt.Dir, ModelName)
	header, err := t.header(false)
	if err != nil {
		return "", err
	}
	return path, t.merged(func() error {
		return checkpoint.SaveLLM(path, header, fileTensors(t.runner, t.params.Weights()), nil)
	})
}

// facts are what a model file tells about its training.
type facts struct {
	Steps   int64   `json:"steps"`
	Tokens  int64   `json:"tokens"`
	Seconds float64 `json:"seconds"`
	Loss    float64 `json:"loss"`
	ValLoss float64 `json:"val_loss,omitempty"`
	Device  string  `json:"device"`
	Version string  `json:"version"`
	Train   Config  `json:"train"`
}

// header describes the model. With state it is that of a checkpoint, which
// holds the adapters alone where there are some.
func (t *Trainer) header(withState bool) (h checkpoint.Header, err error) {
	if h.Config, err = json.Marshal(t.cfg.Model); err != nil {
		return h, err
	}
	h.Tokenizer, h.ChatTemplate = t.data.tokenizerJSON(), t.data.template
	h.Facts, err = json.Marshal(facts{
		Steps: t.state.Step, Tokens: t.state.Tokens, Seconds: t.state.Seconds, Loss: finiteOr(t.state.LastLoss, -1),
		ValLoss: finiteOr(t.state.LastVal, -1), Device: t.backend.Device(), Version: t.opt.Version, Train: t.cfg,
	})
	if err != nil || !withState {
		return h, err
	}
	if t.cfg.LoRA.Ok() { // the tokenizer is in the base model
		h.Tokenizer = nil
		if h.LoRA, err = loraHeader(t.cfg.Model, t.cfg.LoRA); err != nil {
			return h, err
		}
	}
	s := t.state
	s.LastLoss, s.LastVal = finiteOr(s.LastLoss, -1), finiteOr(s.LastVal, -1)
	h.State, err = json.Marshal(s)
	return h, err
}

// finiteOr keeps JSON valid: a loss that is NaN or infinite, which the log
// holds as it is, becomes the given mark.
func finiteOr(x, mark float64) float64 {
	if x-x != 0 {
		return mark
	}
	return x
}

// fileTensors presents device tensors to the file writer, which pulls them in
// chunks.
func fileTensors(r *op.Runner, states []model.State) []checkpoint.Tensor {
	out := make([]checkpoint.Tensor, len(states))
	for i, s := range states {
		out[i] = checkpoint.Tensor{
			Info: checkpoint.Info{Name: s.Name, Type: s.DType, Shape: s.Shape},
			Read: func(p []byte, off int64) error { return r.Read(p, byteRange(s, off, len(p))) },
		}
	}
	return out
}

// byteRange views n bytes of a stored tensor from byte off.
func byteRange(s model.State, off int64, n int) op.Tensor {
	size := s.DType.Size()
	return op.Of(s.T.Buf, s.T.Off+int(off)/size, n/size)
}

// restore puts the newest whole checkpoint, or what training starts from, on
// the device.
func (t *Trainer) restore() error {
	if err := t.restoreState(); err != nil {
		return err
	}
	t.scaleLoss()
	t.settled = true
	return nil
}

func (t *Trainer) restoreState() error {
	t.state = state{Cursor: t.data.firstCursor}
	if err := t.data.batches.SetCursor(t.data.firstCursor); err != nil {
		return err
	}
	found, skipped, err := checkpoint.Latest(t.opt.Dir)
	for _, s := range skipped {
		t.notice(fmt.Sprintf("%s is left out: %v", s.Path, s.Err))
	}
	none := errors.Is(err, checkpoint.ErrNoCheckpoint)
	if err != nil && !none {
		return err
	}
	if none || t.cfg.LoRA.Ok() { // checkpoints of adapters do not hold the frozen weights
		if err := t.firstWeights(); err != nil {
			return err
		}
	}
	if none {
		return nil
	}
	f, err := checkpoint.OpenLLM(found.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	return t.load(f)
}

// firstWeights puts what training starts from on the device: random weights,
// or those of InitFrom. The frozen ones of a run with adapters are copied into
// the run folder, which is where they come from later.
func (t *Trainer) firstWeights() error {
	if err := t.params.Init(t.cfg.Seed); err != nil || t.cfg.InitFrom == "" {
		return err
	}
	from := t.cfg.InitFrom
	if t.cfg.LoRA.Ok() {
		if base := filepath.Join(t.opt.Dir, BaseName); isFile(base) {
			from = base
		}
	}
	if err := t.initFrom(from); err != nil || !t.cfg.LoRA.Ok() {
		return err
	}
	return t.saveBase()
}

// load reads weights, moments and state from a checkpoint.
func (t *Trainer) load(f *checkpoint.LLM) error {
	if f.Header.State == nil {
		return fmt.Errorf("%s holds a model without training state: start a new run with --init %s", f.Name(), f.Name())
	}
	if err := t.sameRun(f); err != nil {
		return err
	}
	p := t.params.Trainable()
	if err := LoadStates(t.runner, f, append(p.Weights(), p.Moments()...)); err != nil {
		return err
	}
	changed(t.params)
	if err := json.Unmarshal(f.Header.State, &t.state); err != nil {
		return fmt.Errorf("%s: training state: %w", f.Name(), err)
	}
	t.adam.SetStepCount(t.state.Updates)
	if err := t.data.batches.SetCursor(t.state.Cursor); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return t.runner.Err()
}

// sameRun refuses a checkpoint of another model, or of other adapters.
func (t *Trainer) sameRun(f *checkpoint.LLM) error {
	got, err := configOf(f)
	if err != nil {
		return err
	}
	var lora model.LoRA
	if f.Header.LoRA != nil {
		if lora, err = parseLoRAHeader(f.Header.LoRA, got); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	if got != t.cfg.Model.WithDefaults() || lora != t.cfg.LoRA.WithDefaults() {
		return fmt.Errorf("%s holds another model than the run's %s", f.Name(), configName)
	}
	return nil
}

// LoadStates copies tensors of a file to the device, checking names, types,
// shapes and checksums.
func LoadStates(r *op.Runner, f *checkpoint.LLM, states []model.State) error {
	for _, s := range states {
		if err := sameShape(f, s.Name, s.DType, s.Shape); err != nil {
			return err
		}
		err := f.Stream(s.Name, func(p []byte, off int64) error {
			r.Write(byteRange(s, off, len(p)), p)
			return r.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sameShape makes sure that f holds a tensor as it should be.
func sameShape(f *checkpoint.LLM, name string, typ tensor.DType, shape []int) error {
	info, ok := f.Lookup(name)
	if !ok {
		return fmt.Errorf("%s has no tensor %s", f.Name(), name)
	}
	if info.Type != typ || !slices.Equal(info.Shape, shape) {
		return fmt.Errorf("%s: tensor %s is %v %v, want %v %v", f.Name(), name, info.Type, info.Shape, typ, shape)
	}
	return nil
}

// changed tells parameters that their weights were written from outside.
func changed(p *model.Params) {
	p.RefreshMirror()
	if a := p.Adapter(); a != nil {
		a.Updated()
	}
}
