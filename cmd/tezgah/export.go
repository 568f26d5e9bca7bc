package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/checkpoint"
	"tezgah/op"
	"tezgah/op/cpu"
	"tezgah/tensor"
	"tezgah/train"
)

type exportFlags struct {
	to        string
	typ       string
	shardSize byteSize
	template  string
	base      string
	force     bool
}

// exportTypes are the element types of each format.
var exportTypes = map[string][]string{
	"hf": {"f32", "f16", "bf16"}, "gguf": {"f32", "f16", "q8_0"}, "peft": {"f32", "f16", "bf16"},
}

func newExport() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export --to hf|gguf|peft RUN|F.llm OUT",
		Short: "Write a model for transformers (a folder), llama.cpp (a .gguf file) or, its adapters alone, peft (a folder)",
		Args:  exactly("a run folder or a .llm file, and the folder or file to write", 2),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(args[0], args[1]) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.to, "to", "hf", "hf, gguf or peft")
	fl.StringVar(&f.typ, "type", "f32", "hf, peft: f32, f16, bf16; gguf: f32, f16, q8_0")
	fl.Var(&f.shardSize, "shard-size", "hf, peft: most weights in one file, such as 2GB (default 5GB)")
	fl.StringVar(&f.template, "template", "", "chat template to name in the export: "+strings.Join(chat.Names(), ", ")+" (default: the one that the model was trained with)")
	fl.StringVar(&f.base, "base", "", "peft: folder or hub name of the base model (default: OUT/base, which is then written too)")
	fl.BoolVar(&f.force, "force", false, "gguf: write a pattern that llama.cpp does not know as the nearest that it does")
	return cmd
}

// check refuses flags that do not go together.
func (f *exportFlags) check() error {
	if err := checkWord("to", f.to, []string{"hf", "gguf", "peft"}); err != nil {
		return err
	}
	if err := checkWord("type", f.typ, exportTypes[f.to]); err != nil {
		return err
	}
	if f.template != "" {
		if err := checkWord("template", f.template, chat.Names()); err != nil {
			return err
		}
	}
	switch {
	case f.shardSize > 0 && f.to == "gguf":
		return usagef("--shard-size is for --to hf and peft: a .gguf file is one file")
	case f.base != "" && f.to != "peft":
		return usagef("--base is for --to peft")
	case f.force && f.to != "gguf":
		return usagef("--force is for --to gguf")
	}
	return nil
}

func (f *exportFlags) run(from, out string) error {
	if err := f.check(); err != nil {
		return err
	}
	find := modelFile
	if f.to == "peft" {
		find = adapterFile
	}
	file, err := find(from)
	if err != nil {
		return err
	}
	open := openMerged
	if f.to == "peft" {
		open = openPlain
	}
	l, closeModel, err := open(file)
	if err != nil {
		return err
	}
	defer closeModel()
	switch f.to {
	case "gguf":
		err = f.gguf(l, out)
	case "peft":
		err = f.peft(l, out)
	default:
		err = f.hf(l, out)
	}
	if err == nil {
		fmt.Println(out)
	}
	return err
}

// openPlain opens a model file as it is.
func openPlain(file string) (l *checkpoint.LLM, closeModel func(), err error) {
	l, err = checkpoint.OpenLLM(file)
	return l, func() { l.Close() }, err
}

// openMerged opens a model file. Adapters, which a run that is not finished
// has, are merged into their base, in a temporary file.
func openMerged(file string) (l *checkpoint.LLM, closeModel func(), err error) {
	l, closeModel, err = openPlain(file)
	if err != nil || l.Header.LoRA == nil {
		return l, closeModel, err
	}
	l.Close()
	dir, err := os.MkdirTemp("", "tezgah-merged-")
	if err != nil {
		return nil, nil, err
	}
	if l, err = mergeInto(file, filepath.Join(dir, train.ModelName)); err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	say("note: " + file + " holds adapters: they are merged into the model beside it")
	return l, func() { l.Close(); os.RemoveAll(dir) }, nil
}

// mergeInto writes the merged model of a file of adapters, and opens it.
func mergeInto(file, path string) (*checkpoint.LLM, error) {
	b, err := cpu.New(cpu.Options{})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	if err := train.SaveMerged(op.NewRunner(b), file, path); err != nil {
		return nil, err
	}
	return checkpoint.OpenLLM(path)
}

