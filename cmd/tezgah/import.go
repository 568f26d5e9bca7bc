package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/model"
)

type importFlags struct {
	out      string
	template string
}

func newImport() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import --out F.llm DIR|F.safetensors",
		Short: "Read a Llama-architecture model of Hugging Face transformers",
		Args:  exactly("a Hugging Face folder or a .safetensors file", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.out == "" {
				return usagef("import: give --out F.llm, the file to write")
			}
			return f.run(args[0])
		},
	}
	cmd.Flags().StringVar(&f.out, "out", "", "model file to write")
	cmd.Flags().StringVar(&f.template, "template", "", "chat template of the model: "+strings.Join(chat.Names(), ", ")+" (default: as its tokenizer_config.json has it)")
	return cmd
}

// run converts a Hugging Face folder into a .llm file.
func (f *importFlags) run(path string) error {
	if f.template != "" {
		if err := checkWord("template", f.template, chat.Names()); err != nil {
			return err
		}
	}
	m, err := checkpoint.OpenHF(path)
	if err != nil {
		return err
	}
	defer m.Close()
	h, err := f.header(m, path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if err := checkpoint.SaveLLM(f.out, h, m.Weights(), nil); err != nil {
		return err
	}
	for _, n := range m.Notes {
		say("note: " + n)
	}
	fmt.Println(f.out)
	return nil
}

// importFacts is what an imported file says of its origin.
type importFacts struct {
	From    string   `json:"imported_from"`
	Version string   `json:"version"`
	Ends    []string `json:"end_tokens,omitempty"` // the tokens that end a text or a turn
}

// header makes the .llm's header. It may add to the model's notes.
func (f *importFlags) header(m *checkpoint.HFModel, path string) (h checkpoint.Header, err error) {
	if h.Config, err = modelConfig(m.Config); err != nil {
		return h, err
	}
	facts := importFacts{From: filepath.Base(path), Version: version()}
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
	h.ChatTemplate = f.chatTemplate(m)
	h.Facts, err = json.Marshal(facts)
	return h, err
}

// modelConfig turns the configuration into ours. A property that the model
// here lacks must not be dropped in silence.
func modelConfig(c checkpoint.LlamaConfig) (json.RawMessage, error) {
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

// chatTemplate names the model's chat template: --template, else the known one
// that the folder's is. One that is not known is noted.
func (f *importFlags) chatTemplate(m *checkpoint.HFModel) string {
	if f.template != "" || m.ChatJinja == "" {
		return f.template
	}
	name, ok := chat.Detect(m.ChatJinja)
	if !ok {
		m.Notes = append(m.Notes, "its chat template is not one of "+strings.Join(chat.Names(), ", ")+": imported without; name one with --template")
		return ""
	}
	return name
}
