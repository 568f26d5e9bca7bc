package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/train"
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
	h, err := train.ImportHeader(m, filepath.Base(path), f.template, version())
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
