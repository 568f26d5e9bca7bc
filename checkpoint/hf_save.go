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
	Chat       *ChatFormat // nil for a model that was not trained on conversations
}

// ChatFormat is what other formats need to know of the chat template by which
// a model was trained.
type ChatFormat struct {
	Jinja string // the template, as transformers and llama.cpp evaluate it
	End   string // the special token that ends a turn
}

// defaultShardBytes is the limit that transformers used for years.
const defaultShardBytes = 5e9

// ExportHF writes the model l as a Hugging Face folder that transformers loads
// as LlamaForCausalLM: config.json, generation_config.json, model.safetensors
// (or shards and their index), and, if the model has a vocabulary,
// tokenizer.json, tokenizer_config.json and special_tokens_map.json; with a
// chat format also chat_template.jinja. dir must not exist or be empty; it
// appears whole or not at all.
func ExportHF(dir string, l *LLM, o HFOptions) error {
	h, err := planHF(l, o)
	if err == nil {
		err = checkSpace(dir, h.size())
	}
	if err == nil {
		err = writeFolder(dir, h.write)
	}
	if err != nil {
		return fmt.Errorf("export to %s: %w", dir, err)
	}
	return nil
}

// hfFolder is a folder that is ready to be written.
type hfFolder struct {
	shards []shard
	files  []textFile
}

func planHF(l *LLM, o HFOptions) (*hfFolder, error) {
	if l.Header.LoRA != nil {
		return nil, errAdapter
	}
	c, err := parseLlamaConfig(l.Header.Config)
	if err != nil {
		return nil, err
	}
	h := &hfFolder{}
	if h.shards, err = planShards(hfTensors(l.File, c, o.Type), o); err != nil {
		return nil, err
	}
	if h.files, err = hfTextFiles(l, c, o); err != nil {
		return nil, err
	}
	index, err := shardIndex(h.shards)
	if err == nil && index != nil {
		h.files = append(h.files, textFile{indexName, index})
	}
	return h, err
}

// size is about what the folder takes on the disk: its weights.
func (h *hfFolder) size() (sizeBytes int64) {
	for _, s := range h.shards {
		sizeBytes += s.plan.size
	}
	return sizeBytes
}

// write fills an empty folder.
func (h *hfFolder) write(dir string) error {
	for _, s := range h.shards {
		if err := s.plan.save(filepath.Join(dir, s.name)); err != nil {
			return err
		}
	}
	for _, f := range h.files {
		if err := WriteBytesAtomic(filepath.Join(dir, f.name), f.content); err != nil {
			return err
		}
	}
	return nil
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
	jinjaName  = "chat_template.jinja"
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
	ids := roleIDs{-1, -1, -1, -1}
	var files []textFile
	if len(l.Header.Tokenizer) > 0 {
		v, err := parseVocabulary(l.Header.Tokenizer)
		if err != nil {
			return nil, err
		}
		if len(v.tokens) > c.VocabSize {
			return nil, fmt.Errorf("the vocabulary has %d tokens, the model %d", len(v.tokens), c.VocabSize)
		}
		if ids, err = v.roles(&o.Special, o.Chat); err != nil {
			return nil, err
		}
		if files, err = tokenizerFiles(l.Header.Tokenizer, c, v, o); err != nil {
			return nil, err
		}
	}
	config, err := hfConfigJSON(c, o.Type, ids)
	if err != nil {
		return nil, err
	}
	gen, err := jsonObject(generationConfig(ids))
	if err != nil {
		return nil, err
	}
	return append(files, textFile{"config.json", config}, textFile{"generation_config.json", gen}), nil
}

// generationConfig says by which tokens transformers' generate goes. A model
// that converses ends at the end of its turn, or of the document.
func generationConfig(ids roleIDs) []member {
	m := []member{{"_from_model_config", true}}
	if ids.bos >= 0 {
		m = append(m, member{"bos_token_id", ids.bos})
	}
	switch {
	case ids.turn >= 0 && ids.eos >= 0 && ids.turn != ids.eos:
		m = append(m, member{"eos_token_id", []int32{ids.turn, ids.eos}})
	case max(ids.turn, ids.eos) >= 0:
		m = append(m, member{"eos_token_id", max(ids.turn, ids.eos)})
	}
	if ids.pad >= 0 {
		m = append(m, member{"pad_token_id", ids.pad})
	}
	return m
}

// tokenizerFiles are the files that transformers builds its tokenizer from.
// The chat template stands where transformers 5 looks for it and where version
// 4 did.
func tokenizerFiles(tokenizer []byte, c LlamaConfig, v *vocabulary, o HFOptions) ([]textFile, error) {
	s := o.Special
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
	settings := append(slices.Clone(roles), member{"clean_up_tokenization_spaces", false},
		member{"model_max_length", c.Context}, member{"tokenizer_class", "PreTrainedTokenizerFast"})
	files := []textFile{{"tokenizer.json", tokenizer}, {"special_tokens_map.json", specials}}
	if o.Chat != nil {
		settings = append(settings, member{"chat_template", o.Chat.Jinja})
		files = append(files, textFile{jinjaName, []byte(o.Chat.Jinja)})
	}
	config, err := jsonObject(settings)
	if err != nil {
		return nil, err
	}
	return append(files, textFile{"tokenizer_config.json", config}), nil
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
