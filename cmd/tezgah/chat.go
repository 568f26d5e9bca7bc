package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tezgah/bpe"
	"tezgah/chat"
	"tezgah/generate"
	"tezgah/model"
	"tezgah/op"
	"tezgah/train"
)

const aboutChat = `Talk to a model that was fine-tuned on conversations (tezgah train --sft), or to an imported chat model.

On a terminal, one line is one message and the answer streams. Ctrl-C stops the answer; once more, or while nothing
is being answered, it leaves. Lines that begin with a slash are commands (// begins a message with a slash):

  /reset         forget the conversation, but not the system message
  /system TEXT   replace the system message; without TEXT, show it
  /save F.jsonl  append the conversation as a {"messages": …} line, as fine-tuning reads it
  /quit          leave, as the end of the input does

With standard input from a file or a pipe, one message a line, only the answers are printed.`

type chatFlags struct {
	deviceFlags
	opt       generate.Options
	system    string
	template  string
	precision string
	json      bool
}

func newChat() *cobra.Command {
	var f chatFlags
	cmd := &cobra.Command{
		Use:   "chat RUN|F.llm",
		Short: "Talk to a model in the terminal",
		Long:  aboutChat,
		Args:  exactly("a run folder or a .llm file", 1),
		RunE:  func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args[0]) },
	}
	f.deviceFlags.register(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.system, "system", "", "system message")
	fl.StringVar(&f.template, "template", "", "chat template: "+strings.Join(chat.Names(), ", ")+" (default: the one that the model's file names)")
	registerSampling(fl, &f.opt)
	fl.StringVar(&f.precision, "precision", "f32", "f32, or mixed for 16-bit weights where the device has them")
	fl.BoolVar(&f.json, "json", false, "print each answer as one line of JSON instead of streaming")
	return cmd
}

func (f *chatFlags) run(ctx context.Context, path string) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := checkSampling(f.opt); err != nil {
		return err
	}
	if err := checkWord("precision", f.precision, []string{"f32", "mixed"}); err != nil {
		return err
	}
	if f.template != "" {
		if err := checkWord("template", f.template, chat.Names()); err != nil {
			return err
		}
	}
	file, err := modelFile(path)
	if err != nil {
		return err
	}
	template, err := f.templateOf(file)
	if err != nil {
		return err
	}
	r, err := f.runner()
	if err != nil {
		return err
	}
	defer r.Backend().Close()
	return f.talk(ctx, r, file, template)
}

// templateOf finds the template before anything is loaded: the one that the
// flag or the file names, if the file's tokenizer has its tokens.
func (f *chatFlags) templateOf(file string) (*chat.Template, error) {
	tok, own, err := train.ModelTokenizer(file)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(f.template, own)
	if name == "" {
		return nil, noTemplate(file, tok)
	}
	t, err := chat.Lookup(name)
	if err == nil {
		err = t.Check(tok)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return t, nil
}

// noTemplate says which templates the model could be used with all the same.
func noTemplate(file string, tok *bpe.Tokenizer) error {
	var fits []string
	for _, name := range chat.Names() {
		t, err := chat.Lookup(name)
		if err != nil {
			return err
		}
		if missing := t.Missing(tok); len(missing) > 0 {
			fits = append(fits, fmt.Sprintf("%s lacks %s", name, strings.Join(missing, ", ")))
		} else {
			fits = append(fits, name+" has all of its tokens")
		}
	}
	return fmt.Errorf("%s names no chat template: it was not fine-tuned on conversations (tezgah train --sft does that). "+
		"--template NAME takes one whose special tokens its tokenizer has: %s", file, strings.Join(fits, "; "))
}

// talk loads the model and holds the conversation.
func (f *chatFlags) talk(ctx context.Context, r *op.Runner, file string, template *chat.Template) error {
	m, err := train.LoadModel(r, file, f.precision == "mixed")
	if err != nil {
		return err
	}
	defer m.Params.Close()
	dec, err := model.NewDecoder(r, m.Params, 1, 0)
	if err != nil {
		return err
	}
	defer dec.Close()
	f.opt.StopIDs = m.EndIDs()
	c, err := generate.NewChat(generate.Generator{Decoder: dec, Tokenizer: m.Tokenizer}, template, f.opt)
	if err != nil {
		return err
	}
	if err := c.SetSystem(f.system); err != nil {
		return usagef("--system: %v", err)
	}
	if err := ctx.Err(); err != nil { // Ctrl-C while loading
		return err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	s := &talk{
		chat: c, out: os.Stdout, notes: os.Stderr, signals: signals, json: f.json,
		terminal: term.IsTerminal(int(os.Stdin.Fd())),
	}
	if s.terminal {
		fmt.Fprintf(s.notes, "%s, %s, %d tokens of context; /help lists the commands\n", file, template.Name(), dec.Slots())
	}
	return s.loop(os.Stdin)
}
