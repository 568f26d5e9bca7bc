package main

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tezgah/internal/nearest"
)

const about = `Tezgah trains small language models from scratch, on any GPU or on the CPU:
raw text → tokenizer → token file → training → generation.

Start with:  tezgah demo`

// newRoot builds the whole command tree.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "tezgah",
		Short:         "Train small language models from scratch",
		Long:          about,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		newDemo(), newTokenizer(), newData(), newTrain(), newGenerate(), newChat(), newEval(), newImport(), newExport(),
		newDevices(), newSelftest(), newBench(), newProfile(), newServe(), newWeb(),
	)
	return root
}

// version is the module's version and the commit it was built from, where the
// build recorded one.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 && !strings.Contains(v, s.Value[:12]) {
			v += " " + s.Value[:12]
		}
	}
	return v
}

// flagError makes a flag mistake a usage error and offers the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	msg := err.Error()
	if name, ok := strings.CutPrefix(msg, "unknown flag: --"); ok {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return usagef("%s: unknown flag --%s%s; see 'tezgah help %s'", cmd.CommandPath(), name,
			nearest.Hint(name, names, "--"), strings.TrimPrefix(cmd.CommandPath(), "tezgah "))
	}
	return usagef("%s: %s", cmd.CommandPath(), msg)
}

// unknownCommand refuses a word that is no subcommand and offers the nearest.
func unknownCommand(cmd *cobra.Command, word string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return usagef("%s: unknown command %q%s; see 'tezgah help'", cmd.CommandPath(), word, nearest.Hint(word, names, ""))
}

// group returns a command that only has subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	c.AddCommand(subs...)
	return c
}

// exactly is cobra.ExactArgs as a usage error that names what is missing.
func exactly(what string, n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s: got %d arguments, want %s", cmd.CommandPath(), len(args), what)
		}
		return nil
	}
}

// atLeastOne is cobra.MinimumNArgs(1) as a usage error.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s: nothing given, want %s", cmd.CommandPath(), what)
		}
		return nil
	}
}
