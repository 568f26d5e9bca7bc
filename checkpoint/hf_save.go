package checkpoint

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"tezgah/tensor"
)

// HFOptions says how a Hugging Face folder is written.
type HFOptions struct {
	Type       tensor.DType // F32, F16 or BF16
	ShardBytes int64        // most bytes of weights in one file; 0 means 5 GB
	Special    SpecialTokens
}

// defaultShardBytes is the limit that transformers used for years.
const defaultShardBytes = 5e9

// ExportHF writes the model l as a Hugging Face folder that transformers loads
// as LlamaForCausalLM: config.json, generation_config.json, model.safetensors
// (or shards and their index), and, if the model has a vocabulary,
// tokenizer.json, tokenizer_config.json and special_tokens_map.json. dir must
// not exist or be empty; it appears whole or not at all.
func ExportHF(dir string, l *LLM, o HFOptions) error {
	if err := exportHF(dir, l, o); err != nil {
		return fmt.Errorf("export to %s: %w", dir, err)
	}
	return nil
}

func exportHF(dir string, l *LLM, o HFOptions) error {
	c, err := parseLlamaConfig(l.Header.Config)
	if err != nil {
		return err
	}
	shards, err := planShards(hfTensors(l.File, c, o.Type), o)
	if err != nil {
		return err
	}
	files, err := hfTextFiles(l, c, o)
	if err != nil {
		return err
	}
	if index, err := shardIndex(shards); err != nil {
		return err
	} else if index != nil {
		files = append(files, textFile{indexName, index})
	}
	var need int64
	for _, s := range shards {
		need += s.plan.size
	}
	if err := checkSpace(dir, need); err != nil {
		return err
	}
	return writeFolder(dir, func(temp string) error {
		for _, s := range shards {
			if err := s.plan.save(filepath.Join(temp, s.name)); err != nil {
				return err
			}
		}
		for _, f := range files {
			if err := WriteBytesAtomic(filepath.Join(temp, f.name), f.content); err != nil {
				return err
			}
		}
		return nil
	})
}

// hfTensors describes the weights as Hugging Face stores them.
func hfTensors(f *File, c LlamaConfig, t tensor.DType) []Tensor {
	var out []Tensor
	for _, lt := range c.tensors() {
		s := source{f: f, name: lt.ours, shape: lt.shape, turned: lt.turned}
		out = append(out, s.tensor(lt.hf, t, lt.theirShape()))
	}
	return out
}

// tensor is the source's data as a tensor to be saved, rounded to type t.
func (s source) tensor(name string, t tensor.DType, shape []int) Tensor {
	return Tensor{Info: Info{name, t, shape}, Write: func(w io.Writer) error {
		narrow, err := narrower(t)
		if err != nil {
			return err
		}
		var buf []byte
		return s.stream(func(x []float32) error {
			for len(x) > 0 {
				n := min(len(x), chunkBytes/4)
				buf = narrow(buf[:0], x[:n])
				if _, err := w.Write(buf); err != nil {
					return err
				}
				x = x[n:]
			}
			return nil
		})
	}}
}

// shard is one file of weights.
type shard struct {
	name string
	plan *plan
}

// planShards deals the tensors out to files in order. A tensor larger than the
// limit gets a file of its own.
func planShards(ts []Tensor, o HFOptions) ([]shard, error) {
	if _, err := narrower(o.Type); err != nil {
		return nil, err
	}
	limit := o.ShardBytes
	switch {
	case limit < 0:
		return nil, fmt.Errorf("shard size is %d bytes, want more", limit)
	case limit == 0:
		limit = defaultShardBytes
	}
	var groups [][]Tensor
	var room int64
	for _, t := range ts {
		if len(groups) == 0 || t.SizeBytes() > room {
			groups = append(groups, nil)
			room = limit
		}
		last := len(groups) - 1
		groups[last] = append(groups[last], t)
		room -= t.SizeBytes()
	}
	shards := make([]shard, len(groups))
	for i, g := range groups {
		p, err := planFile([]pair{{keyFormat, "pt"}}, g)
		if err != nil {
			return nil, err
		}
		shards[i] = shard{fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(groups)), p}
	}
	if len(shards) == 1 {
		shards[0].name = singleName
	}
	return shards, nil
}

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// shardIndex writes the file that says which shard has which tensor; nil for a
// single file.
func shardIndex(shards []shard) ([]byte, error) {
	if len(shards) == 1 {
		return nil, nil
	}
	where := map[string]string{}
	var total int64
	for _, s := range shards {
		for _, t := range s.plan.tensors {
			where[t.Name] = s.name
			total += t.SizeBytes()
		}
	}
	return jsonObject([]member{{"metadata", map[string]int64{"total_size": total}}, {"weight_map", where}})
}

