package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/bpe"
	"tezgah/checkpoint"
	"tezgah/model"
	"tezgah/tensor"
)

type exportFlags struct {
	to       string
	typ      string
	shardMiB int64
	force    bool
}

func newExport() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export --to hf|gguf RUN|F.llm OUT",
		Short: "Write a model for Hugging Face transformers (a folder) or llama.cpp (a .gguf file)",
		Args:  exactly("a run folder or a .llm file, and the folder or file to write", 2),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(args[0], args[1]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.to, "to", "hf", "hf or gguf")
	fl.StringVar(&f.typ, "type", "f32", "hf: f32, f16, bf16; gguf: f32, f16, q8_0")
	fl.Int64Var(&f.shardMiB, "shard-mib", 0, "hf: most weights in one file (0: 5 GB)")
	fl.BoolVar(&f.force, "force", false, "gguf: write a pattern that llama.cpp does not know as the nearest that it does")
	return cmd
}

func (f *exportFlags) run(from, out string) error {
	if err := checkWord("to", f.to, []string{"hf", "gguf"}); err != nil {
		return err
	}
	types := map[string][]string{"hf": {"f32", "f16", "bf16"}, "gguf": {"f32", "f16", "q8_0"}}[f.to]
	if err := checkWord("type", f.typ, types); err != nil {
		return err
	}
	if f.shardMiB < 0 {
		return usagef("--shard-mib is %d, want 0 or a positive number", f.shardMiB)
	}
	file, err := modelFile(from)
	if err != nil {
		return err
	}
	l, err := checkpoint.OpenLLM(file)
	if err != nil {
		return err
	}
	defer l.Close()
	special, pattern, err := specialTokens(l.Header.Tokenizer)
	if err != nil {
		return fmt.Errorf("%s: its tokenizer: %w", file, err)
	}
	if f.to == "hf" {
		typ, err := tensor.ParseDType(strings.ToUpper(f.typ))
		if err != nil {
			return err
		}
		if err := checkpoint.ExportHF(out, l, checkpoint.HFOptions{Type: typ, ShardBytes: f.shardMiB << 20, Special: special}); err != nil {
			return err
		}
	} else {
		notes, err := checkpoint.ExportGGUF(out, l, checkpoint.GGUFOptions{
			Type: f.typ, Name: strings.TrimSuffix(filepath.Base(out), ".gguf"), Pattern: pattern, Special: special, Force: f.force,
		})
		if err != nil {
			return err
		}
		for _, n := range notes {
			say("note: " + n)
		}
	}
	fmt.Println(out)
	return nil
}

// specialTokens names the tokens that the formats give a role; a model without
// a tokenizer has none.
func specialTokens(tokenizer []byte) (s checkpoint.SpecialTokens, pattern string, err error) {
	if len(tokenizer) == 0 {
		return s, "", nil
	}
	t, err := bpe.Parse(tokenizer)
	if err != nil {
		return s, "", err
	}
	if id := t.BOS(); id >= 0 {
		s.BOS = string(t.Token(id))
	}
	if id := t.EndOfDocument(); id >= 0 {
		s.EOS = string(t.Token(id))
	}
	return s, t.Pattern(), nil
}

func newImport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "import --out F.llm DIR|F.safetensors",
		Short: "Read a Llama-architecture model of Hugging Face transformers",
		Args:  exactly("a Hugging Face folder or a .safetensors file", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("import: give --out F.llm, the file to write")
			}
			return importModel(args[0], out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "model file to write")
	return cmd
}

// importModel converts a Hugging Face folder into a .llm file.
func importModel(path, out string) error {
	m, err := checkpoint.OpenHF(path)
	if err != nil {
		return err
	}
	defer m.Close()
	config, err := json.Marshal(m.Config)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.DisallowUnknownFields() // a property that the model here lacks must not be dropped in silence
	var cfg model.Config
	if err := dec.Decode(&cfg); err != nil {
		return fmt.Errorf("%s: the model has a property that is not supported: %w", path, err)
	}
	if err := cfg.WithDefaults().Validate(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if m.Tokenizer != nil {
		if _, err := bpe.Parse(m.Tokenizer); err != nil {
			return fmt.Errorf("%s: its tokenizer: %w", path, err)
		}
	}
	facts, err := json.Marshal(map[string]string{"imported_from": filepath.Base(path), "version": version()})
	if err != nil {
		return err
	}
	if err := checkpoint.SaveLLM(out, checkpoint.Header{Config: config, Tokenizer: m.Tokenizer, Facts: facts}, m.Weights(), nil); err != nil {
		return err
	}
	for _, n := range m.Notes {
		say("note: " + n)
	}
	fmt.Println(out)
	return nil
}
