package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"tezgah/checkpoint"
	"tezgah/train"
)

// Model is a model as the page lists it.
type Model struct {
	Name         string    `json:"name"`
	Run          string    `json:"run,omitempty"`  // the run that it belongs to
	Step         int64     `json:"step,omitempty"` // of that run
	Params       int       `json:"params"`
	Loss         float64   `json:"loss"`     // 0 unknown
	ValLoss      float64   `json:"val_loss"` // 0 unknown
	Bytes        int64     `json:"bytes"`
	Created      time.Time `json:"created"`
	Context      int       `json:"context"`
	VocabSize    int       `json:"vocab_size"`
	ChatTemplate string    `json:"chat_template"`
	Tokens       int64     `json:"trained_tokens"`
	Tokenizer    bool      `json:"tokenizer"` // it can be prompted with text
	Adapters     bool      `json:"adapters"`  // a checkpoint of adapters, which the run's base model belongs to
}

// models remembers what the headers of model files say.
type models struct {
	mu    sync.Mutex
	known map[stamp]Model
}

const modelExt = ".llm"

// importedPath is where a model that was brought in lies.
func (s *Service) importedPath(name string) string { return s.path("models", name+modelExt) }

// modelPath finds the file of a model: one that was brought in, or of a run the
// newer of model.llm and the newest checkpoint.
func (s *Service) modelPath(name string) (string, error) {
	if err := checkName("model", name); err != nil {
		return "", err
	}
	missing := fail("not_found", "there is no model %q", name)
	if path := s.importedPath(name); isFile(path) {
		return path, nil
	}
	dir := s.path("runs", name)
	list, err := checkpoint.List(dir)
	if err != nil {
		return "", missing
	}
	done := filepath.Join(dir, train.ModelName)
	if !isFile(done) && len(list) == 0 {
		return "", missing
	}
	if len(list) == 0 {
		return done, nil
	}
	last := list[len(list)-1]
	if isFile(done) {
		if m, err := s.readModel(done); err == nil && m.Step >= last.Step {
			return done, nil
		}
	}
	return last.Path, nil
}

func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular()
}

// readModel describes a model file by its header.
func (s *Service) readModel(path string) (Model, error) {
	st, err := stampOf(path)
	if err != nil {
		return Model{}, err
	}
	s.models.mu.Lock()
	defer s.models.mu.Unlock()
	if m, ok := s.models.known[st]; ok {
		return m, nil
	}
	m, err := describeModel(st)
	if err == nil {
		if len(s.models.known) > 1000 {
			clear(s.models.known)
		}
		s.models.known[st] = m
	}
	return m, err
}

func describeModel(st stamp) (Model, error) {
	cfg, err := train.ModelOf(st.path)
	if err != nil {
		return Model{}, err
	}
	f, err := checkpoint.OpenLLM(st.path)
	if err != nil {
		return Model{}, err
	}
	defer f.Close()
	var facts struct {
		Steps   int64   `json:"steps"`
		Tokens  int64   `json:"tokens"`
		Loss    float64 `json:"loss"`
		ValLoss float64 `json:"val_loss"`
	}
	json.Unmarshal(f.Header.Facts, &facts) // a model from elsewhere tells nothing
	return Model{
		Params: cfg.NumParams(), Step: facts.Steps, Loss: max(0, facts.Loss), ValLoss: max(0, facts.ValLoss), Tokens: facts.Tokens,
		Bytes: st.size, Created: st.mtime.UTC(), Context: cfg.Context, VocabSize: cfg.VocabSize, ChatTemplate: f.Header.ChatTemplate,
		Tokenizer: len(f.Header.Tokenizer) > 0 || f.Header.LoRA != nil, Adapters: f.Header.LoRA != nil,
	}, nil
}

// model describes a model by name.
func (s *Service) model(name string) (Model, error) {
	path, err := s.modelPath(name)
	if err != nil {
		return Model{}, err
	}
	m, err := s.readModel(path)
	m.Name = name
	if filepath.Dir(path) != s.path("models") {
		m.Run = name
	}
	return m, err
}

// allModels are those that were brought in and those of runs, newest first.
func (s *Service) allModels() ([]Model, error) {
	names, err := s.names("models", modelExt)
	if err != nil {
		return nil, err
	}
	runs, err := s.allRuns()
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		names = append(names, r.name)
	}
	list := []Model{}
	for _, name := range names {
		if m, err := s.model(name); err == nil {
			list = append(list, m)
		}
	}
	slices.SortFunc(list, func(a, b Model) int { return b.Created.Compare(a.Created) })
	return list, nil
}

func (s *Service) listModels(c *call) error {
	list, err := s.allModels()
	if err != nil {
		return err
	}
	return c.json(list)
}

func (s *Service) deleteModel(c *call) error {
	name := c.args[0]
	if err := checkName("name", name); err != nil {
		return err
	}
	if !isFile(s.importedPath(name)) {
		if _, err := s.modelPath(name); err == nil {
			return fail("forbidden", "the model %s belongs to the run of that name: delete the run", name)
		}
	}
	s.loaded.unload()
	return s.deleteFile(c, "models", name, s.importedPath(name))
}
