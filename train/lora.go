package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/op"
	"tezgah/tensor"
)

// BaseName is the file, inside the run folder of a run that trains adapters,
// of the frozen model that they belong to.
const BaseName = "base.llm"

// loraHeader is l as model files say it (see checkpoint.Header.LoRA): the
// targets by the names of their matrices.
func loraHeader(c model.Config, l model.LoRA) (json.RawMessage, error) {
	l = l.WithDefaults()
	h := checkpoint.LoRA{Rank: l.Rank, Alpha: l.Alpha}
	for _, p := range l.Params(c) {
		name, first := strings.CutPrefix(p.Name, "layers.0.")
		if matrix, a := strings.CutSuffix(name, ".lora_a"); first && a {
			h.Targets = append(h.Targets, matrix)
		}
	}
	return json.Marshal(h)
}

// parseLoRAHeader undoes loraHeader.
func parseLoRAHeader(raw json.RawMessage, c model.Config) (model.LoRA, error) {
	var h checkpoint.LoRA
	if err := json.Unmarshal(raw, &h); err != nil {
		return model.LoRA{}, fmt.Errorf("its adapters: %w", err)
	}
	l := model.LoRA{Rank: h.Rank, Alpha: h.Alpha}
	var words []string
	for _, t := range h.Targets {
		words = append(words, strings.TrimPrefix(strings.TrimPrefix(t, "w_"), "w"))
	}
	l.Targets = strings.Join(words, ",")
	if !l.Ok() || len(words) == 0 {
		return l, fmt.Errorf("its adapters are described as %s, want rank, alpha and targets", raw)
	}
	return l.WithDefaults(), l.Validate(c)
}

// addAdapters adds the adapters in f to the weights of p, which are those of
// their base: W += α/r·A·B, as Params.Merge does.
func addAdapters(p *model.Params, f *checkpoint.LLM) error {
	lora, err := parseLoRAHeader(f.Header.LoRA, p.Config())
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	r, weights := p.Runner(), map[string]op.Tensor{}
	for _, s := range p.Weights() {
		weights[s.Name] = s.T
	}
	table := lora.Params(p.Config())
	for i := 0; i < len(table); i += 2 { // A and B follow each other
		a, err := upload(r, f, table[i], float32(lora.Alpha/float64(lora.Rank)))
		if err != nil {
			return err
		}
		defer r.Backend().Free(a.Buf)
		b, err := upload(r, f, table[i+1], 1)
		if err != nil {
			return err
		}
		defer r.Backend().Free(b.Buf)
		r.MatMul(op.MatMul{A: a, B: b, C: weights[strings.TrimSuffix(table[i].Name, ".lora_a")], Acc: true})
	}
	r.Flush()
	return r.Err()
}

// SaveMerged writes the model that a file of adapters stands for under path:
// the base model that lies beside it with the adapters merged into it, computed
// by r. It needs the memory of the weights once.
func SaveMerged(r *op.Runner, adapters, path string) error {
	f, whole, closeFiles, err := openWhole(adapters)
	if err != nil {
		return err
	}
	defer closeFiles()
	cfg, err := configOf(whole)
	if err != nil {
		return err
	}
	p, err := model.NewParams(r, cfg, model.ParamOptions{})
	if err != nil {
		return err
	}
	defer p.Close()
	if err := loadWeights(p, p.Weights(), whole, f); err != nil {
		return err
	}
	h := whole.Header
	h.Facts, h.ChatTemplate, h.State = f.Header.Facts, f.Header.ChatTemplate, nil
	return checkpoint.SaveLLM(path, h, fileTensors(r, p.Weights()), nil)
}

// upload puts a tensor of a file, times a factor, into a buffer of its own.
func upload(r *op.Runner, f *checkpoint.LLM, want model.ParamInfo, factor float32) (op.Tensor, error) {
	if err := sameShape(f, want.Name, tensor.F32, want.Shape); err != nil {
		return op.Tensor{}, err
	}
	x := make([]float32, want.Len())
	if err := f.ReadFloat32(want.Name, x); err != nil {
		return op.Tensor{}, err
	}
	for i := range x {
		x[i] *= factor
	}
	buf, err := r.Backend().Alloc(want.Name, tensor.F32, len(x))
	if err != nil {
		return op.Tensor{}, err
	}
	t := op.Of(buf, 0, want.Shape...)
	op.WriteSlice(r, t, x)
	return t, nil
}

// merged calls f while the adapters are merged into the weights. Afterwards
// both are what they were, to the bit, so that training can go on.
func (t *Trainer) merged(f func() error) error {
	a := t.params.Adapter()
	if a == nil {
		return f()
	}
	states := a.Weights()
	kept := make([][]byte, len(states))
	for i, s := range states {
		kept[i] = make([]byte, s.T.Len()*s.DType.Size())
		if err := t.runner.Read(kept[i], s.T); err != nil {
			return err
		}
	}
	if err := t.params.Merge(); err != nil {
		return err
	}
	err := f()
	for i, s := range states {
		t.runner.Write(s.T, kept[i])
	}
	return errors.Join(err, t.reloadFrozen())
}

// reloadFrozen takes the weights beside the adapters from the run folder.
func (t *Trainer) reloadFrozen() error {
	f, err := checkpoint.OpenLLM(filepath.Join(t.opt.Dir, BaseName))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := LoadStates(t.runner, f, t.params.Weights()); err != nil {
		return err
	}
	changed(t.params)
	return t.runner.Err()
}

// saveBase writes the frozen model into the run folder, once.
func (t *Trainer) saveBase() error {
	path := filepath.Join(t.opt.Dir, BaseName)
	if isFile(path) {
		return nil
	}
	h, err := t.header(false)
	if err != nil {
		return err
	}
	h.Facts, err = json.Marshal(map[string]string{"base_of": filepath.Base(t.opt.Dir), "from": t.cfg.InitFrom, "version": t.opt.Version})
	if err != nil {
		return err
	}
	return checkpoint.SaveLLM(path, h, fileTensors(t.runner, t.params.Weights()), nil)
}
