package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"tezgah/tensor"
)

// errAdapter is why a file of adapters is no model.
var errAdapter = errors.New("the file holds LoRA adapters, not a whole model: open it with its base model merged, as tezgah export does, or export the adapters with --to peft")

// LoRA is how low-rank adapters were made (Hu et al. 2021): the JSON of
// Header.LoRA.
type LoRA struct {
	Rank    int      `json:"rank"`    // r, at least 1
	Alpha   float64  `json:"alpha"`   // what is added is α/r · a·b
	Targets []string `json:"targets"` // "wq", "w_up" …: the matrices of a layer that have adapters
}

// loraModules are the matrices of a layer that can have adapters, and the
// modules that they are in transformers.
var loraModules = map[string]string{
	"wq": "q_proj", "wk": "k_proj", "wv": "v_proj", "wo": "o_proj",
	"w_gate": "gate_proj", "w_up": "up_proj", "w_down": "down_proj",
}

// parseLoRA reads and checks Header.LoRA.
func parseLoRA(raw json.RawMessage) (a LoRA, err error) {
	if raw == nil {
		return a, fmt.Errorf("the file holds no LoRA adapters; train them with --lora")
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, fmt.Errorf("%s: %w", keyLoRA, err)
	}
	switch {
	case a.Rank < 1 || a.Rank > 1<<16:
		return a, fmt.Errorf("%s: rank is %d, want 1 to %d", keyLoRA, a.Rank, 1<<16)
	case !(a.Alpha > 0) || math.IsInf(a.Alpha, 0):
		return a, fmt.Errorf("%s: alpha is %v, want a finite number above 0", keyLoRA, a.Alpha)
	case len(a.Targets) == 0:
		return a, fmt.Errorf("%s: there are no targets", keyLoRA)
	}
	seen := map[string]bool{}
	for _, t := range a.Targets {
		if loraModules[t] == "" || seen[t] {
			return a, fmt.Errorf("%s: target %q is unknown or comes twice, want some of wq, wk, wv, wo, w_gate, w_up, w_down", keyLoRA, t)
		}
		seen[t] = true
	}
	return a, nil
}

// PEFTOptions says how an adapter folder is written.
type PEFTOptions struct {
	Type tensor.DType // F32, F16 or BF16
	// Base is the model that the adapters belong to, as peft is to find it: a
	// folder that ExportHF has written, or a name on a hub. A folder that is
	// there must hold a model of the adapters' architecture.
	Base string
	// BaseModel, in place of Base, is written into the folder "base" beside
	// the adapters, as BaseOptions say.
	BaseModel   *LLM
	BaseOptions HFOptions
}

// baseFolder is where an adapter folder holds its base model.
const baseFolder = "base"

// ExportPEFT writes the adapters in l as a folder that the Python package peft
// loads: adapter_config.json and adapter_model.safetensors. Nothing is
// multiplied into them: peft computes with the same α/r. dir must not exist or
// be empty; it appears whole or not at all.
func ExportPEFT(dir string, l *LLM, o PEFTOptions) error {
	base, err := planBase(dir, l, &o)
	if err != nil {
		return fmt.Errorf("export to %s: %w", dir, err)
	}
	weights, config, err := planPEFT(l, o)
	if err == nil {
		err = checkSpace(dir, weights.size+base.size())
	}
	if err == nil {
		err = writeFolder(dir, func(temp string) error {
			if err := weights.save(filepath.Join(temp, "adapter_model.safetensors")); err != nil {
				return err
			}
			if err := WriteBytesAtomic(filepath.Join(temp, "adapter_config.json"), config); err != nil || o.BaseModel == nil {
				return err
			}
			return writeFolder(filepath.Join(temp, baseFolder), base.write)
		})
	}
	if err != nil {
		return fmt.Errorf("export to %s: %w", dir, err)
	}
	return nil
}

