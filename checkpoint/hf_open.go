package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tezgah/tensor"
)

// HFModel is an open model in Hugging Face's form.
type HFModel struct {
	Config    LlamaConfig
	Tokenizer []byte // tokenizer.json, nil if the folder has none
	// BOS and EOS are ids from generation_config.json, or else config.json;
	// either may be empty. A model that converses has several ends: that of a
	// turn and that of a document.
	BOS, EOS []int32
	// ChatJinja is the chat template as the folder has it, empty for none.
	ChatJinja string
	Notes     []string

	files map[string]*File // by name
	where map[string]*File // by tensor
}

// OpenHF opens a Hugging Face folder, or a single .safetensors file with a
// config.json beside it. Only headers are read: architecture, files, names,
// types and shapes are checked, and what the model here cannot do is refused
// by name. The weights are read when Weights are saved.
func OpenHF(path string) (*HFModel, error) {
	m := &HFModel{files: map[string]*File{}, where: map[string]*File{}}
	if err := m.open(path); err != nil {
		m.Close()
		return nil, fmt.Errorf("import %s: %w", path, err)
	}
	return m, nil
}

func (m *HFModel) open(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	dir, single := path, ""
	if !st.IsDir() {
		dir, single = filepath.Split(path)
	}
	config, err := readStrict(dir, "config.json", maxConfigBytes)
	if err != nil {
		return err
	}
	if m.Config, m.BOS, m.EOS, err = parseHFConfig(config); err != nil {
		return fmt.Errorf("config.json: %w", err)
	}
	if err := m.readTokenizer(dir); err != nil {
		return err
	}
	if single != "" {
		err = m.openAll(dir, []string{single})
	} else {
		err = m.openWeights(dir)
	}
	if err != nil {
		return err
	}
	return m.checkTensors()
}

// readTokenizer reads vocabulary, chat template and the tokens that end a text;
// all of them may be missing.
func (m *HFModel) readTokenizer(dir string) (err error) {
	if m.Tokenizer, err = readText(dir, "tokenizer.json", maxTokenizerBytes); errors.Is(err, os.ErrNotExist) {
		m.Notes = append(m.Notes, "the folder has no tokenizer.json: the model comes without a vocabulary")
	} else if err != nil {
		return err
	}
	if m.ChatJinja, err = chatJinja(dir); err != nil {
		return err
	}
	raw, err := readStrict(dir, "generation_config.json", maxConfigBytes)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var g struct {
		BOS json.RawMessage `json:"bos_token_id"`
		EOS json.RawMessage `json:"eos_token_id"`
	}
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	if err != nil {
		return fmt.Errorf("generation_config.json: %w", err)
	}
	for _, r := range []struct {
		raw json.RawMessage
		ids *[]int32
	}{{g.BOS, &m.BOS}, {g.EOS, &m.EOS}} {
		ids, err := tokenIDs(r.raw, m.Config.VocabSize)
		if err != nil {
			return fmt.Errorf("generation_config.json: %w", err)
		}
		if ids != nil {
			*r.ids = ids
		}
	}
	return nil
}

// openWeights opens model.safetensors, or the shards that the index names.
func (m *HFModel) openWeights(dir string) error {
	index, err := readStrict(dir, indexName, maxIndexBytes)
	if errors.Is(err, os.ErrNotExist) {
		err = m.openAll(dir, []string{singleName})
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("there is neither %s nor %s; PyTorch's .bin files are not read, convert them with transformers' save_pretrained", singleName, indexName)
		}
		return err
	}
	if err != nil {
		return err
	}
	names, where, err := parseIndex(index)
	if err != nil {
		return fmt.Errorf("%s: %w", indexName, err)
	}
	if err := m.openAll(dir, names); err != nil {
		return err
	}
	for name, file := range where {
		if f, ok := m.where[name]; !ok || f != m.files[file] {
			return fmt.Errorf("%s says that %s has the tensor %q, but it does not", indexName, file, name)
		}
	}
	return nil
}

// parseIndex reads model.safetensors.index.json. A name that leads out of the
// folder is refused.
func parseIndex(raw []byte) (files []string, where map[string]string, err error) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, nil, err
	}
	if len(index.WeightMap) == 0 {
		return nil, nil, fmt.Errorf("it has no weight_map")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(index.WeightMap)) {
		file := index.WeightMap[name]
		if strings.ContainsAny(file, `/\:`) || !strings.HasSuffix(file, ".safetensors") || !filepath.IsLocal(file) {
			return nil, nil, fmt.Errorf("tensor %q is said to be in %q, want a .safetensors file in the same folder", name, file)
		}
		if !seen[file] {
			seen[file] = true
			files = append(files, file)
		}
	}
	return files, index.WeightMap, nil
}

func (m *HFModel) openAll(dir string, names []string) error {
	for _, name := range names {
		path, err := hfPath(dir, name)
		if err != nil {
			return err
		}
		f, err := Open(path)
		if err != nil {
			return err
		}
		m.files[name] = f
		for _, t := range f.Tensors() {
			if other, ok := m.where[t.Name]; ok {
				return fmt.Errorf("tensor %q is in %s and in %s", t.Name, filepath.Base(other.name), name)
			}
			m.where[t.Name] = f
		}
	}
	return nil
}

// checkTensors compares the tensors that are there with those that the
// configuration asks for.
func (m *HFModel) checkTensors() error {
	want := map[string]bool{}
	for _, lt := range m.Config.tensors() {
		want[lt.hf] = true
		s, err := m.source(lt)
		if err != nil {
			return err
		}
		if err := s.check(); err != nil {
			return err
		}
	}
	var ignored, unknown []string
	for _, name := range slices.Sorted(maps.Keys(m.where)) {
		switch {
		case want[name]:
		case strings.HasSuffix(name, ".rotary_emb.inv_freq"), name == "lm_head.weight" && m.Config.Tied:
			ignored = append(ignored, name)
		default:
			unknown = append(unknown, name)
		}
	}
	if unknown != nil {
		return fmt.Errorf("%d tensors are no part of a Llama model as config.json describes it, first %q", len(unknown), unknown[0])
	}
	if ignored != nil {
		m.Notes = append(m.Notes, fmt.Sprintf("%d tensors are derived from others and left out, first %s", len(ignored), ignored[0]))
	}
	return nil
}

func (m *HFModel) source(lt llamaTensor) (source, error) {
	f, ok := m.where[lt.hf]
	if !ok {
		hint := ""
		if lt.ours == "lm_head" {
			hint = "; if the output matrix is the embedding, config.json must say \"tie_word_embeddings\": true"
		}
		return source{}, fmt.Errorf("tensor %q is missing%s", lt.hf, hint)
	}
	return source{f: f, name: lt.hf, shape: lt.theirShape(), turned: lt.turned}, nil
}

// Weights are the model's parameters under our names, as F32 and [in, out],
// ready for SaveLLM with the JSON of Config. A NaN among them fails the save.
func (m *HFModel) Weights() []Tensor {
	var ts []Tensor
	for _, lt := range m.Config.tensors() {
		s, err := m.source(lt)
		if err != nil { // OpenHF has seen it: only after Close
			ts = append(ts, Tensor{Info: Info{Name: lt.ours, Shape: lt.shape}, Write: func(io.Writer) error { return err }})
			continue
		}
		ts = append(ts, s.tensor(lt.ours, tensor.F32, lt.shape))
	}
	return ts
}

// Close closes the files.
func (m *HFModel) Close() error {
	var first error
	for _, f := range m.files {
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	clear(m.files)
	clear(m.where)
	return first
}
