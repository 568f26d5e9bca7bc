package train

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/model"
)

// importFacts is what an imported file says of its origin.
type importFacts struct {
	From    string   `json:"imported_from"`
	Version string   `json:"version"`
	Ends    []string `json:"end_tokens,omitempty"` // the tokens that end a text or a turn
}

// ImportHeader makes the header of the .llm file that a Hugging Face folder
// becomes. from is the folder's name, template the chat template's, or empty for
// the known one that the folder has. It may add to the model's notes. What a model
// here cannot be is refused by name.
func ImportHeader(m *checkpoint.HFModel, from, template, version string) (h checkpoint.Header, err error) {
	if h.Config, err = importedConfig(m.Config); err != nil {
		return h, err
	}
	facts := importFacts{From: from, Version: version}
	if h.Tokenizer = m.Tokenizer; h.Tokenizer != nil {
		t, err := bpe.Parse(h.Tokenizer)
		if err != nil {
			return h, fmt.Errorf("its tokenizer: %w", err)
		}
		if t.VocabSize() > m.Config.VocabSize {
			return h, fmt.Errorf("its tokenizer has %d ids but the model only %d", t.VocabSize(), m.Config.VocabSize)
		}
		facts.Ends = endTokens(m, t)
	}
	if h.ChatTemplate = template; template == "" && m.ChatJinja != "" {
		h.ChatTemplate = knownTemplate(m)
	}
	h.Facts, err = json.Marshal(facts)
	return h, err
}

// importedConfig turns the configuration into ours. A property that models here
// lack must not be dropped in silence.
func importedConfig(c checkpoint.LlamaConfig) (json.RawMessage, error) {
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.DisallowUnknownFields()
	var cfg model.Config
	if err := dec.Decode(&cfg); err != nil {
		return nil, fmt.Errorf("the model has a property that is not supported: %w", err)
	}
	return config, cfg.WithDefaults().Validate()
}

// endTokens are the texts of the tokens that end what the model writes. It
// notes those at which generation cannot stop, because the tokenizer has them
// as ordinary text or not at all.
func endTokens(m *checkpoint.HFModel, t *bpe.Tokenizer) (ends []string) {
	for _, id := range m.EOS {
		text := string(t.Token(id))
		if got, ok := t.SpecialID(text); !ok || got != id {
			m.Notes = append(m.Notes, fmt.Sprintf("the model ends a text with id %d, which is no special token of its tokenizer: generation goes on past it", id))
			continue
		}
		ends = append(ends, text)
	}
	return ends
}

// knownTemplate names the model's chat template. One that is not known is noted.
func knownTemplate(m *checkpoint.HFModel) string {
	name, ok := chat.Detect(m.ChatJinja)
	if !ok {
		m.Notes = append(m.Notes, "its chat template is not one of "+strings.Join(chat.Names(), ", ")+": imported without; name one with --template")
		return ""
	}
	return name
}