// planBase finds the base model, completes o.Base, and compares its
// architecture with the adapters'. The plan is empty for a base that is there.
func planBase(dir string, l *LLM, o *PEFTOptions) (*hfFolder, error) {
	c, err := parseLlamaConfig(l.Header.Config)
	if err != nil {
		return nil, err
	}
	switch {
	case o.BaseModel != nil:
		o.Base = filepath.ToSlash(filepath.Join(dir, baseFolder))
		b, err := parseLlamaConfig(o.BaseModel.Header.Config)
		if err == nil {
			err = sameArchitecture(b, c, o.BaseModel.Name())
		}
		if err != nil {
			return nil, err
		}
		return planHF(o.BaseModel, o.BaseOptions)
	case o.Base == "":
		return nil, fmt.Errorf("no base model is named; export it with --to hf and give its folder with --base")
	}
	if st, err := os.Stat(o.Base); err == nil && st.IsDir() {
		m, err := OpenHF(o.Base)
		if err != nil {
			return nil, err
		}
		defer m.Close()
		return &hfFolder{}, sameArchitecture(m.Config, c, o.Base)
	}
	return &hfFolder{}, nil // a name on a hub, or a folder of another machine
}

// sameArchitecture compares what decides shapes and what is computed.
func sameArchitecture(got, want LlamaConfig, name string) error {
	got.Context, got.InitStd = want.Context, want.InitStd
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("the base model %s is %+v, the adapters were trained on %+v", name, got, want)
	}
	return nil
}

func planPEFT(l *LLM, o PEFTOptions) (weights *plan, config []byte, err error) {
	a, err := parseLoRA(l.Header.LoRA)
	if err != nil {
		return nil, nil, err
	}
	c, err := parseLlamaConfig(l.Header.Config)
	if err != nil {
		return nil, nil, err
	}
	if _, err := narrower(o.Type); err != nil {
		return nil, nil, err
	}
	var ts []Tensor
	for _, lt := range c.tensors() {
		if !a.adapts(lt.ours) {
			continue
		}
		for _, half := range a.halves(lt) {
			s := source{f: l.File, name: half.ours, shape: half.shape, turned: true}
			if err := s.check(); err != nil {
				return nil, nil, err
			}
			ts = append(ts, s.tensor(half.hf, o.Type, half.theirShape()))
		}
	}
	if got := len(l.Weights()); got != len(ts) {
		return nil, nil, fmt.Errorf("the file has %d tensors, want %d by its targets %v", got, len(ts), a.Targets)
	}
	if weights, err = planFile([]pair{{keyFormat, "pt"}}, ts); err != nil {
		return nil, nil, err
	}
	config, err = peftConfigJSON(a, o.Base)
	return weights, config, err
}

// adapts reports whether the weight called ours ("layers.3.wq") has adapters.
func (a LoRA) adapts(ours string) bool {
	name := ours[strings.LastIndexByte(ours, '.')+1:]
	for _, t := range a.Targets {
		if t == name {
			return true
		}
	}
	return false
}

// halves are the two adapters of a weight, under our names and peft's. Both
// are [in, out] here and [out, in] there.
func (a LoRA) halves(w llamaTensor) [2]llamaTensor {
	module := "base_model.model." + strings.TrimSuffix(w.hf, ".weight")
	return [2]llamaTensor{
		{ours: w.ours + ".lora_a", hf: module + ".lora_A.weight", shape: []int{w.shape[0], a.Rank}, turned: true},
		{ours: w.ours + ".lora_b", hf: module + ".lora_B.weight", shape: []int{a.Rank, w.shape[1]}, turned: true},
	}
}

// peftConfigJSON writes adapter_config.json: the settings that decide what is
// computed. peft fills in its defaults for the rest.
func peftConfigJSON(a LoRA, base string) ([]byte, error) {
	modules := make([]string, len(a.Targets))
	for i, t := range a.Targets {
		modules[i] = loraModules[t]
	}
	return jsonObject([]member{
		{"base_model_name_or_path", base}, {"bias", "none"}, {"fan_in_fan_out", false}, {"inference_mode", true},
		{"init_lora_weights", true}, {"lora_alpha", a.Alpha}, {"lora_dropout", 0.0}, {"modules_to_save", nil},
		{"peft_type", "LORA"}, {"r", a.Rank}, {"target_modules", modules}, {"task_type", "CAUSAL_LM"},
		{"use_dora", false}, {"use_rslora", false},
	})
}