func (f *exportFlags) hf(l *checkpoint.LLM, out string) error {
	o, err := f.hfOptions(l, l.Header.ChatTemplate)
	if err != nil {
		return err
	}
	return checkpoint.ExportHF(out, l, o)
}

// hfOptions are those of a folder with the model l, whose chat template is
// called template.
func (f *exportFlags) hfOptions(l *checkpoint.LLM, template string) (o checkpoint.HFOptions, err error) {
	if o.Type, err = tensor.ParseDType(strings.ToUpper(f.typ)); err != nil {
		return o, err
	}
	o.ShardBytes = int64(f.shardSize)
	if o.Special, _, err = specialTokens(l); err != nil {
		return o, err
	}
	o.Chat, err = f.chatFormat(template)
	return o, err
}

func (f *exportFlags) gguf(l *checkpoint.LLM, out string) error {
	special, pattern, err := specialTokens(l)
	if err != nil {
		return err
	}
	format, err := f.chatFormat(l.Header.ChatTemplate)
	if err != nil {
		return err
	}
	notes, err := checkpoint.ExportGGUF(out, l, checkpoint.GGUFOptions{
		Type: f.typ, Name: strings.TrimSuffix(filepath.Base(out), ".gguf"), Pattern: pattern, Special: special, Chat: format, Force: f.force,
	})
	for _, n := range notes {
		say("note: " + n)
	}
	return err
}

// peft writes adapters, and their base model unless --base says where it is.
func (f *exportFlags) peft(l *checkpoint.LLM, out string) (err error) {
	if l.Header.LoRA == nil {
		return fmt.Errorf("%s holds no LoRA adapters; train them with --lora", l.Name())
	}
	o := checkpoint.PEFTOptions{Base: f.base}
	if o.Type, err = tensor.ParseDType(strings.ToUpper(f.typ)); err != nil {
		return err
	}
	if f.base == "" {
		path := filepath.Join(filepath.Dir(l.Name()), train.BaseName)
		if o.BaseModel, err = checkpoint.OpenLLM(path); err != nil {
			return fmt.Errorf("the adapters' base model: %w; give its Hugging Face folder with --base", err)
		}
		defer o.BaseModel.Close()
		if o.BaseOptions, err = f.hfOptions(o.BaseModel, l.Header.ChatTemplate); err != nil {
			return err
		}
	}
	return checkpoint.ExportPEFT(out, l, o)
}

// chatFormat describes the chat template of an export: --template, else the
// model's own; nil for a model without one.
func (f *exportFlags) chatFormat(name string) (*checkpoint.ChatFormat, error) {
	if f.template != "" {
		name = f.template
	}
	if name == "" {
		return nil, nil
	}
	t, err := chat.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("%w; name another with --template", err)
	}
	return &checkpoint.ChatFormat{Jinja: t.Jinja(), End: t.EndText()}, nil
}

// adapterFile finds the adapters that an argument means: the file itself, or
// the newest checkpoint of a run.
func adapterFile(path string) (string, error) {
	if isFile(path) {
		return path, nil
	}
	c, skipped, err := checkpoint.Latest(path)
	for _, s := range skipped {
		fmt.Fprintf(os.Stderr, "note: %s is left out: %v\n", s.Path, s.Err)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.TrimRight(path, "/"), err)
	}
	return c.Path, nil
}

// specialTokens names the tokens that the formats give a role, and the pattern
// by which text is cut; a model without a tokenizer has none.
func specialTokens(l *checkpoint.LLM) (s checkpoint.SpecialTokens, pattern string, err error) {
	if len(l.Header.Tokenizer) == 0 {
		return s, "", nil
	}
	t, err := bpe.Parse(l.Header.Tokenizer)
	if err != nil {
		return s, "", fmt.Errorf("%s: its tokenizer: %w", l.Name(), err)
	}
	if id := t.BOS(); id >= 0 {
		s.BOS = string(t.Token(id))
	}
	if id := t.EndOfDocument(); id >= 0 {
		s.EOS = string(t.Token(id))
	}
	return s, t.Pattern(), nil
}