type textFile struct {
	name    string
	content []byte
}

// hfTextFiles writes everything but the weights.
func hfTextFiles(l *LLM, c LlamaConfig, o HFOptions) ([]textFile, error) {
	bos, eos, pad := int32(-1), int32(-1), int32(-1)
	var files []textFile
	if len(l.Header.Tokenizer) > 0 {
		v, err := parseVocabulary(l.Header.Tokenizer)
		if err != nil {
			return nil, err
		}
		if len(v.tokens) > c.VocabSize {
			return nil, fmt.Errorf("the vocabulary has %d tokens, the model %d", len(v.tokens), c.VocabSize)
		}
		if bos, eos, pad, err = v.roles(&o.Special); err != nil {
			return nil, err
		}
		if files, err = tokenizerFiles(l.Header.Tokenizer, c, v, o.Special); err != nil {
			return nil, err
		}
	}
	config, err := hfConfigJSON(c, o.Type, bos, eos, pad)
	if err != nil {
		return nil, err
	}
	generation := []member{{"_from_model_config", true}}
	for _, m := range []struct {
		key string
		id  int32
	}{{"bos_token_id", bos}, {"eos_token_id", eos}, {"pad_token_id", pad}} {
		if m.id >= 0 {
			generation = append(generation, member{m.key, m.id})
		}
	}
	gen, err := jsonObject(generation)
	if err != nil {
		return nil, err
	}
	return append(files, textFile{"config.json", config}, textFile{"generation_config.json", gen}), nil
}

func tokenizerFiles(tokenizer []byte, c LlamaConfig, v *vocabulary, s SpecialTokens) ([]textFile, error) {
	var roles []member
	for _, r := range []member{{"bos_token", s.BOS}, {"eos_token", s.EOS}, {"pad_token", s.Pad}} {
		if r.value != "" {
			roles = append(roles, r)
		}
	}
	var extra []string // special tokens without a role
	for i, t := range v.tokens {
		if v.special[i] && !slices.Contains([]string{s.BOS, s.EOS, s.Pad}, t) {
			extra = append(extra, t)
		}
	}
	if extra != nil {
		roles = append(roles, member{"additional_special_tokens", extra})
	}
	specials, err := jsonObject(roles)
	if err != nil {
		return nil, err
	}
	config, err := jsonObject(append(slices.Clone(roles), member{"clean_up_tokenization_spaces", false},
		member{"model_max_length", c.Context}, member{"tokenizer_class", "PreTrainedTokenizerFast"}))
	if err != nil {
		return nil, err
	}
	return []textFile{{"tokenizer.json", tokenizer}, {"special_tokens_map.json", specials}, {"tokenizer_config.json", config}}, nil
}

// writeFolder makes the folder dir with what fill puts into a temporary one
// beside it. dir must not exist, or be empty.
func writeFolder(dir string, fill func(temp string) error) error {
	dir = filepath.Clean(dir)
	old, err := os.ReadDir(dir)
	switch {
	case err == nil && len(old) > 0:
		return fmt.Errorf("the folder is not empty; choose another one, or remove it first")
	case err != nil && !os.IsNotExist(err):
		return err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(parent, "."+filepath.Base(dir)+tempMark)
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) // nothing is left there after the rename
	if err := fill(temp); err != nil {
		return err
	}
	if err := os.Chmod(temp, 0o755); err != nil { // MkdirTemp makes it private
		return err
	}
	if err := os.Remove(dir); err != nil && !os.IsNotExist(err) { // the empty one
		return err
	}
	if err := os.Rename(temp, dir); err != nil {
		return err
	}
	return syncDir(parent)
}
