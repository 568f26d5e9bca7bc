// Command tezgah trains small language models from scratch: text, tokenizer,
// token file, model, generation, one subcommand each.
//
// This package holds the command line alone: one file per subcommand, flags
// into config structs. Open root.go first.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Exit codes of the command line.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// usageError is a mistake on the command line, told apart from work that failed.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C kills at once, for someone who does not want to wait for
	// the save; what was saved before stays whole.
	go func() { <-ctx.Done(); stop() }()
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "tezgah: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(os.Stderr, "tezgah: "+err.Error())
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	return exitFailed
}
